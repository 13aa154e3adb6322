// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/checker/hook_calls.hpp"

#include <fmt/format.h>

#include "mscclpp/sim/backend/thread_context.hpp"
#include "sim/backend/ordered_access.hpp"
#include "sim/checker/checker.hpp"
#include "sim/machine/host_task.hpp"
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

// The rank code that is running, if it is checked.
HostTask* checkedHost() { return runningAgent == nullptr || insideKernel() ? nullptr : currentHostTask(); }

bool isShared(void const* address) { return Checker::running->follows(address); }

// Of rank code, which expects no exception here.
void lookAt(HostTask& host, void const* address) {
  if (!host.mayLook(reinterpret_cast<std::uintptr_t>(address))) host.abandon();
}

// By a GPU thread or by rank code. Sequential consistency is a fence before an access that is ordered less.
template <class Who>
std::uint64_t loadBy(Who& who, void const* address, unsigned bytes, Order order, void const* code) {
  bool const sequential = order == Order::sequential;
  if (sequential) fenceStep(who, order, Scope::system, code);
  auto const rest = sequential ? Order::acquire : order;
  return loadStep(who, orderedAccess(address, bytes, AccessKind::load, rest, Scope::system), code);
}

template <class Who>
void storeBy(Who& who, void* address, unsigned bytes, std::uint64_t value, Order order, void const* code) {
  bool const sequential = order == Order::sequential;
  if (sequential) fenceStep(who, order, Scope::system, code);
  auto const rest = sequential ? Order::release : order;
  storeStep(who, orderedAccess(address, bytes, AccessKind::store, rest, Scope::system), value, code);
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
  if (auto* const self = checkedThread(address)) return loadBy(*self, address, bytes, order, code);
  auto* const host = checkedHost();
  if (host == nullptr) return readWord(address, bytes);
  lookAt(*host, address);
  if (isShared(address)) return loadBy(*host, address, bytes, order, code);
  auto const value = readWord(address, bytes);
  host->looked(reinterpret_cast<std::uintptr_t>(address), value);
  Checker::running->hostSynchronize(*host->agent, address, acquires(order), false);
  return value;
}

void hookStore(void* address, unsigned bytes, std::uint64_t value, Order order, void const* code) {
  if (auto* const self = checkedThread(address)) return storeBy(*self, address, bytes, value, order, code);
  auto* const host = checkedHost();
  if (host == nullptr) return writeWord(address, bytes, value);
  if (isShared(address)) return storeBy(*host, address, bytes, value, order, code);
  host->acted();
  Checker::running->hostSynchronize(*host->agent, address, false, releases(order));
  writeWord(address, bytes, value);
}

std::uint64_t hookUpdate(void* address, unsigned bytes, UpdateKind kind, std::uint64_t operand, std::uint64_t expected,
                         Order order, void const* code) {
  WordUpdate const update{kind, operand, expected};
  if (auto* const self = checkedThread(address)) {
    return updateStep(*self, orderedAccess(address, bytes, AccessKind::update, order, Scope::system), update, code);
  }
  auto* const host = checkedHost();
  if (host == nullptr) return updateWord(address, bytes, update);
  lookAt(*host, address);
  if (isShared(address)) {
    return updateStep(*host, orderedAccess(address, bytes, AccessKind::update, order, Scope::system), update, code);
  }
  Checker::running->hostSynchronize(*host->agent, address, acquires(order), releases(order));
  auto const found = updateWord(address, bytes, update);
  host->updated(reinterpret_cast<std::uintptr_t>(address), bytes, found, update);
  return found;
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
  if (order == Order::relaxed || runningAgent == nullptr) return;
  auto const rest = order == Order::sequential ? order : Order::acquireRelease;
  if (auto* const host = checkedHost()) return fenceStep(*host, rest, Scope::system, code);
  if (insideKernel()) fenceStep(currentGpuThread("fence"), rest, Scope::system, code);
}

}  // namespace mscclpp::sim
