// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What ordered accesses see and hand on.
#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "sim/checker/checker.hpp"
#include "sim/machine/machine.hpp"
#include "sim/memory/word_memory.hpp"

namespace mscclpp::sim {
namespace {

constexpr std::uintptr_t lineBytes = 128;
constexpr unsigned staleReadsInRow = 2;  // then a thread sees the newest value, so that polls end

Access lineAccess(void const* address, std::size_t bytes, AccessKind kind) {
  return orderedAccess(address, bytes, kind, Order::relaxed, Scope::system);
}

}  // namespace

Word* Checker::wordAt(std::uintptr_t address, std::size_t size, bool create) {
  auto* const cell = shadow_.find(address);
  if (cell == nullptr) return nullptr;
  auto const bytes = static_cast<unsigned>(size);
  auto const offset = static_cast<unsigned>(address % Shadow::granule);
  if (cell->words != 0) {
    auto& list = words_.at(cell->words);
    if (auto* const word = findWord(list, offset, bytes)) return word;
    // Accesses of other sizes are no order at all towards these, and reported as races.
    std::erase_if(list, [&](Word const& w) { return w.offset < offset + bytes && offset < w.offset + w.bytes; });
  }
  if (!create) return nullptr;
  if (cell->words == 0) cell->words = words_.add();
  auto& list = words_.at(cell->words);
  auto& word = list.emplace_back();
  word.offset = static_cast<std::uint8_t>(offset);
  word.bytes = static_cast<std::uint8_t>(bytes);
  word.messages.emplace_back();
  word.messages.back().value = readWord(reinterpret_cast<void const*>(address), bytes);
  return &word;
}

void Checker::receive(Agent& agent, Message const& message, Order order, Scope scope, Scope acquireScope) {
  auto const apart = distance(agent, message.device, message.block);
  bool const strong = message.scope >= apart && scope >= apart;
  bool carried = false;
  for (auto const& release : message.releases) {
    carried = true;
    auto const away = distance(agent, release.device, release.block);
    if (!strong || release.scope < away || (acquires(order) && acquireScope < away)) {
      agent.outOfScope.join(release.clock);
    } else if (acquires(order)) {
      agent.known.join(release.clock);
    } else {
      agent.pending[scopeIndex(away)].join(release.clock);
    }
  }
  if (!carried && message.epoch != 0 && message.thread != agent.id) {
    auto const seen = std::pair(message.thread, message.epoch);
    if (std::ranges::find(agent.unreleased, seen) == agent.unreleased.end()) {
      agent.unreleased[agent.nextUnreleased++ % agent.unreleased.size()] = seen;
    }
  }
}

std::uint64_t Checker::take(Agent& agent, Word& word, std::size_t index, Access const& access) {
  auto const where = access.address;
  auto const order = access.order;
  auto const scope = access.scope;
  auto& message = word.messages[index];
  if (index + 1 < word.messages.size()) {
    agent.sawStale = true;
    agent.staleInRow = agent.staleAddress == where ? agent.staleInRow + 1 : 1;
    agent.staleAddress = where;
  } else if (agent.staleAddress == where) {
    agent.staleInRow = 0;
  }
  auto const oldest = agent.inWait ? word.messages[word.oldestFor(agent)].stamp : 0;
  auto const apart = distance(agent, message.device, message.block);
  word.noteReader(index, agent, message.scope >= apart && scope >= apart);
  receive(agent, message, order, scope);
  // An acquire also completes the thread's earlier relaxed looks at the same word.
  if (acquires(order) && std::ranges::any_of(agent.pending, [](Clock const& c) { return !c.empty(); })) {
    for (auto const& earlier : word.messages) {
      bool const looked =
          std::ranges::any_of(earlier.readers, [&](Reader const& r) { return r.thread == agent.id && r.strong; });
      if (looked) receive(agent, earlier, order, Scope::system, scope);
    }
  }
  if (agent.inWait && message.epoch != 0) agent.looks.push_back({where, message.stamp, oldest});
  return message.value;
}

bool Checker::seesNewest(Agent const& agent, std::uintptr_t address) const {
  return !options_.weakMemory || (agent.staleAddress == address && agent.staleInRow >= staleReadsInRow);
}

// The value that an update finds: any that the thread may be shown, unless another update has replaced it already.
std::size_t Checker::replaceable(Agent& agent, Word const& word, Access const& access, WordUpdate const& update) {
  auto const newest = word.messages.size() - 1;
  if (seesNewest(agent, access.address)) return newest;
  auto const oldest = word.oldestFor(agent);
  std::array<std::size_t, Words::depth + 1> options{newest};
  std::uint32_t count = 1;
  for (auto index = newest; index-- > oldest;) {
    std::uint64_t unused = 0;
    bool const replaced = word.messages[index + 1].update;
    if (!replaced || !update.apply(word.messages[index].value, word.bytes, unused)) options[count++] = index;
  }
  return count == 1 ? newest : options[machine_.scheduler().choose(ChoiceKind::staleRead, count)];
}

std::uint64_t Checker::load(Agent& agent, Access const& access, Site site) {
  note(agent, access, site);
  std::uint64_t value = 0;
  if (auto* const word = wordAt(access, false)) {
    auto index = word->messages.size() - 1;
    if (!seesNewest(agent, access.address)) {
      auto const options = index - word->oldestFor(agent) + 1;
      if (options > 1) {
        index -= machine_.scheduler().choose(ChoiceKind::staleRead, static_cast<std::uint32_t>(options));
      }
    }
    value = take(agent, *word, index, access);
  } else {
    value = readWord(access.memory(), static_cast<unsigned>(access.bytes));
  }
  addStep(agent, access, value, site);
  return value;
}

Message& Checker::append(Agent& agent, Word& word, std::size_t position, std::uint64_t value, Access const& access,
                         Site site) {
  auto const order = access.order;
  auto const scope = access.scope;
  Message message;
  message.value = value;
  message.stamp = nextStamp_++;
  message.thread = agent.id;
  message.epoch = agent.epoch;
  message.device = agent.device;
  message.block = agent.block;
  message.scope = scope;
  message.site = site;
  for (unsigned i = 0; i < agent.released.size(); ++i) {
    if (agent.released[i].empty()) continue;
    message.releases.push_back(
        {static_cast<Scope>(i + static_cast<unsigned>(Scope::block)), agent.device, agent.block, agent.released[i]});
  }
  auto& messages = word.messages;
  // What a store releases, later stores of its thread to the same word release as well.
  auto const own = std::find_if(messages.rbegin(), messages.rend(),
                                [&](Message const& m) { return m.thread == agent.id && m.epoch != 0; });
  if (own != messages.rend()) {
    for (auto const& old : own->releases) {
      if (old.own && !(releases(order) && scope >= old.scope)) message.releases.push_back(old);
    }
  }
  if (releases(order)) message.releases.push_back({scope, agent.device, agent.block, release(agent), true});
  auto const at = messages.insert(messages.begin() + static_cast<std::ptrdiff_t>(position), std::move(message));
  if (messages.size() <= Words::depth || at == messages.begin()) return *at;
  auto const index = at - messages.begin();
  messages.erase(messages.begin());
  return messages[static_cast<std::size_t>(index - 1)];
}

// What a GPU thread leaves in the memory of another device, that one is to look at.
void Checker::markSignal(Agent const& agent, Message& message, std::uintptr_t address) {
  if (agent.device < 0 || message.scope != Scope::system) return;
  auto const owner = machine_.heap().ownerOf(address);
  message.signal = owner >= 0 && owner != agent.device;
  if (message.signal) ++signals_;
}

void Checker::store(Agent& agent, Access const& access, std::uint64_t value, Site site) {
  note(agent, access, site);
  addStep(agent, access, value, site);
  auto const bytes = static_cast<unsigned>(access.bytes);
  auto* const word = wordAt(access, true);
  if (word == nullptr) return writeWord(access.memory(), bytes, value);
  auto position = word->messages.size();
  if (options_.weakMemory) {
    auto const options = position - word->oldestFor(agent);
    if (options > 1) {
      position -= machine_.scheduler().choose(ChoiceKind::lateStore, static_cast<std::uint32_t>(options));
      while (position < word->messages.size() && word->messages[position].update) ++position;
    }
  }
  bool const newest = position == word->messages.size();
  auto& message = append(agent, *word, position, value, access, site);
  if (releases(access.order)) markSignal(agent, message, access.address);
  if (newest) writeWord(access.memory(), bytes, value);
}

std::uint64_t Checker::update(Agent& agent, Access const& access, WordUpdate const& update, Site site) {
  auto const [order, scope] = std::pair(access.order, access.scope);
  if (order == Order::sequential) fence(agent, {.kind = AccessKind::fence, .order = order, .scope = scope}, site);
  auto const bytes = static_cast<unsigned>(access.bytes);
  auto* word = wordAt(access, false);
  auto const index = word == nullptr ? 0 : replaceable(agent, *word, access, update);
  auto const found = word == nullptr ? readWord(access.memory(), bytes) : word->messages[index].value;
  std::uint64_t value = 0;
  bool const writes = update.apply(found, bytes, value);
  auto done = access;
  if (!writes) done.kind = AccessKind::load;
  note(agent, done, site);
  addStep(agent, done, found, site);
  if (word == nullptr) word = wordAt(access, writes);
  bool const newest = word == nullptr || index + 1 == word->messages.size();
  if (word != nullptr) take(agent, *word, index, access);
  if (!writes) return found;
  if (word != nullptr) {
    // The chain of updates hands on what the releases before it carry.
    auto const before = word->messages[index];
    auto& message = append(agent, *word, index + 1, value, access, site);
    message.update = true;
    // A relaxed reduction adds data up; nobody need look at it as at a signal.
    if (update.kind != UpdateKind::combine || releases(order)) markSignal(agent, message, access.address);
    if (update.kind != UpdateKind::add && update.kind != UpdateKind::combine) word->exchanged = true;
    auto const apart = distance(agent, before.device, before.block);
    if (before.scope >= apart && scope >= apart) {
      for (auto const& old : before.releases) {
        auto const same = std::ranges::find_if(message.releases, [&](Release const& r) {
          return !r.own && r.scope == old.scope && r.device == old.device &&
                 (r.scope > Scope::block || r.block == old.block);
        });
        if (same == message.releases.end()) {
          message.releases.push_back(old);
          message.releases.back().own = false;
        } else {
          same->clock.join(old.clock);
          if (same->block != old.block) same->block = 0;
        }
      }
    }
  }
  if (newest) writeWord(access.memory(), bytes, value);
  return found;
}

void Checker::fence(Agent& agent, Access const& fence, Site site) {
  addStep(agent, fence, 0, site);
  auto const scope = fence.scope;
  for (unsigned i = 0; i <= scopeIndex(scope); ++i) {
    agent.known.join(agent.pending[i]);
    agent.pending[i] = {};
  }
  if (fence.order == Order::sequential) {
    // All sequential fences that reach each other happen one after the other.
    agent.known.join(sequentialBlock_[agent.block]);
    if (scope >= Scope::device) agent.known.join(sequentialDevice_[agent.device]);
    if (scope >= Scope::system) agent.known.join(sequentialSystem_);
  }
  auto const clock = release(agent);
  for (unsigned i = 0; i < scopeIndex(scope); ++i) agent.released[i] = {};
  agent.released[scopeIndex(scope)] = clock;
  if (fence.order == Order::sequential) {
    sequentialBlock_[agent.block].join(clock);
    if (scope >= Scope::device) sequentialDevice_[agent.device].join(clock);
    if (scope >= Scope::system) sequentialSystem_.join(clock);
  }
}

void Checker::storeLine(std::span<LinePart> lanes) {
  auto const stamp = nextStamp_++;
  for (auto& lane : lanes) {
    for (unsigned half = 0; half < 2; ++half) {
      auto const access = lineAccess(lane.address + half, 8, AccessKind::store);
      note(*lane.agent, access, lane.site);
      if (auto* const word = wordAt(access, true)) {
        append(*lane.agent, *word, word->messages.size(), lane.halves[half], access, lane.site).stamp = stamp;
      }
      writeWord(access.memory(), 8, lane.halves[half]);
    }
    addStep(*lane.agent, lineAccess(lane.address, 16, AccessKind::store), lane.halves[1], lane.site);
  }
}

void Checker::loadLine(std::span<LinePart> lanes) {
  // The line is seen as it was after some store operation; which, is one choice for all its words.
  std::uint64_t oldest = 0;
  std::vector<std::uint64_t> later;
  auto& first = *lanes.front().agent;
  auto const line = reinterpret_cast<std::uintptr_t>(lanes.front().address);
  for (auto& lane : lanes) {
    for (unsigned half = 0; half < 2; ++half) {
      auto const access = lineAccess(lane.address + half, 8, AccessKind::load);
      note(*lane.agent, access, lane.site);
      auto const* const word = wordAt(access, false);
      if (word == nullptr) continue;
      oldest = std::max(oldest, word->messages[word->oldestFor(*lane.agent)].stamp);
      for (auto const& message : word->messages) later.push_back(message.stamp);
    }
  }
  std::ranges::sort(later, std::greater<>());
  later.erase(std::unique(later.begin(), later.end()), later.end());
  std::erase_if(later, [oldest](std::uint64_t stamp) { return stamp <= oldest; });
  std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
  if (!later.empty() && !seesNewest(first, line)) {
    auto const behind =
        machine_.scheduler().choose(ChoiceKind::staleRead, static_cast<std::uint32_t>(later.size() + 1));
    if (behind > 0) limit = later[behind - 1] - 1;
  }
  for (auto& lane : lanes) {
    for (unsigned half = 0; half < 2; ++half) {
      auto const access = lineAccess(lane.address + half, 8, AccessKind::load);
      auto* const word = wordAt(access, false);
      if (word == nullptr) {
        lane.halves[half] = readWord(access.memory(), 8);
        continue;
      }
      std::size_t index = word->messages.size() - 1;
      while (index > 0 && word->messages[index].stamp > limit) --index;
      auto const& looks = lane.agent->looks;
      auto const before = looks.size();
      lane.halves[half] = take(*lane.agent, *word, index, access);
      bool const flag = access.address % lineBytes == lineBytes - 8;
      if (looks.size() > before) lane.agent->looks.back().data = !flag;
    }
    addStep(*lane.agent, lineAccess(lane.address, 16, AccessKind::load), lane.halves[1], lane.site);
  }
  if (limit == std::numeric_limits<std::uint64_t>::max()) {
    if (first.staleAddress == line) first.staleInRow = 0;
  } else {
    first.staleInRow = first.staleAddress == line ? first.staleInRow + 1 : 1;
    first.staleAddress = line;
  }
}

void Checker::tornLine(Agent& agent, void const* address, Site site) {
  auto const access = lineAccess(address, 16, AccessKind::store);
  if (machine_.heap().ownerOf(access.address) == agent.device) return;
  auto* const finding = addFinding(FindingKind::tornLine, codeOf(site));
  if (finding == nullptr) return;
  finding->accesses.push_back(describe(agent, access, site));
  finding->summary = fmt::format("rank {} block {} thread {} sends 128-byte lines over a link that may tear them",
                                 agent.device, agent.blockIndex, agent.thread);
  finding->explanation =
      "The flag of a line tells that the line is whole only where the link delivers it whole, as NVLink does and PCIe "
      "does not: use LL8 or LL16 on this link.";
}

void Checker::noteHost(Agent& agent, Access const& access, std::span<void* const> calls) {
  auto const before = agent.calls;
  agent.calls = 0;
  for (auto i = calls.size(); i-- > 1;) enterCall(agent, calls[i]);
  plain(agent, access.address, access.bytes, access.writes(), siteHere(agent, calls[0]));
  agent.calls = before;
  if (!access.writes()) hostLooks(access);
}

void Checker::hostLooks(Access const& access) {
  if (signals_ == 0) return;
  shadow_.forEach(access.address, access.bytes, [this](std::uintptr_t, Cell& cell) {
    if (cell.words == 0) return;
    for (auto& word : words_.at(cell.words)) word.messages.back().signal = false;
  });
}

void Checker::checkSignals(std::uintptr_t address, Cell& cell) {
  if (!options_.lostSignals || cell.words == 0 || signals_ == 0) return;
  for (auto const& word : words_.at(cell.words)) {
    auto const& message = word.messages.back();
    if (!message.signal || word.exchanged) continue;
    bool const seen =
        std::ranges::any_of(message.readers, [&](auto const& reader) { return reader.thread != message.thread; });
    if (seen) continue;
    auto* const finding = addFinding(FindingKind::lostSignal, codeOf(message.site));
    if (finding == nullptr) continue;
    auto const access = Slot::of(message.thread, message.epoch, 0, trait::ofOrdered(true, message.scope), message.site);
    finding->accesses.push_back(describe(access, word.bytes, address + word.offset));
    auto const& by = finding->accesses.front();
    finding->summary = fmt::format("a signal of rank {} block {} thread {} (value {}) was never looked at", by.rank,
                                   by.block, by.thread, message.value);
    finding->explanation =
        "The run ended, or the memory was given back, and no thread had read the last signal: a wait is missing, or a "
        "signal too many was sent.";
  }
}

}  // namespace mscclpp::sim
