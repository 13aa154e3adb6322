// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/sim/backend/ordered_access.hpp"

#include <atomic>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "mscclpp/sim/backend/thread_context.hpp"
#include "sim/checker/checker.hpp"
#include "sim/checker/word_memory.hpp"
#include "sim/machine/kernel.hpp"
#include "sim/machine/machine.hpp"

namespace mscclpp::sim {
namespace {

[[noreturn]] void refuse(GpuThread& self, bool write, std::string const& why) {
  self.block->kernel().fail(fmt::format("block {} thread {}: {} of {}", self.context.block, self.context.thread,
                                        write ? "write" : "read", why));
  throw Unwind{};
}

void step(GpuThread& self, void const* address, unsigned bytes, AccessKind kind, Order order, Scope scope) {
  auto& machine = self.block->kernel().machine();
  auto const where = reinterpret_cast<std::uintptr_t>(address);
  bool const write = kind != AccessKind::load;
  if (where % bytes != 0) {
    refuse(self, write, fmt::format("{} bytes at {:#x}, which is not aligned to {}", bytes, where, bytes));
  }
  if (!machine.devices().reaches(self.context.device, where, bytes)) {
    refuse(self, write, machine.heap().whyNot(self.context.device, where, bytes));
  }
  machine.scheduler().memoryStep(self, {where, bytes, kind, order, scope, bytes == sizeof(Words4)});
}

std::uint64_t load(GpuThread& self, void const* address, unsigned bytes, Order order, Scope scope, void const* code) {
  step(self, address, bytes, AccessKind::load, order, scope);
  if (auto* const agent = self.agent) {
    return self.block->kernel().machine().checker()->load(*agent, address, bytes, order, scope,
                                                          Checker::siteOf(*agent, code));
  }
  return readWord(address, bytes);
}

void store(GpuThread& self, void* address, unsigned bytes, std::uint64_t value, Order order, Scope scope,
           void const* code) {
  step(self, address, bytes, AccessKind::store, order, scope);
  if (auto* const agent = self.agent) {
    self.block->kernel().machine().checker()->store(*agent, address, bytes, value, order, scope,
                                                    Checker::siteOf(*agent, code));
    return;
  }
  writeWord(address, bytes, value);
}

std::uint64_t update(GpuThread& self, void* address, unsigned bytes, UpdateKind kind, std::uint64_t operand,
                     std::uint64_t expected, Order order, Scope scope, void const* code) {
  step(self, address, bytes, AccessKind::update, order, scope);
  if (auto* const agent = self.agent) {
    return self.block->kernel().machine().checker()->update(*agent, address, bytes, kind, operand, expected, order,
                                                            scope, Checker::siteOf(*agent, code));
  }
  return replaceWord(address, bytes, [&](std::uint64_t found, std::uint64_t& value) {
    return updatedWord(kind, found, operand, expected, bytes, value);
  });
}

void fence(GpuThread& self, Order order, Scope scope, void const* code) {
  auto& machine = self.block->kernel().machine();
  machine.scheduler().memoryStep(self, {.kind = AccessKind::fence, .order = order, .scope = scope});
  if (auto* const agent = self.agent) machine.checker()->fence(*agent, order, scope, Checker::siteOf(*agent, code));
}

// The thread that is running, if the checker follows what lies at `address`.
GpuThread* checkedThread(void const* address) {
  if (runningAgent == nullptr || !insideKernel()) return nullptr;
  auto& self = currentGpuThread("an access");
  return self.block->kernel().machine().checker()->follows(address) ? &self : nullptr;
}

// Rank code of a checked run, at memory of its own.
void hostSynchronize(void const* address, bool acquire, bool release) {
  if (runningAgent == nullptr || insideKernel()) return;
  Machine::instance().checker()->hostSynchronize(*runningAgent, address, acquire, release);
}

void checkWords(GpuThread& self, void const* address, bool write) {
  auto const where = reinterpret_cast<std::uintptr_t>(address);
  if (where % sizeof(Words4) == 0) return;
  refuse(self, write, fmt::format("{} bytes at {:#x}, which is not aligned to them", sizeof(Words4), where));
}

void storeHalves(GpuThread& self, Words4* address, Words4 const& value, void const* code) {
  checkWords(self, address, true);
  unsigned const first = self.block->kernel().machine().scheduler().choose(ChoiceKind::half, 2);
  std::uint64_t halves[2];
  std::memcpy(halves, &value, sizeof halves);
  for (unsigned const which : {first, 1 - first}) {
    store(self, reinterpret_cast<std::uint64_t*>(address) + which, 8, halves[which], Order::relaxed, Scope::system,
          code);
  }
}

Words4 loadHalves(GpuThread& self, Words4 const* address, void const* code) {
  checkWords(self, address, false);
  unsigned const first = self.block->kernel().machine().scheduler().choose(ChoiceKind::half, 2);
  std::uint64_t halves[2];
  for (unsigned const which : {first, 1 - first}) {
    halves[which] =
        load(self, reinterpret_cast<std::uint64_t const*>(address) + which, 8, Order::relaxed, Scope::system, code);
  }
  Words4 result;
  std::memcpy(&result, halves, sizeof result);
  return result;
}

}  // namespace

std::uint64_t loadWord(void const* address, unsigned bytes, Order order, Scope scope) {
  return load(currentGpuThread("a load"), address, bytes, order, scope, __builtin_return_address(0));
}

void storeWord(void* address, unsigned bytes, std::uint64_t value, Order order, Scope scope) {
  store(currentGpuThread("a store"), address, bytes, value, order, scope, __builtin_return_address(0));
}

std::uint64_t addWord(void* address, unsigned bytes, std::uint64_t operand, Order order, Scope scope) {
  return update(currentGpuThread("fetchAdd"), address, bytes, UpdateKind::add, operand, 0, order, scope,
                __builtin_return_address(0));
}

std::uint64_t exchangeWord(void* address, unsigned bytes, std::uint64_t value, Order order, Scope scope) {
  return update(currentGpuThread("exchange"), address, bytes, UpdateKind::exchange, value, 0, order, scope,
                __builtin_return_address(0));
}

std::uint64_t compareExchangeWord(void* address, unsigned bytes, std::uint64_t expected, std::uint64_t desired,
                                  Order order, Scope scope) {
  return update(currentGpuThread("compareExchange"), address, bytes, UpdateKind::compareExchange, desired, expected,
                order, scope, __builtin_return_address(0));
}

void fenceStep(Order order, Scope scope) {
  fence(currentGpuThread("fence"), order, scope, __builtin_return_address(0));
  // A read-modify-write of a word that all fences share orders as a fence does, and ThreadSanitizer understands it.
  static std::atomic<unsigned> fences{0};
  fences.fetch_add(1);
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
      machine.checker()->tornLine(*agent, address, Checker::siteOf(*agent, request.code));
    }
    self.block->meet(self, request, 0xffffffffu);
    if (active) storeHalves(self, address, value, request.code);
    return;
  }
  if (active) {
    checkWords(self, address, true);
    step(self, address, sizeof(Words4), AccessKind::store, Order::relaxed, Scope::system);
  }
  request.operation = WarpOperation::storeLines;
  request.predicate = active;
  request.address = address;
  request.words = value;
  self.block->meet(self, request, 0xffffffffu);
}

Words4 loadLines(Words4 const* address, bool active) {
  auto& self = currentGpuThread("loadLines");
  WarpRequest request;
  request.code = __builtin_return_address(0);
  if (!self.block->kernel().machine().linesArriveWhole()) {
    self.block->meet(self, request, 0xffffffffu);
    return active ? loadHalves(self, address, request.code) : Words4{};
  }
  if (active) {
    checkWords(self, address, false);
    step(self, address, sizeof(Words4), AccessKind::load, Order::relaxed, Scope::system);
  }
  request.operation = WarpOperation::loadLines;
  request.predicate = active;
  request.address = const_cast<Words4*>(address);
  self.block->meet(self, request, 0xffffffffu);
  return request.words;
}

// ---- instrumented code
// -----------------------------------------------------------------------------------------------

void hookAccess(void const* address, std::size_t bytes, bool write, void const* code) noexcept {
  if (auto* const time = VirtualTime::running; time != nullptr && !machineWorks) {
    auto const where = reinterpret_cast<std::uintptr_t>(address);
    if (auto const issued = time->issuePlain(where, write); issued.thread != nullptr) {
      if (issued.late) Machine::instance().scheduler().yieldReady(*issued.thread);
      if (!issued.thread->cancelled) time->plain(issued, where, bytes, write);
    }
  }
  auto* const agent = runningAgent;
  if (agent == nullptr) return;
  Checker::running->plain(*agent, reinterpret_cast<std::uintptr_t>(address), bytes, write,
                          Checker::siteOf(*agent, code));
}

void hookEnter(void const* code) noexcept {
  if (runningAgent != nullptr) Checker::running->enterCall(*runningAgent, code);
}

void hookLeave() noexcept {
  if (runningAgent != nullptr) Checker::running->leaveCall(*runningAgent);
}

std::uint64_t hookLoad(void const* address, unsigned bytes, Order order, void const* code) {
  if (auto* const self = checkedThread(address)) {
    if (order == Order::sequential) fence(*self, order, Scope::system, code);
    return load(*self, address, bytes, order == Order::sequential ? Order::acquire : order, Scope::system, code);
  }
  auto const value = readWord(address, bytes);
  hostSynchronize(address, acquires(order), false);
  return value;
}

void hookStore(void* address, unsigned bytes, std::uint64_t value, Order order, void const* code) {
  if (auto* const self = checkedThread(address)) {
    if (order == Order::sequential) fence(*self, order, Scope::system, code);
    return store(*self, address, bytes, value, order == Order::sequential ? Order::release : order, Scope::system,
                 code);
  }
  hostSynchronize(address, false, releases(order));
  writeWord(address, bytes, value);
}

std::uint64_t hookUpdate(void* address, unsigned bytes, UpdateKind kind, std::uint64_t operand, std::uint64_t expected,
                         Order order, void const* code) {
  if (auto* const self = checkedThread(address)) {
    return update(*self, address, bytes, kind, operand, expected, order, Scope::system, code);
  }
  hostSynchronize(address, acquires(order), releases(order));
  return replaceWord(address, bytes, [&](std::uint64_t found, std::uint64_t& value) {
    return updatedWord(kind, found, operand, expected, bytes, value);
  });
}

void hookFence(Order order, void const* code) {
  if (order == Order::relaxed || runningAgent == nullptr || !insideKernel()) return;
  fence(currentGpuThread("fence"), order == Order::sequential ? order : Order::acquireRelease, Scope::system, code);
}

}  // namespace mscclpp::sim
