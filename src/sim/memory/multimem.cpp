// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/sim/backend/multimem.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "mscclpp/host/error.hpp"
#include "sim/checker/checker.hpp"
#include "sim/checker/word_memory.hpp"
#include "sim/machine/kernel.hpp"
#include "sim/machine/machine.hpp"
#include "sim/memory/multicasts.hpp"

namespace mscclpp::sim {

// ---- windows
// -------------------------------------------------------------------------------------------------------

std::byte* Multicasts::map(Window window) {
  void* const base = ::mmap(nullptr, window.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    throwSystemError(fmt::format("cannot reserve {} bytes of multicast addresses for simulated device {}", window.bytes,
                                 window.device),
                     errno);
  }
  std::unique_lock const lock(mutex_);
  windows_.emplace(reinterpret_cast<std::uintptr_t>(base), std::make_shared<Window const>(std::move(window)));
  return static_cast<std::byte*>(base);
}

void Multicasts::unmap(std::byte* base) noexcept {
  std::unique_lock const lock(mutex_);
  auto const it = windows_.find(reinterpret_cast<std::uintptr_t>(base));
  if (it == windows_.end()) return;
  ::munmap(base, it->second->bytes);
  windows_.erase(it);
}

Multicasts::Place Multicasts::find(std::uintptr_t address) const {
  std::shared_lock const lock(mutex_);
  auto it = windows_.upper_bound(address);
  if (it == windows_.begin()) return {};
  --it;
  auto const at = address - it->first;
  if (at >= it->second->bytes) return {};
  for (auto const& part : it->second->replicas) {
    if (at >= part.offset && at - part.offset < part.bytes) return {it->second, &part, at - part.offset};
  }
  return {it->second, nullptr, at};
}

// ---- what kernels call
// -----------------------------------------------------------------------------------------------

namespace {

// One access of the running thread to all replicas.
class MulticastAccess {
 public:
  MulticastAccess(char const* operation, void const* address, unsigned bytes, AccessKind kind, Order order, Scope scope,
                  void const* code)
      : self_(currentGpuThread(operation)),
        machine_(self_.block->kernel().machine()),
        access_{0, bytes, kind, order, scope} {
    if (self_.cancelled) throw Unwind{};
    auto const where = reinterpret_cast<std::uintptr_t>(address);
    if (where % bytes != 0) {
      failKernel(self_,
                 fmt::format("{} of {} bytes at {:#x}, which is not aligned to {}", operation, bytes, where, bytes));
    }
    place_ = machine_.multicasts().find(where);
    if (place_.window == nullptr) {
      failKernel(self_,
                 fmt::format("{} of {} bytes at {:#x}, which is no multicast address: take it from a SwitchChannel "
                             "or a MulticastWindow{}",
                             operation, bytes, where,
                             machine_.heap().ownerOf(where) >= 0 ? "; it is the plain address of memory" : ""));
    }
    if (place_.window->device != self_.context.device) {
      failKernel(self_, fmt::format("{} at {:#x} by simulated device {}: the multicast address is one of device {}",
                                    operation, where, self_.context.device, place_.window->device));
    }
    if (place_.replicas == nullptr || bytes > place_.replicas->bytes - place_.offset) {
      failKernel(self_,
                 fmt::format("{} of {} bytes at offset {} of a multicast window: no memory of the ranks is bound "
                             "there",
                             operation, bytes, place_.offset));
    }
    if (self_.agent != nullptr) site_ = Checker::siteOf(*self_.agent, code);
    operation_ = operation;
  }

  int ranks() const { return static_cast<int>(place_.replicas->bases.size()); }

  // Calls act(address) for the place in each rank's memory, each as a step of its own.
  template <class Act>
  void forEach(Act&& act) {
    for (int rank = 0; rank < ranks(); ++rank) {
      auto* const address = place_.replicas->bases[static_cast<std::size_t>(rank)] + place_.offset;
      access_.address = reinterpret_cast<std::uintptr_t>(address);
      if (!machine_.devices().reaches(self_.context.device, access_.address, access_.bytes)) {
        failKernel(self_, fmt::format("{} reaches rank {} of the multicast window: {}", operation_, rank,
                                      machine_.heap().whyNot(self_.context.device, access_.address, access_.bytes)));
      }
      access_.again = rank > 0;
      machine_.scheduler().memoryStep(self_, access_);
      if (self_.cancelled) throw Unwind{};
      Unwatched const unwatched;
      act(rank, address);
    }
  }

  Checker* checker() const { return self_.agent == nullptr ? nullptr : machine_.checker(); }
  Agent& agent() const { return *self_.agent; }
  std::uint64_t site() const { return site_; }

 private:
  GpuThread& self_;
  Machine& machine_;
  Access access_;
  Multicasts::Place place_;
  std::uint64_t site_ = 0;
  char const* operation_ = nullptr;
};

std::uint64_t unitOf(void const* value, unsigned at, unsigned unit) {
  std::uint64_t word = 0;
  std::memcpy(&word, static_cast<std::byte const*>(value) + at, unit);
  return word;
}

}  // namespace

void multimemLoad(void const* address, unsigned bytes, unsigned unit, Order order, Scope scope,
                  MulticastValues& values) {
  MulticastAccess access("multimemLoadReduce", address, bytes, AccessKind::load, order, scope,
                         __builtin_return_address(0));
  values.ranks = access.ranks();
  access.forEach([&](int rank, std::byte* at) {
    for (unsigned i = 0; i < bytes; i += unit) {
      auto const word = access.checker() != nullptr ? access.checker()->load(access.agent(), at + i, unit, order, scope,
                                                                             access.site(), trait::multicast)
                                                    : readWord(at + i, unit);
      std::memcpy(values.bytes[rank] + i, &word, unit);
    }
  });
}

void multimemStore(void* address, void const* value, unsigned bytes, unsigned unit, Order order, Scope scope) {
  MulticastAccess access("multimemStore", address, bytes, AccessKind::store, order, scope, __builtin_return_address(0));
  access.forEach([&](int, std::byte* at) {
    for (unsigned i = 0; i < bytes; i += unit) {
      auto const word = unitOf(value, i, unit);
      if (auto* const checker = access.checker()) {
        checker->store(access.agent(), at + i, unit, word, order, scope, access.site(), trait::multicast);
      } else {
        writeWord(at + i, unit, word);
      }
    }
  });
}

void multimemUpdate(void* address, void const* value, unsigned bytes, unsigned unit, Order order, Scope scope,
                    std::uint64_t (*combine)(std::uint64_t found, std::uint64_t operand)) {
  MulticastAccess access("multimemStoreReduce", address, bytes, AccessKind::update, order, scope,
                         __builtin_return_address(0));
  access.forEach([&](int, std::byte* at) {
    for (unsigned i = 0; i < bytes; i += unit) {
      auto const operand = unitOf(value, i, unit);
      auto const change = [&](std::uint64_t found, std::uint64_t& next) {
        next = combine(found, operand);
        return true;
      };
      if (auto* const checker = access.checker()) {
        checker->update(access.agent(), at + i, unit, change, order, scope, access.site(), trait::multicast);
      } else {
        replaceWord(at + i, unit, change);
      }
    }
  });
}

void multimemFence() {
  auto& self = currentGpuThread("multimemFence");
  if (self.cancelled) throw Unwind{};
  auto& machine = self.block->kernel().machine();
  machine.scheduler().memoryStep(self, {.kind = AccessKind::fence});
  if (self.agent != nullptr) machine.checker()->aliasFence(*self.agent);
}

}  // namespace mscclpp::sim
