// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/fifo.hpp"

#include <bit>

#include "base/format.hpp"
#include "mscclpp/host/wait.hpp"

namespace mscclpp {
namespace {

// Words with different writers have a line to themselves.
constexpr std::size_t lineBytes = 128;

}  // namespace

Fifo::Fifo(Device device, std::uint32_t size, layout::Watch* watch, std::uint32_t id) : device_(device) {
  if (!std::has_single_bit(size) || size > maxSize) {
    fail(ErrorCode::invalidUsage, "Fifo of {} triggers: the size must be a power of two from 1 to {}", size, maxSize);
  }
  counters_ = DeviceMemory(device, 2 * lineBytes);
  host_ = device.runtime().allocateHost(lineBytes + size * sizeof(layout::Trigger));
  auto* const counters = static_cast<std::byte*>(counters_.data());
  auto* const host = static_cast<std::byte*>(host_);
  handle_.head = reinterpret_cast<std::uint64_t*>(counters);
  handle_.tailCache = reinterpret_cast<std::uint64_t*>(counters + lineBytes);
  handle_.tail = reinterpret_cast<std::uint64_t*>(host);
  handle_.slots = reinterpret_cast<layout::Trigger*>(host + lineBytes);
  handle_.watch = watch;
  handle_.size = size;
  handle_.proxy = id;
}

Fifo::~Fifo() { runtime(device_.kind).releaseHost(host_); }

bool Fifo::isWritten(std::uint64_t snd) const noexcept {
  bool const parity = (snd & layout::triggerParity) != 0;
  return parity == ((taken_ & handle_.size) == 0);
}

std::optional<layout::Trigger> Fifo::poll() const {
  auto const& slot = handle_.slots[taken_ & (handle_.size - 1)];
  // The kernel shows the second half last.
  auto const snd = loadShared(&slot.snd);
  if (!isWritten(snd)) return {};
  return layout::Trigger{loadShared(&slot.fst), snd & ~layout::triggerParity};
}

void Fifo::publish() {
  if (published_ == taken_) return;
  published_ = taken_;
  storeShared(handle_.tail, taken_);
}

}  // namespace mscclpp
