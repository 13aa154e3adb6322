// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/sim/backend/multimem.hpp"

#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "sim/machine/kernel.hpp"
#include "sim/machine/machine.hpp"
#include "sim/machine/observer.hpp"
#include "sim/memory/multicasts.hpp"
#include "sim/memory/word_memory.hpp"

namespace mscclpp::sim {

namespace {

// One access of the running thread to all replicas.
class MulticastAccess {
 public:
  MulticastAccess(char const* operation, void const* address, unsigned bytes, AccessKind kind, Order order, Scope scope,
                  void const* code)
      : self_(currentGpuThread(operation)),
        machine_(self_.block->kernel().machine()),
        access_{.bytes = bytes, .kind = kind, .order = order, .scope = scope, .way = AccessWay::multicast} {
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
    if (auto* const o = observer()) site_ = o->siteOf(*self_.agent, code);
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

  Observer* observer() const { return self_.agent == nullptr ? nullptr : machine_.observer(); }
  Agent& agent() const { return *self_.agent; }
  Site site() const { return site_; }
  // A part of it, at `word`.
  Access part(std::byte* word, unsigned bytes) const {
    auto part = access_;
    part.address = reinterpret_cast<std::uintptr_t>(word);
    part.bytes = bytes;
    return part;
  }

 private:
  GpuThread& self_;
  Machine& machine_;
  Access access_;
  Multicasts::Place place_;
  Site site_ = 0;
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
      auto* const observer = access.observer();
      auto const word = observer == nullptr ? readWord(at + i, unit)
                                            : observer->load(access.agent(), access.part(at + i, unit), access.site());
      std::memcpy(values.bytes[rank] + i, &word, unit);
    }
  });
}

void multimemStore(void* address, void const* value, unsigned bytes, unsigned unit, Order order, Scope scope) {
  MulticastAccess access("multimemStore", address, bytes, AccessKind::store, order, scope, __builtin_return_address(0));
  access.forEach([&](int, std::byte* at) {
    for (unsigned i = 0; i < bytes; i += unit) {
      auto const word = unitOf(value, i, unit);
      if (auto* const observer = access.observer()) {
        observer->store(access.agent(), access.part(at + i, unit), word, access.site());
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
      WordUpdate const update{.kind = UpdateKind::combine, .operand = unitOf(value, i, unit), .combine = combine};
      if (auto* const observer = access.observer()) {
        observer->update(access.agent(), access.part(at + i, unit), update, access.site());
      } else {
        updateWord(at + i, unit, update);
      }
    }
  });
}

void multimemFence() {
  auto& self = currentGpuThread("multimemFence");
  if (self.cancelled) throw Unwind{};
  auto& machine = self.block->kernel().machine();
  machine.scheduler().memoryStep(self, {.kind = AccessKind::fence});
  if (self.agent != nullptr) machine.observer()->aliasFence(*self.agent);
}

}  // namespace mscclpp::sim
