// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/sim/memory_step.hpp"

#include <atomic>
#include <cstring>

#include <fmt/format.h>

#include "machine.hpp"

namespace mscclpp::sim {
namespace {

void step(GpuThread& self, void const* address, std::size_t bytes, bool write, Order order, Scope scope) {
  auto& machine = self.block->kernel().machine();
  auto const where = reinterpret_cast<std::uintptr_t>(address);
  auto refuse = [&](std::string const& why) {
    self.block->kernel().fail(fmt::format("block {} thread {}: {} of {}", self.context.block, self.context.thread,
                                          write ? "write" : "read", why));
    throw Unwind{};
  };
  if (where % bytes != 0) refuse(fmt::format("{} bytes at {:#x}, which is not aligned to {}", bytes, where, bytes));
  if (machine.checksAddresses() && !machine.reachable(self.context.device, where, bytes)) {
    refuse(machine.heap().whyNot(self.context.device, where, bytes));
  }
  machine.scheduler().memoryStep(
      self, {where, static_cast<std::uint32_t>(bytes), write ? AccessKind::store : AccessKind::load, order, scope});
}

std::atomic_ref<std::uint64_t> half(Words4* address, unsigned which) {
  return std::atomic_ref<std::uint64_t>(reinterpret_cast<std::uint64_t*>(address)[which]);
}

void checkWords(GpuThread& self, void const* address, bool write) {
  auto const where = reinterpret_cast<std::uintptr_t>(address);
  if (where % sizeof(Words4) == 0) return;
  self.block->kernel().fail(fmt::format("block {} thread {}: {} of {} bytes at {:#x}, which is not aligned to them",
                                        self.context.block, self.context.thread, write ? "write" : "read",
                                        sizeof(Words4), where));
  throw Unwind{};
}

}  // namespace

void memoryStep(void const* address, std::size_t bytes, bool write, Order order, Scope scope) {
  step(currentGpuThread("a memory operation"), address, bytes, write, order, scope);
}

void fenceStep(Order order, Scope scope) {
  auto& self = currentGpuThread("fence");
  self.block->kernel().machine().scheduler().memoryStep(self, {0, 0, AccessKind::fence, order, scope});
  // A read-modify-write of a word that all fences share orders as a fence does, and ThreadSanitizer understands it.
  static std::atomic<unsigned> fences{0};
  fences.fetch_add(1, order == Order::sequential ? std::memory_order_seq_cst : std::memory_order_acq_rel);
}

Words4 loadWords4(Words4 const* address) {
  auto& self = currentGpuThread("loadWords4");
  checkWords(self, address, false);
  auto* words = const_cast<Words4*>(address);
  unsigned const first = self.block->kernel().machine().scheduler().choose(ChoiceKind::half, 2);
  std::uint64_t halves[2];
  for (unsigned const which : {first, 1 - first}) {
    step(self, reinterpret_cast<std::uint64_t const*>(address) + which, 8, false, Order::relaxed, Scope::system);
    halves[which] = half(words, which).load(std::memory_order_relaxed);
  }
  Words4 result;
  std::memcpy(&result, halves, sizeof result);
  return result;
}

void storeWords4(Words4* address, Words4 const& value) {
  auto& self = currentGpuThread("storeWords4");
  checkWords(self, address, true);
  unsigned const first = self.block->kernel().machine().scheduler().choose(ChoiceKind::half, 2);
  std::uint64_t halves[2];
  std::memcpy(halves, &value, sizeof halves);
  for (unsigned const which : {first, 1 - first}) {
    step(self, reinterpret_cast<std::uint64_t const*>(address) + which, 8, true, Order::relaxed, Scope::system);
    half(address, which).store(halves[which], std::memory_order_relaxed);
  }
}

void storeLines(Words4* address, Words4 const& value, bool active) {
  auto& self = currentGpuThread("storeLines");
  WarpRequest request;
  if (!self.block->kernel().machine().linesArriveWhole()) {
    self.block->meet(self, request, 0xffffffffu);
    if (active) storeWords4(address, value);
    return;
  }
  if (active) {
    checkWords(self, address, true);
    step(self, address, sizeof(Words4), true, Order::relaxed, Scope::system);
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
  if (!self.block->kernel().machine().linesArriveWhole()) {
    self.block->meet(self, request, 0xffffffffu);
    return active ? loadWords4(address) : Words4{};
  }
  if (active) {
    checkWords(self, address, false);
    step(self, address, sizeof(Words4), false, Order::relaxed, Scope::system);
  }
  request.operation = WarpOperation::loadLines;
  request.predicate = active;
  request.address = const_cast<Words4*>(address);
  self.block->meet(self, request, 0xffffffffu);
  return request.words;
}

}  // namespace mscclpp::sim
