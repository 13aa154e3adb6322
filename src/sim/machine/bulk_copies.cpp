// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/machine/bulk_copies.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "sim/machine/machine.hpp"
#include "sim/machine/observer.hpp"
#include "sim/memory/word_memory.hpp"

namespace mscclpp::sim {
namespace {

constexpr std::size_t unit = 16;  // of addresses and counts
// The hardware counts arrivals and bytes of a barrier's phase in 20 bits.
constexpr unsigned maxArrivals = (1u << 20) - 1;
constexpr std::int64_t maxPhaseBytes = (1 << 20) - 1;

Site siteOf(GpuThread const& self, void const* code) {
  auto* const observer = self.block->kernel().machine().observer();
  return self.agent == nullptr ? 0 : observer->siteOf(*self.agent, code);
}

// An atomic access to a barrier of the block.
Access barrierAccess(std::uint64_t const* word, AccessKind kind) {
  return orderedAccess(word, sizeof *word, kind, Order::relaxed, Scope::block);
}

}  // namespace

// ---- copies
// ----------------------------------------------------------------------------------------------------------

void BulkCopies::step(GpuThread& self, void const* address, std::size_t bytes, AccessKind kind, Order order) {
  block_.kernel().machine().scheduler().memoryStep(
      self,
      orderedAccess(address, bytes, kind, order, block_.holdsShared(address, bytes) ? Scope::block : Scope::system));
  if (self.cancelled) throw Unwind{};
}

void BulkCopies::checkRange(GpuThread& self, char const* operation, void const* global, void const* shared,
                            std::size_t bytes) {
  if (bytes == 0 || bytes % unit != 0) {
    failKernel(self, fmt::format("{} of {} bytes; the count must be a multiple of {}, from {} up to the block's shared "
                                 "memory",
                                 operation, bytes, unit, unit));
  }
  for (auto const* const address : {global, shared}) {
    if (reinterpret_cast<std::uintptr_t>(address) % unit == 0) continue;
    failKernel(self, fmt::format("{} of {} bytes: the address {} in {} memory is not aligned to {}", operation, bytes,
                                 address, address == global ? "global" : "block-shared", unit));
  }
  if (!block_.holdsShared(shared, bytes)) {
    failKernel(self, fmt::format("{}: {} bytes at {} do not lie in the block's shared memory, of which {} bytes are in "
                                 "use (blockShared, dynamicShared)",
                                 operation, bytes, shared, block_.sharedUsed()));
  }
  auto& machine = block_.kernel().machine();
  auto const where = reinterpret_cast<std::uintptr_t>(global);
  if (!machine.devices().reaches(self.context.device, where, bytes)) {
    failKernel(self, fmt::format("{}: {}", operation, machine.heap().whyNot(self.context.device, where, bytes)));
  }
}

BulkCopies::Copy BulkCopies::begin(GpuThread& self, char const* operation, void* dst, void const* src,
                                   std::size_t bytes, bool load, void const* code) {
  Copy copy;
  copy.dst = static_cast<std::byte*>(dst);
  copy.src = static_cast<std::byte const*>(src);
  copy.bytes = bytes;
  copy.load = load;
  copy.site = siteOf(self, code);
  if (self.agent != nullptr) {
    copy.issuer = self.agent;
    copy.agent =
        &block_.kernel().machine().observer()->beginBulkCopy(*self.agent, {operation, dst, bytes, load}, copy.site);
  }
  return copy;
}

// Host code may have given the memory back meanwhile.
bool BulkCopies::globalIsThere(Copy const& copy) {
  auto& kernel = block_.kernel();
  auto& machine = kernel.machine();
  auto const where = reinterpret_cast<std::uintptr_t>(copy.load ? copy.src : copy.dst);
  auto const device = kernel.stream().device();
  if (machine.devices().reaches(device, where, copy.bytes)) return true;
  kernel.fail(fmt::format("block {}: a bulk {} is on its way: {}", block_.index(), copy.load ? "load" : "store",
                          machine.heap().whyNot(device, where, copy.bytes)));
  return false;
}

void BulkCopies::read(Copy& copy) {
  if (std::exchange(copy.hasRead, true) || (copy.load && !globalIsThere(copy))) return;
  Unwatched const unwatched;
  if (copy.agent != nullptr) {
    auto& observer = *block_.kernel().machine().observer();
    observer.note(*copy.agent, unorderedAccess(copy.src, copy.bytes, false, AccessWay::bulk), copy.site);
    copy.readClock = observer.release(*copy.agent);
  }
  copy.held.assign(copy.src, copy.src + copy.bytes);
}

void BulkCopies::write(Copy& copy) {
  if (std::exchange(copy.hasWritten, true) || copy.held.empty() || (!copy.load && !globalIsThere(copy))) return;
  Unwatched const unwatched;
  if (copy.agent != nullptr) {
    auto& observer = *block_.kernel().machine().observer();
    if (copy.reduction.combine == nullptr) {
      observer.note(*copy.agent, unorderedAccess(copy.dst, copy.bytes, true, AccessWay::bulk), copy.site);
    } else {
      reduce(copy);
    }
    copy.doneClock = observer.release(*copy.agent);
    observer.endBulkCopy(*copy.issuer, *copy.agent);
  } else if (copy.reduction.combine != nullptr) {
    reduce(copy);
  }
  if (copy.reduction.combine == nullptr) std::memcpy(copy.dst, copy.held.data(), copy.bytes);
  copy.held = {};
}

// Each unit is an update of its own, which only its device is sure to see whole (PTX: .relaxed.gpu).
void BulkCopies::reduce(Copy const& copy) {
  auto const [unit, combine] = copy.reduction;
  for (std::size_t i = 0; i < copy.bytes; i += unit) {
    WordUpdate update{.kind = UpdateKind::combine, .operand = 0, .combine = combine};
    std::memcpy(&update.operand, copy.held.data() + i, unit);
    if (copy.agent == nullptr) {
      updateWord(copy.dst + i, unit, update);
      continue;
    }
    auto access = orderedAccess(copy.dst + i, unit, AccessKind::update, Order::relaxed, Scope::device);
    access.way = AccessWay::bulk;
    block_.kernel().machine().observer()->update(*copy.agent, access, update, copy.site);
  }
}

bool BulkCopies::finish(Copy& copy) {
  if (copy.hasWritten) return false;
  read(copy);
  write(copy);
  return true;
}

void BulkCopies::store(GpuThread& self, void* dst, void const* src, std::size_t bytes, Reduction reduction,
                       void const* code) {
  enum : std::uint32_t { atOnce, writtenLate, allLate, options };
  checkRange(self, reduction.name(), dst, src, bytes);
  auto& machine = block_.kernel().machine();
  auto const when = machine.deterministic() ? machine.scheduler().choose(ChoiceKind::lateCopy, options) : atOnce;
  if (machine.scheduler().time() != nullptr) {
    machine.scheduler().memoryStep(self, {.kind = AccessKind::store});  // its bytes take a time of their own
  } else if (when == atOnce) {
    step(self, dst, bytes, reduction.kind(), Order::relaxed);
  }
  auto& copy =
      issuers_[self.context.thread].open.emplace_back(begin(self, reduction.name(), dst, src, bytes, false, code));
  copy.reduction = reduction;
  passTime(self, copy);
  if (when != allLate) read(copy);
  if (when == atOnce) write(copy);
}

void BulkCopies::passTime(GpuThread& self, Copy& copy) {
  auto* const time = block_.kernel().machine().scheduler().time();
  if (time == nullptr) return;
  auto const* const global = copy.load ? copy.src : copy.dst;
  std::tie(copy.readTime, copy.doneTime) = time->bulk(self, global, copy.bytes, !copy.load);
}

void BulkCopies::commit(GpuThread& self) {
  auto& issuer = issuers_[self.context.thread];
  issuer.groups.push_back(std::exchange(issuer.open, {}));
}

void BulkCopies::wait(GpuThread& self, std::size_t newest, bool onlySources) {
  auto& groups = issuers_[self.context.thread].groups;
  auto const count = groups.size() - std::min(newest, groups.size());
  for (std::size_t i = 0; i < count; ++i) {
    for (auto& copy : groups[i]) {
      read(copy);
      copy.sourceAwaited = true;
      self.time.now = std::max(self.time.now, onlySources ? copy.readTime : copy.doneTime);
      if (!onlySources && !copy.hasWritten) {
        step(self, copy.dst, copy.bytes, copy.reduction.kind(), Order::relaxed);
        write(copy);
      }
      if (self.agent != nullptr) {
        block_.kernel().machine().observer()->acquire(*self.agent, onlySources ? copy.readClock : copy.doneClock);
      }
    }
  }
  if (!onlySources) groups.erase(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(count));
}

bool BulkCopies::finishLate() {
  bool any = false;
  for (auto& [thread, issuer] : issuers_) {
    for (auto& copy : issuer.open) any |= finish(copy);
    for (auto& group : issuer.groups) {
      for (auto& copy : group) any |= finish(copy);
    }
  }
  for (auto& [word, barrier] : barriers_) {
    for (auto& load : barrier.loads) {
      if (load.delivered) continue;
      deliver(word, barrier, load);
      any = true;
    }
  }
  return any;
}

void BulkCopies::threadEnded(GpuThread& thread) {
  auto& kernel = block_.kernel();
  auto& machine = kernel.machine();
  auto* const observer = thread.agent == nullptr || kernel.cancelled() ? nullptr : machine.observer();
  bool any = false;
  if (auto const it = issuers_.find(thread.context.thread); it != issuers_.end()) {
    auto issuer = std::move(it->second);
    issuers_.erase(it);
    issuer.groups.push_back(std::move(issuer.open));
    for (auto& group : issuer.groups) {
      for (auto& copy : group) {
        if (kernel.cancelled()) break;
        any |= finish(copy);
        if (observer == nullptr) continue;
        if (!copy.sourceAwaited) {
          observer->bytesInFlight(*thread.agent, {copy.reduction.name(), copy.dst, copy.bytes}, copy.site);
        }
        observer->acquire(*thread.agent, copy.doneClock);  // the end of the block makes it known
      }
    }
  }
  if (block_.live() == 1 && observer != nullptr) {
    for (auto& [word, barrier] : barriers_) {
      for (auto& load : barrier.loads) {
        any |= finish(load.copy);
        observer->bytesInFlight(*load.copy.issuer, {"bulkLoad", load.copy.dst, load.copy.bytes, true}, load.copy.site);
        observer->acquire(*thread.agent, load.copy.doneClock);
      }
    }
  }
  if (any) machine.scheduler().noteProgress();
}

// ---- barriers
// --------------------------------------------------------------------------------------------------------

BulkCopies::Barrier& BulkCopies::barrierAt(GpuThread& self, std::uint64_t* word, char const* operation) {
  auto const it = barriers_.find(word);
  if (it == barriers_.end()) {
    failKernel(self, fmt::format("{} at {}, where there is no BulkBarrier: one thread has to init() it before, in the "
                                 "block's shared memory",
                                 operation, static_cast<void*>(word)));
  }
  return it->second;
}

void BulkCopies::settle(std::uint64_t* word, Barrier& barrier) {
  if (barrier.pending == 0 && barrier.bytes == 0) {
    ++barrier.phase;
    barrier.pending = barrier.count;
    barrier.ended = barrier.arrived;
  }
  // A value of its own for each state, so that those who wait for a change can tell one.
  writeWord(word, sizeof *word,
            barrier.phase << 42 | std::uint64_t{barrier.pending} << 21 |
                static_cast<std::uint64_t>(barrier.bytes + maxPhaseBytes));
}

void BulkCopies::deliver(std::uint64_t* word, Barrier& barrier, Load& load) {
  finish(load.copy);
  load.phase = barrier.phase;
  load.delivered = true;
  barrier.arrived.join(load.copy.doneClock);
  barrier.bytes -= static_cast<std::int64_t>(load.copy.bytes);
  if (barrier.bytes < -maxPhaseBytes) {
    block_.kernel().fail(
        fmt::format("block {}: a BulkBarrier got {} bytes more than arriveExpect() announced; the "
                    "limit is {}",
                    block_.index(), -barrier.bytes, maxPhaseBytes));
  }
  settle(word, barrier);
}

void BulkCopies::load(GpuThread& self, void* dst, void const* src, std::size_t bytes, std::uint64_t* word,
                      void const* code) {
  checkRange(self, "bulkLoad", src, dst, bytes);
  auto& machine = block_.kernel().machine();
  bool const late = machine.deterministic() && machine.scheduler().choose(ChoiceKind::lateCopy, 2) != 0;
  if (!late) step(self, word, sizeof *word, AccessKind::update, Order::release);
  auto& barrier = barrierAt(self, word, "bulkLoad");
  auto& load = barrier.loads.emplace_back();
  load.copy = begin(self, "bulkLoad", dst, src, bytes, true, code);
  if (self.agent != nullptr) {
    machine.observer()->note(*load.copy.agent, barrierAccess(word, AccessKind::update), load.copy.site);
  }
  passTime(self, load.copy);
  if (!late) deliver(word, barrier, load);
  if (auto* const time = machine.scheduler().time()) time->written(word, sizeof *word, load.copy.doneTime);
}

// At once, as the threads of its target's block may be waiting already. Others may come first.
void BulkCopies::put(GpuThread& self, void* dst, void const* value, std::size_t bytes, std::uint64_t* word,
                     void const* code) {
  if (reinterpret_cast<std::uintptr_t>(dst) % bytes != 0) {
    failKernel(self, fmt::format("putCounted of {} bytes: the address {} is not aligned to them", bytes, dst));
  }
  step(self, word, sizeof *word, AccessKind::store, Order::relaxed);
  auto* const target = block_.ofClusterHolding(word, sizeof *word);
  if (target == nullptr || !target->holdsShared(dst, bytes)) {
    failKernel(self, fmt::format("putCounted: {} bytes at {} and the barrier at {} do not lie in the shared memory of "
                                 "one block of this cluster that runs",
                                 bytes, dst, static_cast<void*>(word)));
  }
  target->bulkCopies().receive(self, dst, value, bytes, word, code);
}

void BulkCopies::receive(GpuThread& self, void* dst, void const* value, std::size_t bytes, std::uint64_t* word,
                         void const* code) {
  auto& barrier = barrierAt(self, word, "putCounted");
  auto& load = barrier.loads.emplace_back();
  load.copy = begin(self, "putCounted", dst, value, bytes, true, code);
  load.copy.held.assign(load.copy.src, load.copy.src + bytes);
  load.copy.hasRead = true;
  deliver(word, barrier, load);
  if (auto* const time = block_.kernel().machine().scheduler().time()) {
    time->written(word, sizeof *word, self.time.now + VirtualTime::picoseconds(time->model().cluster));
  }
}

void BulkCopies::initBarrier(GpuThread& self, std::uint64_t* word, unsigned count, void const* code) {
  auto const where = reinterpret_cast<std::uintptr_t>(word);
  if (where % sizeof *word != 0 || !block_.holdsShared(word, sizeof *word)) {
    failKernel(self, fmt::format("BulkBarrier::init at {}, which is not {} aligned bytes of the block's shared memory",
                                 static_cast<void*>(word), sizeof *word));
  }
  if (count == 0 || count > maxArrivals) {
    failKernel(self, fmt::format("BulkBarrier::init for {} arrivals; the range is 1 to {}", count, maxArrivals));
  }
  step(self, word, sizeof *word, AccessKind::store, Order::relaxed);
  auto const [it, fresh] = barriers_.try_emplace(word);
  if (!fresh) {
    failKernel(self, fmt::format("BulkBarrier::init at {}, where there is one already: invalidate() it first",
                                 static_cast<void*>(word)));
  }
  it->second.count = it->second.pending = count;
  if (self.agent != nullptr) {
    block_.kernel().machine().observer()->note(*self.agent, unorderedAccess(word, sizeof *word, true),
                                               siteOf(self, code));
  }
  settle(word, it->second);
}

void BulkCopies::invalidateBarrier(GpuThread& self, std::uint64_t* word, void const* code) {
  step(self, word, sizeof *word, AccessKind::store, Order::relaxed);
  auto& barrier = barrierAt(self, word, "BulkBarrier::invalidate");
  if (!barrier.loads.empty()) {
    failKernel(self, fmt::format("BulkBarrier::invalidate with {} bulk loads for whose bytes nobody has waited",
                                 barrier.loads.size()));
  }
  if (self.agent != nullptr) {
    block_.kernel().machine().observer()->note(*self.agent, unorderedAccess(word, sizeof *word, true),
                                               siteOf(self, code));
  }
  barriers_.erase(word);
  writeWord(word, sizeof *word, 0);
}

void BulkCopies::arrive(GpuThread& self, std::uint64_t* word, unsigned expectedBytes, void const* code) {
  step(self, word, sizeof *word, AccessKind::update, Order::release);
  auto& barrier = barrierAt(self, word, "BulkBarrier::arrive");
  if (barrier.pending == 0) {
    failKernel(self, fmt::format("BulkBarrier::arrive: the phase has had its {} arrivals and still waits for {} bytes",
                                 barrier.count, barrier.bytes));
  }
  if (barrier.bytes + std::int64_t{expectedBytes} > maxPhaseBytes) {
    failKernel(self, fmt::format("BulkBarrier::arriveExpect of {} bytes with {} on their way; the limit is {} together",
                                 expectedBytes, barrier.bytes, maxPhaseBytes));
  }
  if (self.agent != nullptr) {
    auto& observer = *block_.kernel().machine().observer();
    observer.note(*self.agent, barrierAccess(word, AccessKind::update), siteOf(self, code));
    barrier.arrived.join(observer.release(*self.agent));
  }
  --barrier.pending;
  barrier.bytes += expectedBytes;
  settle(word, barrier);
}

bool BulkCopies::test(GpuThread& self, std::uint64_t* word, unsigned parity, void const* code) {
  if (parity > 1) failKernel(self, fmt::format("BulkBarrier: {} is no parity of a phase; it is 0 or 1", parity));
  auto const undelivered = [](Load const& load) { return !load.delivered; };
  if (std::ranges::any_of(barrierAt(self, word, "BulkBarrier::wait").loads, undelivered)) {
    step(self, word, sizeof *word, AccessKind::update, Order::release);
    auto& barrier = barrierAt(self, word, "BulkBarrier::wait");
    for (auto& load : barrier.loads) {
      if (!load.delivered) deliver(word, barrier, load);
    }
  }
  step(self, word, sizeof *word, AccessKind::load, Order::acquire);
  auto& barrier = barrierAt(self, word, "BulkBarrier::wait");
  if (self.agent != nullptr) {
    block_.kernel().machine().observer()->note(*self.agent, barrierAccess(word, AccessKind::load), siteOf(self, code));
  }
  if (barrier.phase % 2 == parity) return false;
  if (self.agent != nullptr) block_.kernel().machine().observer()->acquire(*self.agent, barrier.ended);
  std::erase_if(barrier.loads, [&](Load const& load) { return load.delivered && load.phase < barrier.phase; });
  return true;
}

}  // namespace mscclpp::sim
