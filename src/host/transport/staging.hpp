// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory as transports reach it, and host memory through which device memory goes on its way to and from a socket, in
// slots that are copied independently: while one is on the wire, the next is filled.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/deadline.hpp"
#include "mscclpp/host/device.hpp"

namespace mscclpp {

// Own memory that peers may write.
struct OpenMemory {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  Device device;
  bool staged = false;  // the host cannot use it directly

  bool holds(std::uint64_t offset, std::uint64_t size) const noexcept {
    return offset <= bytes && size <= bytes - offset;
  }
};

struct StagingSlot {
  std::byte* data = nullptr;
  void* stream = nullptr;
  bool taken = false;
};

class StagingSlots {
 public:
  static constexpr std::size_t slotBytes = std::size_t{512} << 10;
  static constexpr std::size_t count = 4;
  static constexpr std::chrono::seconds copyLimit{10};  // after which copies are given up as lost

  explicit StagingSlots(Device device);
  ~StagingSlots();
  StagingSlots(StagingSlots const&) = delete;
  StagingSlots& operator=(StagingSlots const&) = delete;

  // Null where all are taken.
  StagingSlot* take() noexcept;
  void giveBack(StagingSlot& slot) noexcept { slot.taken = false; }

  void copyOut(StagingSlot const& slot, void* to, std::size_t bytes) {
    machine_.copyAsync(to, slot.data, bytes, slot.stream);
  }
  void copyIn(StagingSlot const& slot, void const* from, std::size_t bytes) {
    machine_.copyAsync(slot.data, from, bytes, slot.stream);
  }
  bool copied(StagingSlot const& slot) { return machine_.idle(slot.stream); }
  // Waits for the slot's copy. One that does not end is logged.
  void finish(StagingSlot const& slot, Deadline const& deadline) noexcept;

 private:
  Runtime& machine_;
  std::byte* memory_ = nullptr;
  std::vector<StagingSlot> slots_;
};

// Stores a signal's value where kernels and host wait for it. Device memory takes a few microseconds, which this waits
// for: later signals to the same word must not overtake this one. One slot of `staging`, made if need be, is free.
void storeWord(OpenMemory const& memory, std::uint64_t offset, std::uint64_t value,
               std::unique_ptr<StagingSlots>& staging);

}  // namespace mscclpp
