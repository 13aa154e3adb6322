// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory operations with visible order and scope, on the simulated machine. Twin of arch/cuda/memory.hpp.
//
// Each is a scheduling point followed by one host atomic, so that other processes sharing the memory are ordered too.
// The 16-byte forms are relaxed, system scope, and whole per 8 bytes only: another thread may see one half of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "mscclpp/device/arch/sim/thread.hpp"
#include "mscclpp/device/bits.hpp"
#include "mscclpp/device/config.hpp"
#include "mscclpp/device/order.hpp"
#include "mscclpp/sim/memory_step.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

template <class T>
concept Word = (sizeof(T) == 4 || sizeof(T) == 8) && std::is_trivially_copyable_v<T>;

template <Order O>
inline constexpr std::memory_order hostOrder = O == Order::relaxed          ? std::memory_order_relaxed
                                               : O == Order::acquire        ? std::memory_order_acquire
                                               : O == Order::release        ? std::memory_order_release
                                               : O == Order::acquireRelease ? std::memory_order_acq_rel
                                                                            : std::memory_order_seq_cst;

template <Order O, Scope S, Word T>
MSCCLPP_DEVICE T load(T const* address) {
  static_assert(O == Order::relaxed || O == Order::acquire, "a load is relaxed or acquire");
  static_assert(S != Scope::thread, "a load that only its own thread relies on is a plain read");
  sim::memoryStep(address, sizeof(T), false, O, S);
  return std::atomic_ref<T>(*const_cast<T*>(address)).load(hostOrder<O>);
}

template <Order O, Scope S, Word T>
MSCCLPP_DEVICE void store(T* address, std::type_identity_t<T> value) {
  static_assert(O == Order::relaxed || O == Order::release, "a store is relaxed or release");
  static_assert(S != Scope::thread, "a store that only its own thread relies on is a plain write");
  sim::memoryStep(address, sizeof(T), true, O, S);
  std::atomic_ref<T>(*address).store(value, hostOrder<O>);
}

template <Order O, Scope S, Word T>
requires std::is_integral_v<T> MSCCLPP_DEVICE T fetchAdd(T* address, std::type_identity_t<T> value) {
  sim::memoryStep(address, sizeof(T), true, O, S);
  return std::atomic_ref<T>(*address).fetch_add(value, hostOrder<O>);
}

// Like fetchAdd, without the answer.
template <Order O, Scope S, Word T>
requires std::is_integral_v<T> MSCCLPP_DEVICE void reduceAdd(T* address, std::type_identity_t<T> value) {
  static_assert(O == Order::relaxed || O == Order::release, "a reduction is relaxed or release");
  sim::memoryStep(address, sizeof(T), true, O, S);
  std::atomic_ref<T>(*address).fetch_add(value, hostOrder<O>);
}

template <Order O, Scope S, Word T>
MSCCLPP_DEVICE T exchange(T* address, std::type_identity_t<T> value) {
  sim::memoryStep(address, sizeof(T), true, O, S);
  return std::atomic_ref<T>(*address).exchange(value, hostOrder<O>);
}

// On failure `expected` receives the value found.
template <Order O, Scope S, Word T>
MSCCLPP_DEVICE bool compareExchange(T* address, T& expected, std::type_identity_t<T> desired) {
  sim::memoryStep(address, sizeof(T), true, O, S);
  return std::atomic_ref<T>(*address).compare_exchange_strong(expected, desired, hostOrder<O>);
}

template <Order O, Scope S>
MSCCLPP_DEVICE void fence() {
  static_assert(O == Order::acquireRelease || O == Order::sequential, "a fence is acquireRelease or sequential");
  sim::fenceStep(O, S);
}

MSCCLPP_DEVICE Words2 loadWords2(Words2 const* address) {
  sim::memoryStep(address, sizeof(Words2), false, Order::relaxed, Scope::system);
  return std::atomic_ref<Words2>(*const_cast<Words2*>(address)).load(std::memory_order_relaxed);
}

MSCCLPP_DEVICE void storeWords2(Words2* address, Words2 const& v) {
  sim::memoryStep(address, sizeof(Words2), true, Order::relaxed, Scope::system);
  std::atomic_ref<Words2>(*address).store(v, std::memory_order_relaxed);
}

MSCCLPP_DEVICE Words4 loadWords4(Words4 const* address) { return sim::loadWords4(address); }
MSCCLPP_DEVICE void storeWords4(Words4* address, Words4 const& v) { sim::storeWords4(address, v); }

// Called by all 32 lanes of a warp, eight lanes to a 128-byte line, `active` the same for the lanes of a line.
MSCCLPP_DEVICE void storeLines(Words4* address, Words4 const& v, bool active) { sim::storeLines(address, v, active); }
MSCCLPP_DEVICE Words4 loadLines(Words4 const* address, bool active) { return sim::loadLines(address, active); }

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
