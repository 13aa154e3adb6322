// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which accesses conflict and are not ordered, and why.
#include <algorithm>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "sim/checker/checker.hpp"
#include "sim/machine/machine.hpp"

namespace mscclpp::sim {
namespace {

// Whether whatever would race with `earlier` and is ordered after both also races with `later`.
bool supersedes(unsigned later, unsigned earlier) {
  if ((later & trait::write) == 0 && ((earlier & trait::write) != 0 || ((earlier ^ later) & trait::multicast) != 0)) {
    return false;
  }
  if ((later & trait::strong) == 0) return true;
  return (earlier & trait::strong) != 0 && trait::scopeOf(earlier) >= trait::scopeOf(later);
}

}  // namespace

unsigned Checker::traitsOf(Access const& access) {
  switch (access.way) {
    case AccessWay::plain:
      return access.writes() ? trait::write : 0u;
    case AccessWay::bulk:
      return trait::bulk | (access.kind == AccessKind::update ? trait::ofOrdered(true, access.scope)
                            : access.writes()                 ? trait::write
                                                              : 0u);
    case AccessWay::multicast:
      return trait::ofOrdered(access.writes(), access.scope) | trait::multicast;
    case AccessWay::ordered:
      break;
  }
  return trait::ofOrdered(access.writes(), access.scope);
}

void Checker::record(Agent& agent, std::uintptr_t address, std::size_t bytes, unsigned traits, Site site) {
  while (bytes > 0) {
    auto const offset = static_cast<unsigned>(address % Shadow::granule);
    auto const piece = std::min<std::size_t>(bytes, Shadow::granule - offset);
    auto* const cell = shadow_.find(address);
    if (cell == nullptr) {
      // Memory is followed or not by whole pages.
      auto const rest = Shadow::pageBytes - address % Shadow::pageBytes;
      if (rest >= bytes) return;
      address += rest;
      bytes -= rest;
      continue;
    }
    auto const mask = ((1u << piece) - 1) << offset;
    record(agent, *cell, address - offset, slotOf(agent, mask, traits, site));
    address += piece;
    bytes -= piece;
  }
}

bool Checker::seen(Agent const& agent, Cell const& cell, Slot const& slot) {
  if (cell.words == 0 || (slot.traits() & (trait::write | trait::strong)) != (trait::write | trait::strong)) {
    return false;
  }
  auto const offset = static_cast<unsigned>(std::countr_zero(slot.mask()));
  auto const bytes = static_cast<unsigned>(std::popcount(slot.mask()));
  auto const* const word = findWord(words_.at(cell.words), offset, bytes);
  if (word == nullptr) return false;
  for (auto index = word->messages.size(); index-- > 0;) {
    auto const& message = word->messages[index];
    if (message.thread == slot.thread() && message.epoch == slot.epoch()) return word->seenBy(index, agent);
  }
  return false;
}

bool Checker::examine(Agent& agent, Cell const& cell, Slot const& slot, std::uintptr_t granule, Slot mine) {
  auto const mask = mine.mask();
  auto const traits = mine.traits();
  if ((slot.mask() & mask) == 0) return false;
  if (slot.thread() != agent.id && !agent.known.knows(slot.thread(), slot.epoch())) {
    if (((slot.traits() | traits) & trait::write) == 0) return false;
    if (!seen(agent, cell, slot)) {
      reportConflict(agent, slot, granule, mine);
      return false;
    }
  }
  if ((traits & trait::bulk) != 0 && (slot.traits() & (trait::write | trait::bulk)) == trait::write &&
      !agent.fenced.knows(slot.thread(), slot.epoch())) {
    reportMissingFence(slot, granule, mine);
  }
  // Ordered accesses of one word see each other by whatever address.
  bool const bothStrong = (slot.traits() & traits & trait::strong) != 0;
  if (((slot.traits() ^ traits) & trait::multicast) != 0 && ((slot.traits() | traits) & trait::write) != 0 &&
      ((slot.traits() | traits) & trait::freed) == 0 && !bothStrong && !aliasFenced(agent, slot)) {
    reportMissingAliasFence(slot, granule, mine);
  }
  return (slot.mask() & ~mask) == 0 && supersedes(traits, slot.traits());
}

void Checker::record(Agent& agent, Cell& cell, std::uintptr_t granule, Slot mine) {
  ++accesses_;
  if (options_.races) remember(agent, cell, granule, mine);
  // A plain write that is ordered with all others leaves just its own value to be seen.
  if (cell.words != 0 && (mine.traits() & (trait::write | trait::strong)) == trait::write) [[unlikely]] {
    checkSignals(granule, cell);
    words_.free(std::exchange(cell.words, 0));
  }
}

void Checker::remember(Agent& agent, Cell& cell, std::uintptr_t granule, Slot mine) {
  bool placed = false;
  for (std::uint32_t i = 0; i < cell.count;) {
    auto& slot = cell.slots[i];
    if (slot.who == mine.who) return;
    if (examine(agent, cell, slot, granule, mine)) {
      if (placed) {
        slot = cell.slots[--cell.count];
        continue;
      }
      slot = mine;
      placed = true;
    }
    ++i;
  }
  if (cell.overflow != 0) [[unlikely]] {
    auto& more = shadow_.overflow(cell);
    for (std::size_t i = 0; i < more.size();) {
      if (more[i].holds(mine)) return;
      more[i].lanes &= ~needless(agent, cell, more[i], granule, mine);
      if (more[i].lanes == 0) {
        more[i] = more.back();
        more.pop_back();
      } else {
        ++i;
      }
    }
  }
  if (placed) return;
  if (cell.count < Cell::inlineSlots) {
    cell.slots[cell.count++] = mine;
    return;
  }
  auto& more = shadow_.overflow(cell);
  auto const crowd =
      std::ranges::find_if(more, [mine](Crowd const& c) { return c.slot.where == mine.where && c.fits(mine); });
  if (crowd != more.end()) {
    crowd->lanes |= Crowd::laneOf(mine);
    return;
  }
  if (more.size() >= Shadow::maxOverflow) {
    shadow_.noteForgotten(static_cast<std::uint64_t>(std::popcount(more.front().lanes)));
    more.erase(more.begin());
  }
  more.push_back({mine, Crowd::laneOf(mine)});
}

std::uint64_t Checker::needless(Agent& agent, Cell const& cell, Crowd const& crowd, std::uintptr_t granule, Slot mine) {
  auto const& slot = crowd.slot;
  if ((slot.mask() & mine.mask()) == 0) return 0;
  if (((slot.traits() | mine.traits()) & trait::write) == 0) {
    // Reads are no conflict, so only what makes the earlier ones needless is looked into.
    if ((slot.mask() & ~mine.mask()) != 0 || !supersedes(mine.traits(), slot.traits())) return 0;
    auto const own = agent.id / threadsPerChunk == crowd.chunk() ? Crowd::laneOf(mine) : 0;
    return crowd.lanes & (agent.known.known(crowd.chunk(), slot.epoch()) | own);
  }
  std::uint64_t result = 0;
  for (auto lanes = crowd.lanes; lanes != 0; lanes &= lanes - 1) {
    auto const lane = static_cast<unsigned>(std::countr_zero(lanes));
    if (examine(agent, cell, crowd.of(lane), granule, mine)) result |= std::uint64_t{1} << lane;
  }
  return result;
}

void Checker::reportConflict(Agent& agent, Slot const& earlier, std::uintptr_t granule, Slot mine) {
  auto const mask = mine.mask();
  auto const traits = mine.traits();
  auto const thread = earlier.thread();
  auto const epoch = earlier.epoch();
  auto const& info = chunks_[thread / threadsPerChunk];
  auto const* const occupant = occupantOf(thread, epoch);
  auto const block = occupant == nullptr || info.single ? 0u : occupant->block;
  auto const apart = distance(agent, info.single ? -1 : info.device, block);
  bool const bothStrong = (traits & earlier.traits() & trait::strong) != 0;
  if (bothStrong && earlier.mask() == mask && trait::scopeOf(traits) >= apart &&
      trait::scopeOf(earlier.traits()) >= apart)
    return;

  auto kind = FindingKind::race;
  std::string why;
  if (bothStrong && earlier.mask() == mask) {
    kind = FindingKind::narrowScope;
    why = ((traits | earlier.traits()) & trait::bulk) != 0
              ? "Bulk additions are atomic towards their own device only: let ranks add to one address one after the "
                "other, or by reduceAdd<Scope::system>()."
              : fmt::format(
                    "Both accesses name an order and a scope, but one scope is too narrow: the threads are "
                    "apart by {}. Give both Scope::{}.",
                    apart == Scope::system ? "a device" : "a block", nameOf(apart));
  } else if ((traits & trait::freed) != 0) {
    why =
        "The memory is given back while this access may still be on its way: wait for the kernel, on every rank that "
        "uses the memory, before it is freed.";
  } else if (bothStrong) {
    why =
        "Both accesses name an order, but they differ in size or place, so they are not atomic towards each other: "
        "access the whole word on both sides.";
  } else if (agent.outOfScope.knows(thread, epoch)) {
    kind = FindingKind::narrowScope;
    why = fmt::format(
        "The later thread has seen a value that was released after the earlier access, but a scope on the way is too "
        "narrow: the threads are apart by {}. Release, fence and load need Scope::{}.",
        apart == Scope::system ? "a device" : "a block", nameOf(apart));
  } else if (std::ranges::any_of(agent.pending, [&](Clock const& c) { return c.knows(thread, epoch); })) {
    why =
        "The later thread has seen a value that was released after the earlier access, but by a relaxed load, which "
        "orders nothing: make the load acquire, or put fence<Order::acquireRelease, ...>() behind it.";
  } else if (std::ranges::any_of(agent.unreleased, [&](auto const& seen) {
               return seen.first == thread && seen.second >= epoch && seen.second != 0;
             })) {
    why =
        "The later thread has seen a value that the earlier one stored, but that store was relaxed and orders "
        "nothing: make it release, or put fence<Order::acquireRelease, ...>() before it.";
  } else if ((earlier.traits() & trait::bulk) != 0) {
    why =
        "The earlier access is a bulk copy's, and whoever makes the later one does not know that it has ended: "
        "bulkWait() before what a store has written is used or signalled, bulkWaitRead() before its source is written "
        "again, a wait at the barrier before what a load has brought is used.";
  } else if ((traits & trait::bulk) != 0) {
    why =
        "The later access is a bulk copy's, and the thread that started it did not know of the earlier one: let a "
        "barrier, or a release and an acquire, lie between the access and the start of the copy.";
  } else if (apart == Scope::block) {
    why =
        "Both are threads of one block and no barrier lies between: sync() the group (syncBlock, or syncWarp within a "
        "warp).";
  } else if (info.single || agent.device < 0) {
    why =
        "One of them is host code or a copy, and nothing orders it with the other: synchronize the stream, or use the "
        "same stream, and let the ranks meet (bootstrap barrier) before memory of another rank is touched.";
  } else if (occupant != nullptr && apart == Scope::device && !sameLaunch(*occupant, agent)) {
    why =
        "They are of two kernels of one device that run at the same time, and nothing orders them. A team, a "
        "channel or a buffer is one kernel's at a time: launch both on one stream, order the streams by an event, or "
        "give each kernel its own.";
  } else {
    why =
        "Nothing orders them: no chain of releases and acquires, barriers or kernel boundaries leads from the first to "
        "the second.";
  }
  if (auto* const finding = addConflict(kind, earlier, granule, mine)) {
    finding->summary += " are not ordered";
    finding->explanation = std::move(why);
  }
}

void Checker::reportMissingFence(Slot const& earlier, std::uintptr_t granule, Slot mine) {
  auto* const finding = addConflict(FindingKind::missingProxyFence, earlier, granule, mine);
  if (finding == nullptr) return;
  finding->summary += " have no proxy fence between them";
  finding->explanation =
      "The write comes first, but a bulk copy goes another way to memory and may not see it: call bulkFence() after "
      "the "
      "write, by the thread that has written and before the barrier or signal that orders the copy behind it, or by "
      "the "
      "thread that starts the copy, before it does.";
}

void Checker::reportMissingAliasFence(Slot const& earlier, std::uintptr_t granule, Slot mine) {
  auto* const finding = addConflict(FindingKind::missingProxyFence, earlier, granule, mine);
  if (finding == nullptr) return;
  finding->summary += " have no proxy fence between them";
  finding->explanation =
      "One is by a multicast address and the other by the memory's own, so that they may take different ways and miss "
      "each other, although they are ordered: call multimemFence() after the first, before the barrier or signal that "
      "orders the second behind it, or before the second by its own thread.";
}

Finding* Checker::addConflict(FindingKind kind, Slot const& earlier, std::uintptr_t granule, Slot mine) {
  // The same two places in either order are one fault.
  auto const first = codeOf(earlier.where);
  auto const second = codeOf(mine.where);
  auto* const finding = addFinding(kind, mix(std::min(first, second), std::max(first, second)));
  if (finding == nullptr) return nullptr;
  auto const overlap = granule + static_cast<unsigned>(std::countr_zero(earlier.mask() & mine.mask()));
  for (auto const& access : {earlier, mine}) {
    finding->accesses.push_back(describe(access, static_cast<std::size_t>(std::popcount(access.mask())), overlap));
  }
  auto const who = [](AccessRecord const& a) {
    return a.host ? fmt::format("{} (rank {})", a.kernel, a.rank)
                  : fmt::format("rank {} block {} thread {}", a.rank, a.block, a.thread);
  };
  finding->summary = fmt::format("{} by {} and {} by {}", finding->accesses[0].what, who(finding->accesses[0]),
                                 finding->accesses[1].what, who(finding->accesses[1]));
  return finding;
}

}  // namespace mscclpp::sim
