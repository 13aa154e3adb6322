// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/backend/ordered_access.hpp"

#include <atomic>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "mscclpp/sim/backend/ordered_access.hpp"
#include "sim/machine/kernel.hpp"
#include "sim/machine/machine.hpp"
#include "sim/machine/observer.hpp"
#include "sim/memory/word_memory.hpp"

namespace mscclpp::sim {
namespace {

[[noreturn]] void refuse(GpuThread& self, bool write, std::string const& why) {
  self.block->kernel().fail(fmt::format("block {} thread {}: {} of {}", self.context.block, self.context.thread,
                                        write ? "write" : "read", why));
  throw Unwind{};
}

// Threads of a block add in its shared memory; all else there is by plain accesses, or counted by a barrier.
bool isShared(GpuThread& self, Access const& access) {
  return access.kind == AccessKind::update && access.scope == Scope::block &&
         self.block->holdsShared(access.memory(), access.bytes);
}

void step(GpuThread& self, Access const& access) {
  auto& machine = self.block->kernel().machine();
  if (access.address % access.bytes != 0) {
    refuse(self, access.writes(),
           fmt::format("{} bytes at {:#x}, which is not aligned to {}", access.bytes, access.address, access.bytes));
  }
  if (!machine.devices().reaches(self.context.device, access.address, access.bytes) && !isShared(self, access)) {
    refuse(self, access.writes(), machine.heap().whyNot(self.context.device, access.address, access.bytes));
  }
  machine.scheduler().memoryStep(self, access);
}

void checkWords(GpuThread& self, void const* address, bool write) {
  auto const where = reinterpret_cast<std::uintptr_t>(address);
  if (where % sizeof(Words4) == 0) return;
  refuse(self, write, fmt::format("{} bytes at {:#x}, which is not aligned to them", sizeof(Words4), where));
}

Access halfOf(Words4 const* address, unsigned which, AccessKind kind) {
  return orderedAccess(reinterpret_cast<std::uint64_t const*>(address) + which, 8, kind, Order::relaxed, Scope::system);
}

// A lane's part in its warp's access.
Access lineAccess(Words4 const* address, AccessKind kind) {
  auto access = orderedAccess(address, sizeof *address, kind, Order::relaxed, Scope::system);
  access.line = true;
  return access;
}

void storeHalves(GpuThread& self, Words4* address, Words4 const& value, void const* code) {
  checkWords(self, address, true);
  unsigned const first = self.block->kernel().machine().scheduler().choose(ChoiceKind::half, 2);
  std::uint64_t halves[2];
  std::memcpy(halves, &value, sizeof halves);
  for (unsigned const which : {first, 1 - first}) {
    storeStep(self, halfOf(address, which, AccessKind::store), halves[which], code);
  }
}

Words4 loadHalves(GpuThread& self, Words4 const* address, void const* code) {
  checkWords(self, address, false);
  unsigned const first = self.block->kernel().machine().scheduler().choose(ChoiceKind::half, 2);
  std::uint64_t halves[2];
  for (unsigned const which : {first, 1 - first}) {
    halves[which] = loadStep(self, halfOf(address, which, AccessKind::load), code);
  }
  Words4 result;
  std::memcpy(&result, halves, sizeof result);
  return result;
}

}  // namespace

std::uint64_t loadStep(GpuThread& self, Access const& access, void const* code) {
  step(self, access);
  if (self.agent == nullptr) return readWord(access.memory(), static_cast<unsigned>(access.bytes));
  auto& observer = *self.block->kernel().machine().observer();
  return observer.load(*self.agent, access, observer.siteOf(*self.agent, code));
}

void storeStep(GpuThread& self, Access const& access, std::uint64_t value, void const* code) {
  step(self, access);
  if (self.agent == nullptr) return writeWord(access.memory(), static_cast<unsigned>(access.bytes), value);
  auto& observer = *self.block->kernel().machine().observer();
  observer.store(*self.agent, access, value, observer.siteOf(*self.agent, code));
}

std::uint64_t updateStep(GpuThread& self, Access const& access, WordUpdate const& update, void const* code) {
  step(self, access);
  if (self.agent == nullptr) return updateWord(access.memory(), static_cast<unsigned>(access.bytes), update);
  auto& observer = *self.block->kernel().machine().observer();
  return observer.update(*self.agent, access, update, observer.siteOf(*self.agent, code));
}

void fenceStep(GpuThread& self, Order order, Scope scope, void const* code) {
  auto& machine = self.block->kernel().machine();
  Access const fence{.kind = AccessKind::fence, .order = order, .scope = scope};
  machine.scheduler().memoryStep(self, fence);
  if (self.agent == nullptr) return;
  auto& observer = *machine.observer();
  observer.fence(*self.agent, fence, observer.siteOf(*self.agent, code));
}

std::uint64_t loadWord(void const* address, unsigned bytes, Order order, Scope scope) {
  return loadStep(currentGpuThread("a load"), orderedAccess(address, bytes, AccessKind::load, order, scope),
                  __builtin_return_address(0));
}

void storeWord(void* address, unsigned bytes, std::uint64_t value, Order order, Scope scope) {
  storeStep(currentGpuThread("a store"), orderedAccess(address, bytes, AccessKind::store, order, scope), value,
            __builtin_return_address(0));
}

std::uint64_t addWord(void* address, unsigned bytes, std::uint64_t operand, Order order, Scope scope) {
  return updateStep(currentGpuThread("fetchAdd"), orderedAccess(address, bytes, AccessKind::update, order, scope),
                    {UpdateKind::add, operand}, __builtin_return_address(0));
}

std::uint64_t exchangeWord(void* address, unsigned bytes, std::uint64_t value, Order order, Scope scope) {
  return updateStep(currentGpuThread("exchange"), orderedAccess(address, bytes, AccessKind::update, order, scope),
                    {UpdateKind::exchange, value}, __builtin_return_address(0));
}

std::uint64_t compareExchangeWord(void* address, unsigned bytes, std::uint64_t expected, std::uint64_t desired,
                                  Order order, Scope scope) {
  return updateStep(currentGpuThread("compareExchange"),
                    orderedAccess(address, bytes, AccessKind::update, order, scope),
                    {UpdateKind::compareExchange, desired, expected}, __builtin_return_address(0));
}

void fenceStep(Order order, Scope scope) {
  fenceStep(currentGpuThread("fence"), order, scope, __builtin_return_address(0));
  // A read-modify-write of a word that all fences share orders as a fence does, and ThreadSanitizer understands it.
  static std::atomic<unsigned> fences{0};
  fences.fetch_add(1);
}

void combineWords(void* address, void const* values, unsigned bytes, unsigned unit, Scope scope,
                  std::uint64_t (*combine)(std::uint64_t found, std::uint64_t operand)) {
  auto& self = currentGpuThread("reduceAdd of a vector");
  auto const where = reinterpret_cast<std::uintptr_t>(address);
  if (where % bytes != 0) {
    refuse(self, true, fmt::format("{} bytes at {:#x}, which is not aligned to {}", bytes, where, bytes));
  }
  for (unsigned i = 0; i < bytes; i += unit) {
    WordUpdate update{.kind = UpdateKind::combine, .operand = 0, .combine = combine};
    std::memcpy(&update.operand, static_cast<std::byte const*>(values) + i, unit);
    updateStep(self,
               orderedAccess(static_cast<std::byte*>(address) + i, unit, AccessKind::update, Order::relaxed, scope),
               update, __builtin_return_address(0));
  }
}

Words4 loadWords4(Words4 const* address) {
  return loadHalves(currentGpuThread("loadWords4"), address, __builtin_return_address(0));
}

void storeWords4(Words4* address, Words4 const& value) {
  storeHalves(currentGpuThread("storeWords4"), address, value, __builtin_return_address(0));
}

void storeLines(Words4* address, Words4 const& value, bool active) {
  auto& self = currentGpuThread("storeLines");
  auto& machine = self.block->kernel().machine();
  WarpRequest request;
  request.code = __builtin_return_address(0);
  if (!machine.linesArriveWhole()) {
    if (auto* const agent = self.agent; agent != nullptr && active) {
      auto& observer = *machine.observer();
      observer.tornLine(*agent, address, observer.siteOf(*agent, request.code));
    }
    self.block->rendezvous(self, request, 0xffffffffu);
    if (active) storeHalves(self, address, value, request.code);
    return;
  }
  if (active) {
    checkWords(self, address, true);
    step(self, lineAccess(address, AccessKind::store));
  }
  request.operation = WarpOperation::storeLines;
  request.predicate = active;
  request.address = address;
  request.words = value;
  self.block->rendezvous(self, request, 0xffffffffu);
}

Words4 loadLines(Words4 const* address, bool active) {
  auto& self = currentGpuThread("loadLines");
  WarpRequest request;
  request.code = __builtin_return_address(0);
  if (!self.block->kernel().machine().linesArriveWhole()) {
    self.block->rendezvous(self, request, 0xffffffffu);
    return active ? loadHalves(self, address, request.code) : Words4{};
  }
  if (active) {
    checkWords(self, address, false);
    step(self, lineAccess(address, AccessKind::load));
  }
  request.operation = WarpOperation::loadLines;
  request.predicate = active;
  request.address = const_cast<Words4*>(address);
  self.block->rendezvous(self, request, 0xffffffffu);
  return request.words;
}

}  // namespace mscclpp::sim
