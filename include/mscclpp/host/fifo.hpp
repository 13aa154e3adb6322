// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The queue between the kernels of a device, which push (device/fifo.hpp), and one thread of the host, which takes.
//
// A kernel that ends early between taking a position and filling its slot leaves a gap that the host waits for for
// ever: after an error make a new one.
#pragma once

#include <cstdint>
#include <optional>

#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/layout/port_handle.hpp"

namespace mscclpp {

class Fifo {
 public:
  static constexpr std::uint32_t defaultSize = 512;
  static constexpr std::uint32_t maxSize = 1u << 20;

  // `size`: a power of two. Waits for room are reported through `watch`, which may be null, as those for proxy `id`.
  // Throws invalidUsage for other sizes.
  explicit Fifo(Device device, std::uint32_t size = defaultSize, layout::Watch* watch = nullptr, std::uint32_t id = 0);
  ~Fifo();
  Fifo(Fifo const&) = delete;
  Fifo& operator=(Fifo const&) = delete;

  // For FifoDeviceHandle in kernels of the device, which must end before this does.
  layout::FifoHandle deviceHandle() const noexcept { return handle_; }
  std::uint32_t size() const noexcept { return handle_.size; }

  // The host's end, for one thread. The oldest trigger that has not been taken, if it is there; its parity is cleared.
  std::optional<layout::Trigger> poll() const;
  // Takes it. Its slot is free for kernels from the next publish() on.
  void pop() noexcept { ++taken_; }
  void publish();
  // How many have been taken: the position of the one that poll() looks at.
  std::uint64_t position() const noexcept { return taken_; }

 private:
  bool isWritten(std::uint64_t snd) const noexcept;

  Device device_;
  DeviceMemory counters_;
  void* host_ = nullptr;
  layout::FifoHandle handle_{};
  std::uint64_t taken_ = 0;
  std::uint64_t published_ = 0;
};

}  // namespace mscclpp
