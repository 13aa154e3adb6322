// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/checker/hook_calls.hpp"

#include <fmt/format.h>

#include "mscclpp/sim/backend/thread_context.hpp"
#include "sim/backend/ordered_access.hpp"
#include "sim/checker/checker.hpp"
#include "sim/machine/kernel.hpp"
#include "sim/machine/machine.hpp"
#include "sim/memory/word_memory.hpp"

namespace mscclpp::sim {
namespace {

// The thread that is running, if the checker follows what lies at `address`.
GpuThread* checkedThread(void const* address) {
  if (runningAgent == nullptr || !insideKernel()) return nullptr;
  return Checker::running->follows(address) ? &currentGpuThread("an access") : nullptr;
}

// Rank code of a checked run, at memory of its own.
void hostSynchronize(void const* address, bool acquire, bool release) {
  if (runningAgent == nullptr || insideKernel()) return;
  Checker::running->hostSynchronize(*runningAgent, address, acquire, release);
}

}  // namespace

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
                          Checker::siteHere(*agent, code));
}

void hookEnter(void const* code) noexcept {
  if (runningAgent != nullptr) Checker::running->enterCall(*runningAgent, code);
}

void hookLeave() noexcept {
  if (runningAgent != nullptr) Checker::running->leaveCall(*runningAgent);
}

std::uint64_t hookLoad(void const* address, unsigned bytes, Order order, void const* code) {
  if (auto* const self = checkedThread(address)) {
    if (order == Order::sequential) fenceStep(*self, order, Scope::system, code);
    auto const rest = order == Order::sequential ? Order::acquire : order;
    return loadStep(*self, orderedAccess(address, bytes, AccessKind::load, rest, Scope::system), code);
  }
  auto const value = readWord(address, bytes);
  hostSynchronize(address, acquires(order), false);
  return value;
}

void hookStore(void* address, unsigned bytes, std::uint64_t value, Order order, void const* code) {
  if (auto* const self = checkedThread(address)) {
    if (order == Order::sequential) fenceStep(*self, order, Scope::system, code);
    auto const rest = order == Order::sequential ? Order::release : order;
    return storeStep(*self, orderedAccess(address, bytes, AccessKind::store, rest, Scope::system), value, code);
  }
  hostSynchronize(address, false, releases(order));
  writeWord(address, bytes, value);
}

std::uint64_t hookUpdate(void* address, unsigned bytes, UpdateKind kind, std::uint64_t operand, std::uint64_t expected,
                         Order order, void const* code) {
  WordUpdate const update{kind, operand, expected};
  if (auto* const self = checkedThread(address)) {
    return updateStep(*self, orderedAccess(address, bytes, AccessKind::update, order, Scope::system), update, code);
  }
  hostSynchronize(address, acquires(order), releases(order));
  return updateWord(address, bytes, update);
}

void hookOddAtomic(void const* address, std::size_t bytes) {
  auto* const self = checkedThread(address);
  if (self == nullptr) return;
  self->block->kernel().fail(fmt::format(
      "block {} thread {}: an atomic access of {} bytes, which the checker does not follow. Use words of 1, 2, 4 or 8 "
      "bytes, or packets",
      self->context.block, self->context.thread, bytes));
}

void hookFence(Order order, void const* code) {
  if (order == Order::relaxed || runningAgent == nullptr || !insideKernel()) return;
  fenceStep(currentGpuThread("fence"), order == Order::sequential ? order : Order::acquireRelease, Scope::system, code);
}

}  // namespace mscclpp::sim
