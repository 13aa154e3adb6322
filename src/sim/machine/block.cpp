// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <exception>

#include <fmt/format.h>

#include "sim/machine/bulk_copies.hpp"
#include "sim/machine/kernel.hpp"
#include "sim/machine/machine.hpp"
#include "sim/machine/observer.hpp"
#include "sim/time/time_line.hpp"

namespace mscclpp::sim {
namespace {

char const* nameOf(WarpOperation operation) {
  switch (operation) {
    case WarpOperation::sync:
      return "syncWarp";
    case WarpOperation::shuffle:
      return "shuffle";
    case WarpOperation::ballot:
      return "ballot";
    case WarpOperation::storeLines:
      return "storeLines";
    case WarpOperation::loadLines:
      return "loadLines";
  }
  return "?";
}

// Both halves of a line access are host atomics in ascending (stores) or descending (loads) order, so that a process
// that shares the memory and sees a line's last word sees the rest of it too.
std::atomic_ref<std::uint64_t> half(Words4* address, int which) {
  return std::atomic_ref<std::uint64_t>(reinterpret_cast<std::uint64_t*>(address)[which]);
}

void storeLine(Words4* address, Words4 const& words) {
  std::uint64_t halves[2];
  std::memcpy(halves, &words, sizeof halves);
  half(address, 0).store(halves[0], std::memory_order_release);
  half(address, 1).store(halves[1], std::memory_order_release);
}

void loadLine(Words4* address, Words4& words) {
  std::uint64_t halves[2];
  halves[1] = half(address, 1).load(std::memory_order_acquire);
  halves[0] = half(address, 0).load(std::memory_order_acquire);
  std::memcpy(&words, halves, sizeof halves);
}

}  // namespace

Block::Block(Kernel& kernel, unsigned index)
    : kernel_(kernel),
      index_(index),
      live_(kernel.shape().threads),
      threads_(std::make_unique<GpuThread[]>(kernel.shape().threads)),
      warps_((kernel.shape().threads + lanesPerWarp - 1) / lanesPerWarp) {
  auto& scheduler = kernel.machine().scheduler();
  for (unsigned i = 0; i < live_; ++i) {
    auto& thread = threads_[i];
    thread.block = this;
    thread.ofHost = kernel.isHost();
    thread.context = {kernel.stream().device(),
                      index,
                      i,
                      live_,
                      kernel.shape().blocks,
                      i / lanesPerWarp,
                      i % lanesPerWarp,
                      &kernel.stream(),
                      kernel.shape().clusterBlocks};
    auto const firstLane = i / lanesPerWarp * lanesPerWarp;
    thread.warp = {&threads_[firstLane], std::min(lanesPerWarp, live_ - firstLane)};
    warps_[i / lanesPerWarp].live |= 1u << (i % lanesPerWarp);
    thread.time.now = kernel.startTime();
    thread.lane = kernel.lane();
    scheduler.add(thread);
  }
  if (auto* const observer = kernel.machine().observer(); observer != nullptr && kernel.isHost()) {
    threads_[0].agent = &observer->addHostThread(kernel.stream().device(), kernel.name(), kernel.startClock());
  } else if (observer != nullptr) {
    agents_ = observer->beginBlock(kernel.stream().device(), kernel.name(), index, live_, kernel.startClock());
    for (unsigned i = 0; i < live_; ++i) threads_[i].agent = agents_[i];
  }
  if (auto const bytes = kernel.shape().dynamicShared; bytes != 0) {
    dynamicShared_ = static_cast<std::byte*>(shared(&dynamicShared_, bytes, 128));
  }
}

Block::~Block() {
  if (sharedBase_ != nullptr) kernel_.machine().giveBackShared(sharedBase_);
}

void* Block::shared(void const* key, std::size_t bytes, std::size_t alignment) {
  for (auto const& [known, storage] : sharedSlots_) {
    if (known == key) return storage;
  }
  auto const begin = (sharedUsed_ + alignment - 1) / alignment * alignment;
  if (begin + bytes > BlockMemory::bytes) {
    kernel_.fail(fmt::format("block {} uses {} bytes of shared memory, a block has {}", index_, begin + bytes,
                             BlockMemory::bytes));
    throw Unwind{};
  }
  if (sharedBase_ == nullptr) sharedBase_ = kernel_.machine().takeShared();
  sharedUsed_ = begin + bytes;
  void* storage = sharedBase_ + begin;
  Unwatched const unwatched;
  std::memset(storage, 0xA5, bytes);  // whoever relies on zeros shall not find them
  // Which thread asked first does not matter: the fill is not its own.
  if (auto* const observer = kernel_.machine().observer()) {
    observer->forget(reinterpret_cast<std::uintptr_t>(storage), bytes);
  }
  sharedSlots_.emplace_back(key, storage);
  return storage;
}

void* Block::sharedOfCluster(void* own, unsigned rank) {
  auto const together = kernel_.shape().clusterBlocks;
  auto const target = index_ / together * together + rank;
  auto const slot = std::ranges::find(sharedSlots_, own, &std::pair<void const*, void*>::second);
  auto const other = kernel_.blocks().find(target);
  if (rank < together && slot != sharedSlots_.end() && other != kernel_.blocks().end()) {
    for (auto const& [key, storage] : other->second->sharedSlots_) {
      if (key == slot->first) return storage;
    }
  }
  kernel_.fail(fmt::format("block {} reads shared memory of block {} of its cluster, which {}", index_, rank,
                           rank >= together ? fmt::format("has {} blocks", together)
                           : other == kernel_.blocks().end()
                               ? "has ended: let the cluster meet before its blocks do"
                               : "has not asked for it (blockShared): let the cluster meet first"));
  throw Unwind{};
}

bool Block::holdsShared(void const* begin, std::size_t bytes) const {
  auto const* const first = static_cast<std::byte const*>(begin);
  return sharedBase_ != nullptr && first >= sharedBase_ && first < sharedBase_ + sharedUsed_ &&
         bytes <= static_cast<std::size_t>(sharedBase_ + sharedUsed_ - first);
}

Block* Block::ofClusterHolding(void const* begin, std::size_t bytes) const {
  auto const together = kernel_.shape().clusterBlocks;
  auto const first = index_ / together * together;
  for (unsigned rank = 0; rank < together; ++rank) {
    auto const found = kernel_.blocks().find(first + rank);
    if (found != kernel_.blocks().end() && found->second->holdsShared(begin, bytes)) return found->second.get();
  }
  return nullptr;
}

BulkCopies& Block::bulkCopies() {
  if (bulkCopies_ == nullptr) bulkCopies_ = std::make_unique<BulkCopies>(*this);
  return *bulkCopies_;
}

bool Block::finishLateCopies() { return bulkCopies_ != nullptr && bulkCopies_->finishLate(); }

void Block::allowNext() {
  if (std::exchange(allowed_, true)) return;
  kernel_.blockAllowed();
}

// ---- barriers
// --------------------------------------------------------------------------------------------------------

bool Block::complete(Barrier const& barrier) const {
  if (&barrier == &barriers_[0]) return barrier.waiting.size() == live_;
  // Named barriers count whole warps, as the hardware does. A warp has come when all its live lanes have; one of the
  // last phase's that has left the kernel altogether is not waited for.
  unsigned warps = 0;
  for (std::size_t w = 0; w < warps_.size(); ++w) {
    bool const member = barrier.arrived[w] != 0 || (warps_[w].live == 0 && (barrier.members >> w & 1) != 0);
    if (member && (warps_[w].live & ~barrier.arrived[w]) == 0) ++warps;
  }
  return warps * lanesPerWarp >= barrier.threads;
}

void Block::release(Barrier& barrier, GpuThread const* except) {
  auto& scheduler = kernel_.machine().scheduler();
  std::uint32_t members = 0;
  for (std::size_t w = 0; w < warps_.size(); ++w) {
    if (barrier.arrived[w] != 0) members |= 1u << w;
  }
  if (auto* const time = scheduler.time()) time->barrier(barrier.waiting, VirtualTime::Barrier::block);
  barrier.members = members;
  barrier.arrived.fill(0);
  barrier.threads = 0;
  for (GpuThread* thread : barrier.waiting) {
    thread->came = static_cast<unsigned>(barrier.waiting.size());
    if (thread != except) scheduler.makeReady(*thread);
  }
  tellBarrier(barrier.waiting, "barrier");
  barrier.waiting.clear();
}

void Block::tellBarrier(std::span<GpuThread* const> threads, char const* what) {
  auto* const observer = kernel_.machine().observer();
  if (observer == nullptr || threads.empty()) return;
  std::vector<Agent*> agents;
  agents.reserve(threads.size());
  for (auto const* thread : threads) agents.push_back(thread->agent);
  observer->barrier(agents, what);
}

unsigned Block::barrier(GpuThread& self) { return barrier(self, 0, 0); }

unsigned Block::barrier(GpuThread& self, unsigned id, unsigned threads) {
  if (self.cancelled) throw Unwind{};
  auto& barrier = barriers_[id];
  if (!barrier.waiting.empty() && barrier.threads != threads) {
    kernel_.fail(fmt::format("block {} thread {} joins barrier {} for {} threads, others wait at it for {}", index_,
                             self.context.thread, id, threads, barrier.threads));
    throw Unwind{};
  }
  barrier.threads = threads;
  barrier.arrived[self.context.warp] |= 1u << self.context.lane;
  barrier.waiting.push_back(&self);
  auto& scheduler = kernel_.machine().scheduler();
  if (complete(barrier)) {
    release(barrier, &self);
    scheduler.memoryStep(self, {.kind = AccessKind::update});  // the last to come need not be the first to go on
    return self.came;
  }
  self.parkedOn = id == 0 ? ParkReason::blockBarrier : ParkReason::namedBarrier;
  self.parkedNumber = id;
  scheduler.park(self);
  if (self.cancelled) throw Unwind{};
  return self.came;
}

void Block::accessLines(unsigned warp, Rendezvous& rendezvous, unsigned arrived, bool write) {
  auto& observer = *kernel_.machine().observer();
  std::map<std::uintptr_t, std::vector<unsigned>> lines;
  for (unsigned rest = arrived; rest != 0; rest &= rest - 1) {
    auto const lane = static_cast<unsigned>(std::countr_zero(rest));
    auto const& request = *rendezvous.requests[lane];
    if (request.predicate) lines[reinterpret_cast<std::uintptr_t>(request.address) / 128].push_back(lane);
  }
  for (auto const& [line, lanes] : lines) {
    std::vector<LinePart> parts;
    for (auto const lane : lanes) {
      auto& request = *rendezvous.requests[lane];
      auto* const agent = threads_[warp * lanesPerWarp + lane].agent;
      auto& part = parts.emplace_back(LinePart{
          agent, reinterpret_cast<std::uint64_t*>(request.address), {}, observer.siteOf(*agent, request.code)});
      std::memcpy(part.halves, &request.words, sizeof part.halves);
    }
    if (write) {
      observer.storeLine(parts);
      continue;
    }
    observer.loadLine(parts);
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      std::memcpy(&rendezvous.requests[lanes[i]]->words, parts[i].halves, sizeof parts[i].halves);
    }
  }
}

// ---- warps
// -----------------------------------------------------------------------------------------------------------

std::vector<GpuThread*> Block::lanesOf(unsigned warp, unsigned mask) {
  std::vector<GpuThread*> lanes;
  for (; mask != 0; mask &= mask - 1) {
    lanes.push_back(&threads_[warp * lanesPerWarp + static_cast<unsigned>(std::countr_zero(mask))]);
  }
  return lanes;
}

// Lines are accessed once all lanes have come.
void Block::passTime(VirtualTime& time, unsigned warp, Rendezvous const& rendezvous, unsigned arrived,
                     WarpOperation operation) {
  auto const lanes = lanesOf(warp, arrived);
  time.barrier(lanes, VirtualTime::Barrier::warp);
  bool const stores = operation == WarpOperation::storeLines;
  if (!stores && operation != WarpOperation::loadLines) return;
  for (auto* const lane : lanes) {
    auto const& request = *rendezvous.requests[lane->context.lane];
    if (!request.predicate) continue;
    Access const access{.address = reinterpret_cast<std::uintptr_t>(request.address),
                        .bytes = sizeof(Words4),
                        .kind = stores ? AccessKind::store : AccessKind::load};
    time.issue(*lane, access);
    time.access(*lane, access);
  }
}

std::string Block::finish(unsigned warp, Rendezvous& rendezvous, GpuThread const* except) {
  auto& scheduler = kernel_.machine().scheduler();
  unsigned const arrived = std::exchange(rendezvous.arrived, 0);
  auto& requests = rendezvous.requests;
  std::string problem;
  auto forEach = [&](auto&& act) {
    for (unsigned rest = arrived; rest != 0; rest &= rest - 1) {
      auto const lane = static_cast<unsigned>(std::countr_zero(rest));
      act(lane, *requests[lane]);
    }
  };
  auto const operation = requests[static_cast<unsigned>(std::countr_zero(arrived))]->operation;
  if (auto* const time = scheduler.time()) passTime(*time, warp, rendezvous, arrived, operation);
  switch (operation) {
    case WarpOperation::sync:
      tellBarrier(lanesOf(warp, arrived), "syncWarp");
      break;
    case WarpOperation::ballot: {
      unsigned votes = 0;
      forEach([&](unsigned lane, WarpRequest& r) { votes |= r.predicate ? 1u << lane : 0u; });
      forEach([&](unsigned, WarpRequest& r) { r.result = votes; });
      break;
    }
    case WarpOperation::shuffle:
      forEach([&](unsigned lane, WarpRequest& r) {
        if ((arrived >> r.lane & 1) == 0) {
          problem = fmt::format(
              "block {} warp {} lane {} asks lane {} for its value, which takes no part in the shuffle (mask {:#x}, "
              "lanes present {:#x})",
              index_, warp, lane, r.lane, rendezvous.mask, arrived);
        } else if (requests[r.lane]->bytes != r.bytes) {
          problem = fmt::format("block {} warp {}: lanes {} and {} shuffle values of {} and {} bytes", index_, warp,
                                lane, r.lane, r.bytes, requests[r.lane]->bytes);
        } else {
          std::memcpy(r.out, requests[r.lane]->in, r.bytes);
        }
      });
      break;
    case WarpOperation::storeLines:
      if (kernel_.machine().observer() != nullptr) {
        accessLines(warp, rendezvous, arrived, true);
        break;
      }
      forEach([&](unsigned, WarpRequest& r) {
        if (r.predicate) storeLine(r.address, r.words);
      });
      break;
    case WarpOperation::loadLines:
      if (kernel_.machine().observer() != nullptr) {
        accessLines(warp, rendezvous, arrived, false);
        break;
      }
      for (unsigned lane = lanesPerWarp; lane-- > 0;) {
        if ((arrived >> lane & 1) != 0 && requests[lane]->predicate)
          loadLine(requests[lane]->address, requests[lane]->words);
      }
      break;
  }
  // The lanes have announced their stores one by one; only now are they there.
  if (operation == WarpOperation::storeLines) scheduler.noteLines();
  forEach([&](unsigned lane, WarpRequest&) {
    auto& thread = threads_[warp * lanesPerWarp + lane];
    if (&thread != except) scheduler.makeReady(thread);
  });
  return problem;
}

void Block::rendezvous(GpuThread& self, WarpRequest& request, unsigned mask) {
  if (self.cancelled) throw Unwind{};
  unsigned const lane = self.context.lane;
  auto& warp = warps_[self.context.warp];
  auto refuse = [&](std::string const& why) {
    kernel_.fail(fmt::format("block {} warp {} lane {}: {} {}", index_, self.context.warp, lane,
                             nameOf(request.operation), why));
    throw Unwind{};
  };
  if ((mask >> lane & 1) == 0) refuse(fmt::format("with mask {:#x}, which does not name the calling lane", mask));
  auto rendezvous =
      std::ranges::find_if(warp.pending, [&](Rendezvous const& m) { return m.arrived != 0 && m.mask == mask; });
  if (rendezvous == warp.pending.end()) {
    rendezvous = std::ranges::find_if(warp.pending, [](Rendezvous const& m) { return m.arrived == 0; });
    if (rendezvous == warp.pending.end()) rendezvous = warp.pending.insert(rendezvous, Rendezvous{});
    rendezvous->mask = mask;
  } else {
    auto const first = static_cast<unsigned>(std::countr_zero(rendezvous->arrived));
    auto const other = rendezvous->requests[first]->operation;
    if (other != request.operation) {
      refuse(fmt::format("while lane {} of the same mask {:#x} is in {}", first, mask, nameOf(other)));
    }
  }
  rendezvous->arrived |= 1u << lane;
  rendezvous->requests[lane] = &request;
  auto& scheduler = kernel_.machine().scheduler();
  if ((mask & warp.live & ~rendezvous->arrived) == 0) {
    auto const problem = finish(self.context.warp, *rendezvous, &self);
    if (!problem.empty()) {
      kernel_.fail(problem);
      throw Unwind{};
    }
    scheduler.memoryStep(self, {.kind = AccessKind::update});
    return;
  }
  self.parkedOn = ParkReason::warp;
  self.parkedNumber = mask;
  scheduler.park(self);
  if (self.cancelled) throw Unwind{};
}

// ---- end
// -------------------------------------------------------------------------------------------------------------

void Block::threadEnded(GpuThread& thread) {
  kernel_.noteEnd(thread.time);
  if (isShown(thread)) showThread(thread, kernel_.name());
  if (bulkCopies_ != nullptr) bulkCopies_->threadEnded(thread);
  --live_;
  auto const w = thread.context.warp;
  auto& warp = warps_[w];
  warp.live &= ~(1u << thread.context.lane);
  if (live_ == 0) {
    if (auto* const observer = kernel_.machine().observer()) {
      kernel_.noteBlockEnd(kernel_.isHost() ? observer->release(*thread.agent) : observer->endBlock(agents_));
    }
    allowNext();
    kernel_.blockEnded(index_);
    return;
  }
  for (auto& rendezvous : warp.pending) {
    if (rendezvous.arrived == 0 || (rendezvous.mask & warp.live & ~rendezvous.arrived) != 0) continue;
    auto const problem = finish(w, rendezvous, nullptr);
    if (!problem.empty()) {
      kernel_.fail(problem);
      return;
    }
  }
  for (auto& barrier : barriers_) {
    if (!barrier.waiting.empty() && complete(barrier)) release(barrier, nullptr);
  }
  kernel_.threadLeft(index_);
}

void Block::cancel() {
  for (auto& barrier : barriers_) {
    barrier.waiting.clear();
    barrier.arrived.fill(0);
  }
  for (auto& warp : warps_) {
    for (auto& rendezvous : warp.pending) rendezvous.arrived = 0;
  }
  auto& scheduler = kernel_.machine().scheduler();
  for (unsigned i = 0; i < kernel_.shape().threads; ++i) {
    threads_[i].cancelled = true;
    if (threads_[i].state == TaskState::parked) scheduler.makeReady(threads_[i]);
  }
  scheduler.releaseCancelled();
  scheduler.noteProgress();
}

}  // namespace mscclpp::sim
