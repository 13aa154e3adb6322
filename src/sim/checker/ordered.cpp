// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What ordered accesses see and hand on.
#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "sim/checker/checker.hpp"
#include "sim/checker/word_memory.hpp"
#include "sim/machine/machine.hpp"

namespace mscclpp::sim {
namespace {

constexpr unsigned staleReadsInRow = 2;  // then a thread sees the newest value, so that polls end

}  // namespace

bool updatedWord(UpdateKind kind, std::uint64_t found, std::uint64_t operand, std::uint64_t expected, unsigned bytes,
                 std::uint64_t& value) {
  switch (kind) {
    case UpdateKind::add:
      value = found + operand;
      break;
    case UpdateKind::compareExchange:
      if (found != expected) return false;
      [[fallthrough]];
    case UpdateKind::exchange:
      value = operand;
      break;
    case UpdateKind::bitAnd:
      value = found & operand;
      break;
    case UpdateKind::bitOr:
      value = found | operand;
      break;
    case UpdateKind::bitXor:
      value = found ^ operand;
      break;
    case UpdateKind::bitNand:
      value = ~(found & operand);
      break;
  }
  if (bytes < 8) value &= (std::uint64_t{1} << bytes * 8) - 1;
  return true;
}

Word* Checker::wordAt(void const* address, unsigned bytes, bool create) {
  auto const where = reinterpret_cast<std::uintptr_t>(address);
  auto* const cell = shadow_.find(where);
  if (cell == nullptr) return nullptr;
  auto const offset = static_cast<unsigned>(where % Shadow::granule);
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
  word.messages.back().value = readWord(address, bytes);
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

std::uint64_t Checker::take(Agent& agent, Word& word, std::size_t index, void const* address, Order order,
                            Scope scope) {
  auto const where = reinterpret_cast<std::uintptr_t>(address);
  auto& message = word.messages[index];
  if (index + 1 < word.messages.size()) {
    agent.sawStale = true;
    agent.staleInRow = agent.staleAddress == where ? agent.staleInRow + 1 : 1;
    agent.staleAddress = where;
  } else if (agent.staleAddress == where) {
    agent.staleInRow = 0;
  }
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
  if (agent.inWait && message.epoch != 0) agent.looks.push_back({where, message.stamp});
  return message.value;
}

// The value that an update finds: any that the thread may be shown, unless another update has replaced it already.
std::size_t Checker::replaceable(Agent& agent, Word const& word, std::uintptr_t where,
                                 std::function<bool(std::uint64_t found)> const& writes) {
  auto const newest = word.messages.size() - 1;
  if (!options_.weakMemory || (agent.staleAddress == where && agent.staleInRow >= staleReadsInRow)) return newest;
  auto const oldest = word.oldestFor(agent);
  std::array<std::size_t, Words::depth + 1> options{newest};
  std::uint32_t count = 1;
  for (auto index = newest; index-- > oldest;) {
    bool const replaced = word.messages[index + 1].update;
    if (!replaced || !writes(word.messages[index].value)) options[count++] = index;
  }
  return count == 1 ? newest : options[machine_.scheduler().choose(ChoiceKind::staleRead, count)];
}

std::uint64_t Checker::load(Agent& agent, void const* address, unsigned bytes, Order order, Scope scope,
                            std::uint64_t site, unsigned way) {
  auto const where = reinterpret_cast<std::uintptr_t>(address);
  record(agent, where, bytes, trait::ofOrdered(false, scope) | way, site);
  std::uint64_t value = 0;
  if (auto* const word = wordAt(address, bytes, false)) {
    auto const newest = word->messages.size() - 1;
    std::size_t index = newest;
    if (options_.weakMemory && !(agent.staleAddress == where && agent.staleInRow >= staleReadsInRow)) {
      auto const options = newest - word->oldestFor(agent) + 1;
      if (options > 1) {
        index -= machine_.scheduler().choose(ChoiceKind::staleRead, static_cast<std::uint32_t>(options));
      }
    }
    value = take(agent, *word, index, address, order, scope);
  } else {
    value = readWord(address, bytes);
  }
  note(agent, {where, bytes, AccessKind::load, order, scope}, value, site);
  return value;
}

Message& Checker::append(Agent& agent, Word& word, std::size_t position, std::uint64_t value, Order order, Scope scope,
                         std::uint64_t site) {
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

void Checker::store(Agent& agent, void* address, unsigned bytes, std::uint64_t value, Order order, Scope scope,
                    std::uint64_t site, unsigned way) {
  auto const where = reinterpret_cast<std::uintptr_t>(address);
  record(agent, where, bytes, trait::ofOrdered(true, scope) | way, site);
  note(agent, {where, bytes, AccessKind::store, order, scope}, value, site);
  auto* const word = wordAt(address, bytes, true);
  if (word == nullptr) return writeWord(address, bytes, value);
  auto position = word->messages.size();
  if (options_.weakMemory) {
    auto const options = position - word->oldestFor(agent);
    if (options > 1) {
      position -= machine_.scheduler().choose(ChoiceKind::lateStore, static_cast<std::uint32_t>(options));
      while (position < word->messages.size() && word->messages[position].update) ++position;
    }
  }
  bool const newest = position == word->messages.size();
  auto& message = append(agent, *word, position, value, order, scope, site);
  if (releases(order)) markSignal(agent, message, where);
  if (newest) writeWord(address, bytes, value);
}

std::uint64_t Checker::update(Agent& agent, void* address, unsigned bytes, UpdateKind kind, std::uint64_t operand,
                              std::uint64_t expected, Order order, Scope scope, std::uint64_t site) {
  if (order == Order::sequential) fence(agent, order, scope, site);
  auto const found = update(
      agent, address, bytes,
      [&](std::uint64_t value, std::uint64_t& next) {
        return updatedWord(kind, value, operand, expected, bytes, next);
      },
      order, scope, site);
  std::uint64_t unused = 0;
  if (kind == UpdateKind::add || !updatedWord(kind, found, operand, expected, bytes, unused)) return found;
  if (auto* const word = wordAt(address, bytes, false)) word->exchanged = true;
  return found;
}

std::uint64_t Checker::update(Agent& agent, void* address, unsigned bytes, WordChange const& change, Order order,
                              Scope scope, std::uint64_t site, unsigned way) {
  auto const where = reinterpret_cast<std::uintptr_t>(address);
  auto* word = wordAt(address, bytes, false);
  auto const index = word == nullptr ? 0 : replaceable(agent, *word, where, [&](std::uint64_t found) {
    std::uint64_t unused = 0;
    return change(found, unused);
  });
  auto const found = word == nullptr ? readWord(address, bytes) : word->messages[index].value;
  std::uint64_t value = 0;
  bool const writes = change(found, value);
  record(agent, where, bytes, trait::ofOrdered(writes, scope) | way, site);
  note(agent, {where, bytes, writes ? AccessKind::update : AccessKind::load, order, scope}, found, site);
  if (word == nullptr) word = wordAt(address, bytes, writes);
  bool const newest = word == nullptr || index + 1 == word->messages.size();
  if (word != nullptr) take(agent, *word, index, address, order, scope);
  if (!writes) return found;
  if (word != nullptr) {
    // The chain of updates hands on what the releases before it carry.
    auto const before = word->messages[index];
    auto& message = append(agent, *word, index + 1, value, order, scope, site);
    message.update = true;
    // A relaxed reduction through the switch adds data up; nobody need look at it as at a signal.
    if (way == 0 || releases(order)) markSignal(agent, message, where);
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
  if (newest) writeWord(address, bytes, value);
  return found;
}

void Checker::fence(Agent& agent, Order order, Scope scope, std::uint64_t site) {
  note(agent, {0, 0, AccessKind::fence, order, scope}, 0, site);
  for (unsigned i = 0; i <= scopeIndex(scope); ++i) {
    agent.known.join(agent.pending[i]);
    agent.pending[i] = {};
  }
  if (order == Order::sequential) {
    // All sequential fences that reach each other happen one after the other.
    agent.known.join(sequentialBlock_[agent.block]);
    if (scope >= Scope::device) agent.known.join(sequentialDevice_[agent.device]);
    if (scope >= Scope::system) agent.known.join(sequentialSystem_);
  }
  auto const clock = release(agent);
  for (unsigned i = 0; i < scopeIndex(scope); ++i) agent.released[i] = {};
  agent.released[scopeIndex(scope)] = clock;
  if (order == Order::sequential) {
    sequentialBlock_[agent.block].join(clock);
    if (scope >= Scope::device) sequentialDevice_[agent.device].join(clock);
    if (scope >= Scope::system) sequentialSystem_.join(clock);
  }
}

void Checker::storeLine(std::span<LanePart> lanes) {
  auto const stamp = nextStamp_++;
  for (auto& lane : lanes) {
    for (unsigned half = 0; half < 2; ++half) {
      auto* const address = lane.address + half;
      auto const where = reinterpret_cast<std::uintptr_t>(address);
      record(*lane.agent, where, 8, trait::ofOrdered(true, Scope::system), lane.site);
      if (auto* const word = wordAt(address, 8, true)) {
        append(*lane.agent, *word, word->messages.size(), lane.halves[half], Order::relaxed, Scope::system, lane.site)
            .stamp = stamp;
      }
      writeWord(address, 8, lane.halves[half]);
    }
    note(*lane.agent,
         {reinterpret_cast<std::uintptr_t>(lane.address), 16, AccessKind::store, Order::relaxed, Scope::system},
         lane.halves[1], lane.site);
  }
}

void Checker::loadLine(std::span<LanePart> lanes) {
  // The line is seen as it was after some store operation; which, is one choice for all its words.
  std::uint64_t oldest = 0;
  std::vector<std::uint64_t> later;
  auto& first = *lanes.front().agent;
  auto const line = reinterpret_cast<std::uintptr_t>(lanes.front().address);
  for (auto& lane : lanes) {
    for (unsigned half = 0; half < 2; ++half) {
      record(*lane.agent, reinterpret_cast<std::uintptr_t>(lane.address + half), 8,
             trait::ofOrdered(false, Scope::system), lane.site);
      auto const* const word = wordAt(lane.address + half, 8, false);
      if (word == nullptr) continue;
      oldest = std::max(oldest, word->messages[word->oldestFor(*lane.agent)].stamp);
      for (auto const& message : word->messages) later.push_back(message.stamp);
    }
  }
  std::ranges::sort(later, std::greater<>());
  later.erase(std::unique(later.begin(), later.end()), later.end());
  std::erase_if(later, [oldest](std::uint64_t stamp) { return stamp <= oldest; });
  std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
  if (options_.weakMemory && !later.empty() && !(first.staleAddress == line && first.staleInRow >= staleReadsInRow)) {
    auto const behind =
        machine_.scheduler().choose(ChoiceKind::staleRead, static_cast<std::uint32_t>(later.size() + 1));
    if (behind > 0) limit = later[behind - 1] - 1;
  }
  for (auto& lane : lanes) {
    for (unsigned half = 0; half < 2; ++half) {
      auto* const address = lane.address + half;
      auto* const word = wordAt(address, 8, false);
      if (word == nullptr) {
        lane.halves[half] = readWord(address, 8);
        continue;
      }
      std::size_t index = word->messages.size() - 1;
      while (index > 0 && word->messages[index].stamp > limit) --index;
      lane.halves[half] = take(*lane.agent, *word, index, address, Order::relaxed, Scope::system);
    }
    note(*lane.agent,
         {reinterpret_cast<std::uintptr_t>(lane.address), 16, AccessKind::load, Order::relaxed, Scope::system},
         lane.halves[1], lane.site);
  }
  if (limit == std::numeric_limits<std::uint64_t>::max()) {
    if (first.staleAddress == line) first.staleInRow = 0;
  } else {
    first.staleInRow = first.staleAddress == line ? first.staleInRow + 1 : 1;
    first.staleAddress = line;
  }
}

void Checker::tornLine(Agent& agent, void const* address, std::uint64_t site) {
  auto const where = reinterpret_cast<std::uintptr_t>(address);
  if (machine_.heap().ownerOf(where) == agent.device) return;
  auto* const finding = addFinding(FindingKind::tornLine, codeOf(site));
  if (finding == nullptr) return;
  finding->accesses.push_back(describe(agent.id, agent.epoch, trait::ofOrdered(true, Scope::system), 16, site, where));
  finding->summary = fmt::format("rank {} block {} thread {} sends 128-byte lines over a link that may tear them",
                                 agent.device, agent.blockIndex, agent.thread);
  finding->explanation =
      "The flag of a line tells that the line is whole only where the link delivers it whole, as NVLink does and PCIe "
      "does not: use LL8 or LL16 on this link.";
}

void Checker::hostLooks(std::uintptr_t address, std::size_t bytes) {
  if (signals_ == 0) return;
  shadow_.forEach(address, bytes, [this](std::uintptr_t, Cell& cell) {
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
    finding->accesses.push_back(describe(message.thread, message.epoch, trait::ofOrdered(true, message.scope),
                                         word.bytes, message.site, address + word.offset));
    auto const& by = finding->accesses.front();
    finding->summary = fmt::format("a signal of rank {} block {} thread {} (value {}) was never looked at", by.rank,
                                   by.block, by.thread, message.value);
    finding->explanation =
        "The run ended, or the memory was given back, and no thread had read the last signal: a wait is missing, or a "
        "signal too many was sent.";
  }
}

}  // namespace mscclpp::sim
