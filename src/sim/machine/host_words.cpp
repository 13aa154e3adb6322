// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/machine/host_words.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "mscclpp/sim/backend/ordered_access.hpp"
#include "mscclpp/sim/backend/poll.hpp"
#include "mscclpp/sim/backend/thread_context.hpp"
#include "sim/machine/host_task.hpp"
#include "sim/machine/machine.hpp"
#include "sim/machine/observer.hpp"

namespace mscclpp::sim {
namespace {

std::uint64_t plainLoad(std::uint64_t const* word) {
  return std::atomic_ref(const_cast<std::uint64_t&>(*word)).load(std::memory_order_acquire);
}

void plainStore(void* word, unsigned bytes, std::uint64_t value) {
  if (bytes == 4) {
    std::atomic_ref(*static_cast<std::uint32_t*>(word))
        .store(static_cast<std::uint32_t>(value), std::memory_order_release);
  } else {
    std::atomic_ref(*static_cast<std::uint64_t*>(word)).store(value, std::memory_order_release);
  }
}

std::uint64_t load(std::uint64_t const* word) {
  if (insideKernel()) return loadWord(word, sizeof *word, Order::acquire, Scope::system);
  auto* const task = currentHostTask();
  if (task == nullptr) return plainLoad(word);
  auto const address = reinterpret_cast<std::uintptr_t>(word);
  if (!task->mayLook(address) && std::uncaught_exceptions() == 0) throw Unwind{};
  if (task->agent == nullptr) {
    auto const value = plainLoad(word);
    task->looked(address, value);
    return value;
  }
  return loadStep(*task, orderedAccess(word, sizeof *word, AccessKind::load, Order::acquire, Scope::system), nullptr);
}

void store(void* word, unsigned bytes, std::uint64_t value) {
  if (insideKernel()) return storeWord(word, bytes, value, Order::release, Scope::system);
  auto* const task = currentHostTask();
  if (task != nullptr && task->agent != nullptr) {
    return storeStep(*task, orderedAccess(word, bytes, AccessKind::store, Order::release, Scope::system), value,
                     nullptr);
  }
  plainStore(word, bytes, value);
  if (task == nullptr) return;
  task->acted();
  Machine::instance().scheduler().noteProgress();
}

// Of what is under way, such as copies, each round carries out a part; what has not ended after so many never will.
constexpr unsigned mostRounds = 256;

void idle(std::function<bool()> const& ready, bool busy, std::uint32_t who, std::uint64_t waitsFor, unsigned rounds) {
  if (busy && rounds < mostRounds) {
    if (auto* const task = currentTask()) Machine::instance().scheduler().yieldReady(*task);
    return;
  }
  if (!insideKernel()) {
    auto* const task = currentHostTask();
    if (task != nullptr) hostTaskWait(*task, "work for a proxy", ready);
    return;
  }
  beginWait();
  PollState state;
  state.what = {layout::WaitKind::hostProxy, currentThread().device, -1, who, waitsFor, 0};
  while (!ready()) {
    if (!pollYield(state)) break;
  }
  endWait({.kind = layout::WaitKind::hostProxy, .expected = waitsFor});
}

void rest(std::function<bool()> const&, bool, std::uint32_t, std::uint64_t, unsigned rounds) {
  constexpr unsigned yields = 64;
  if (rounds < yields) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace

constinit HostWords const hostWords{load, store, idle, mostRounds};
constinit HostWords const restingHostWords{plainLoad, plainStore, rest, 0};

}  // namespace mscclpp::sim
