// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who takes part in a run, and what orders them.
#include "sim/checker/checker.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "mscclpp/host/error.hpp"
#include "sim/machine/machine.hpp"

namespace mscclpp::sim {
namespace {

constexpr std::size_t maxThreads = std::size_t{1} << Slot::threadBits;

}  // namespace

Checker::Checker(Machine& machine)
    : machine_(machine), shadow_([this](std::uintptr_t page) {
        // What this calls may be instrumented where it shares templates with the user's code.
        auto* const agent = std::exchange(runningAgent, nullptr);
        bool const follows = machine_.followsMemory(page * Shadow::pageBytes, (page + 1) * Shadow::pageBytes);
        runningAgent = agent;
        return follows;
      }) {}

void Checker::begin(CheckerOptions const& options) {
  options_ = options;
  active_ = true;
  running = this;
  shadow_.clear();
  words_.clear();
  chunks_.clear();
  singles_.clear();
  blocks_.clear();
  names_.clear();
  endedChunks_.clear();
  singlesInChunk_ = 0;
  nextBlock_ = 1;
  nextStamp_ = 1;
  accesses_ = 0;
  signals_ = 0;
  sequentialSystem_ = {};
  sequentialDevice_.clear();
  sequentialBlock_.clear();
  forgetCopies();
  consumed_.clear();
  hostWords_.clear();
  steps_.clear();
  findings_.clear();
  findingKeys_.clear();
}

std::vector<Finding> Checker::end() {
  if (signals_ != 0) shadow_.forEach([this](std::uintptr_t address, Cell& cell) { checkSignals(address, cell); });
  active_ = false;
  running = nullptr;
  shadow_.clear();
  words_.clear();
  chunks_.clear();
  singles_.clear();
  blocks_.clear();
  forgetCopies();
  consumed_.clear();
  hostWords_.clear();
  sequentialSystem_ = {};
  sequentialDevice_.clear();
  sequentialBlock_.clear();
  return std::exchange(findings_, {});
}

Agent& Checker::addSingle(int rank, int device, std::string name) {
  if (singlesInChunk_ % threadsPerChunk == 0) {
    chunks_.emplace_back();
    chunks_.back().single = true;
    singleChunk_ = static_cast<std::uint32_t>(chunks_.size() - 1);
    singlesInChunk_ = 0;
  }
  auto& agent = singles_.emplace_back();
  agent.id = singleChunk_ * threadsPerChunk + singlesInChunk_++;
  agent.device = -1;
  agent.blockIndex = static_cast<unsigned>(rank);
  agent.thread = static_cast<unsigned>(device);
  Occupant occupant;
  occupant.since = agent.id;  // singles are found by their number
  occupant.blockIndex = static_cast<unsigned>(rank);
  occupant.name = static_cast<std::uint32_t>(names_.size());
  names_.push_back(std::move(name));
  chunks_[singleChunk_].occupants.push_back(occupant);
  return agent;
}

Agent& Checker::addHost(int rank) { return addSingle(rank, rank, fmt::format("host code of rank {}", rank)); }

Agent& Checker::addStream(int device) {
  return addSingle(device, device, fmt::format("copy in a stream of device {}", device));
}

Agent& Checker::addHostThread(int rank, std::string name, Clock const& start) {
  auto& agent = addSingle(rank, rank, fmt::format("{} of rank {}", name, rank));
  agent.known = start;
  return agent;
}

Agent& Checker::addProxyCopies(int rank) {
  auto& agent = addSingle(rank, rank, fmt::format("a copy that a proxy of rank {} has started", rank));
  agent.device = rank;
  return agent;
}

// Numbers of threads that have ended are used again only by threads that know of everything these have done; otherwise
// the old ones' accesses would pass for the new ones' own.
std::uint32_t Checker::takeChunk(int device, Clock const& start) {
  constexpr std::size_t tries = 8;
  auto& ended = endedChunks_[device];
  for (std::size_t i = 0; i < std::min(tries, ended.size()); ++i) {
    auto const number = ended[ended.size() - 1 - i];
    auto const& last = chunks_[number].last;
    bool known = true;
    for (unsigned k = 0; known && k < threadsPerChunk; ++k) {
      known = last[k] == 0 || start.knows(number * threadsPerChunk + k, last[k]);
    }
    if (!known) continue;
    ended.erase(ended.end() - 1 - static_cast<std::ptrdiff_t>(i));
    return number;
  }
  return addChunk(device);
}

std::uint32_t Checker::addChunk(int device) {
  if ((chunks_.size() + 1) * threadsPerChunk > maxThreads) {
    throw Error(
        ErrorCode::invalidUsage,
        fmt::format("a checked run of the simulated machine follows at most {} threads; run fewer ranks, blocks "
                    "or threads, or set ExploreOptions::findRaces and weakMemory to false",
                    maxThreads));
  }
  chunks_.emplace_back();
  chunks_.back().device = device;
  return static_cast<std::uint32_t>(chunks_.size() - 1);
}

std::vector<Agent*> Checker::beginBlock(int device, std::string const& kernel, unsigned block, unsigned threads,
                                        Clock const& start) {
  passProxies(start);
  auto const number = nextBlock_++;
  auto& agents = blocks_[number];
  agents.resize(threads);
  if (names_.empty() || names_.back() != kernel) names_.push_back(kernel);
  for (unsigned first = 0; first < threads; first += threadsPerChunk) {
    auto const chunk = takeChunk(device, start);
    auto& info = chunks_[chunk];
    info.occupants.push_back({info.next, number, block, first, static_cast<std::uint32_t>(names_.size() - 1)});
    for (unsigned k = 0; k < threadsPerChunk && first + k < threads; ++k) {
      auto& agent = agents[first + k];
      agent.id = chunk * threadsPerChunk + k;
      agent.epoch = info.next;
      agent.device = device;
      agent.block = number;
      agent.blockIndex = block;
      agent.thread = first + k;
      agent.known = start;
    }
  }
  std::vector<Agent*> result;
  result.reserve(threads);
  for (auto& agent : agents) result.push_back(&agent);
  return result;
}

Clock Checker::endBlock(std::span<Agent* const> threads) {
  barrier(threads, nullptr);
  for (auto const* const thread : threads) {
    auto const& agent = *thread;
    auto& info = chunks_[agent.id / threadsPerChunk];
    info.last[agent.id % threadsPerChunk] = agent.epoch - 1;
    info.next = std::max(info.next, agent.epoch);
    if (agent.thread % threadsPerChunk == 0) endedChunks_[agent.device].push_back(agent.id / threadsPerChunk);
  }
  auto end = threads.front()->known;
  aliasFenced_.join(end);  // what a kernel has done is done by whatever address
  blocks_.erase(threads.front()->block);
  return end;
}

Checker::Occupant const* Checker::occupantOf(ThreadId thread, Epoch epoch) const {
  auto const& info = chunks_[thread / threadsPerChunk];
  Occupant const* found = nullptr;
  for (auto const& occupant : info.occupants) {
    if (occupant.only >= 0 && static_cast<unsigned>(occupant.only) != thread % threadsPerChunk) continue;
    if (info.single ? occupant.since == thread : occupant.since <= epoch) found = &occupant;
  }
  return found;
}

bool Checker::sameLaunch(Occupant const& a, Agent const& b) const {
  auto const* const other = occupantOf(b.id, b.epoch);
  if (other == nullptr) return true;
  return names_[a.name] == names_[other->name] && (a.blockIndex != other->blockIndex || a.block == other->block);
}

Clock Checker::release(Agent& agent) {
  Clock clock = agent.known;
  Clock::Editor(clock).set(agent.id, agent.epoch++);
  return clock;
}

void Checker::spin(Agent& agent) {
  agent.readsInRow = 0;
  if (auto* const task = currentTask()) machine_.scheduler().spin(*task, readsOfSpin);
}

void Checker::barrier(std::span<Agent* const> agents, char const* what) {
  if (agents.size() < 2 && what != nullptr) return;
  Clock joined = agents.front()->known;
  Clock previous = joined;
  for (auto* agent : agents) {
    if (agent->known.same(previous)) continue;
    previous = agent->known;
    joined.join(previous);
  }
  {
    Clock::Editor editor(joined);
    for (auto* agent : agents) editor.set(agent->id, agent->epoch++);
  }
  for (auto* agent : agents) agent->known = joined;
  if (what != nullptr) addStep(*agents.front(), what, static_cast<unsigned>(agents.size()));
}

// Ranks of one process may meet in ordinary memory as well.
void Checker::hostSynchronize(Agent& agent, void const* address, bool acquires, bool releases) {
  auto& clock = hostWords_[address];
  if (acquires) agent.known.join(clock);
  if (releases) clock.join(release(agent));
}

void Checker::beginWait(Agent& agent) {
  agent.inWait = true;
  agent.looks.clear();
}

// Packets that a wait could take for each other: both have its flag, which is the upper half of a word in each format,
// and the waiting thread knew of nothing that was stored after the first. Null where there is none.
Message const* Checker::twinOf(WaitLook const& look, std::uint64_t flag) {
  auto const* const word = look.data ? nullptr : wordAt(look.cell, 8, false);
  if (word == nullptr) return nullptr;
  auto const begin = std::ranges::find(word->messages, look.oldest, &Message::stamp);
  auto const twin = std::find_if(begin, word->messages.end(), [&](Message const& message) {
    return message.epoch != 0 && message.stamp != look.stamp && message.value >> 32 == flag;
  });
  return twin == word->messages.end() ? nullptr : &*twin;
}

// A packet that has ended a wait may not end another one that comes after it: then its flag was not a new one, and what
// was read is the data of an earlier round.
void Checker::endWait(Agent& agent, layout::WaitKind kind, std::uint64_t expected, Site site) {
  agent.inWait = false;
  if (kind != layout::WaitKind::packet) return;
  constexpr auto advice =
      "The flag was not new, so old data passes for new: give each use of a slot its own flag (an epoch that "
      "advances), or clear the slot and order that before the next use.";
  auto const report = [&](std::uint64_t cell, Consumption const& first, Consumption const& second, char const* how) {
    auto* const finding = addFinding(FindingKind::repeatedEpoch, mix(codeOf(first.site), codeOf(second.site)));
    if (finding == nullptr) return;
    auto const traits = trait::ofOrdered(false, Scope::system);
    for (auto const& by : {first, second}) {
      finding->accesses.push_back(describe(Slot::of(by.thread, by.epoch, 0, traits, by.site), 8, cell));
    }
    finding->summary = fmt::format("a wait of rank {} block {} thread {} for a packet with flag {} {}", agent.device,
                                   agent.blockIndex, agent.thread, expected, how);
    finding->explanation = advice;
  };
  for (auto const& look : agent.looks) {
    Consumption const now{agent.id, agent.epoch, site};
    if (auto const* const twin = twinOf(look, expected)) {
      report(look.cell, {twin->thread, twin->epoch, twin->site}, now,
             "could end with either of two that its slot held");
    }
    // A store operation has its own stamp, shared by the words of one line.
    auto const packet = look.stamp * 16 + look.cell / Shadow::granule % 16;
    auto const [it, fresh] = consumed_.try_emplace(packet, now);
    if (fresh) continue;
    auto const earlier = std::exchange(it->second, now);
    if (earlier.thread != agent.id && !agent.known.knows(earlier.thread, earlier.epoch)) continue;
    report(look.cell, earlier, now, "ended with a packet that had ended an earlier wait");
  }
}

void Checker::freeing(Agent* agent, std::uintptr_t address, std::size_t bytes) {
  shadow_.forEach(address, bytes, [&](std::uintptr_t at, Cell& cell) {
    checkSignals(at, cell);
    if (agent != nullptr && options_.races && (cell.count != 0 || cell.overflow != 0)) {
      record(*agent, cell, at, slotOf(*agent, 0xff, trait::write | trait::freed, 0));
    }
  });
  forget(address, bytes);
}

void Checker::forget(std::uintptr_t address, std::size_t bytes) {
  shadow_.forEach(address, bytes, [&](std::uintptr_t, Cell& cell) {
    if (cell.words != 0) words_.free(std::exchange(cell.words, 0));
  });
  shadow_.forget(address, bytes);
}

}  // namespace mscclpp::sim
