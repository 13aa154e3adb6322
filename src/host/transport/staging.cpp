// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/transport/staging.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "base/format.hpp"

namespace mscclpp {

StagingSlots::StagingSlots(Device device) : machine_(device.runtime()), slots_(count) {
  memory_ = static_cast<std::byte*>(machine_.allocateHost(count * slotBytes));
  std::byte* at = memory_;
  for (auto& slot : slots_) {
    slot.data = at;
    slot.stream = machine_.createStream(device.ordinal);
    at += slotBytes;
  }
}

StagingSlots::~StagingSlots() {
  Deadline const deadline(copyLimit);
  for (auto const& slot : slots_) {
    finish(slot, deadline);
    machine_.destroyStream(slot.stream);
  }
  machine_.releaseHost(memory_);
}

void StagingSlots::finish(StagingSlot const& slot, Deadline const& deadline) noexcept {
  try {
    machine_.synchronize(slot.stream, std::max(deadline.left(), std::chrono::nanoseconds::zero()));
  } catch (std::exception const& error) {
    log(LogLevel::error, "a copy of staged memory did not end: {}", error.what());
  }
}

StagingSlot* StagingSlots::take() noexcept {
  for (auto& slot : slots_) {
    if (slot.taken) continue;
    slot.taken = true;
    return &slot;
  }
  return nullptr;
}

void storeWord(OpenMemory const& memory, std::uint64_t offset, std::uint64_t value,
               std::unique_ptr<StagingSlots>& staging) {
  std::byte* const word = memory.data + offset;
  if (!memory.staged) {
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(word)).store(value, std::memory_order_release);
    return;
  }
  if (!staging) staging = std::make_unique<StagingSlots>(memory.device);
  auto* const slot = staging->take();
  if (slot == nullptr) fail(ErrorCode::internalError, "no staging slot is free for a signal");
  std::memcpy(slot->data, &value, sizeof value);
  staging->copyOut(*slot, word, sizeof value);
  while (!staging->copied(*slot)) {
  }
  staging->giveBack(*slot);
}

}  // namespace mscclpp
