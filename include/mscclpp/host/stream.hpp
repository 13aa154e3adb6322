// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A queue of work of one device. What is put into one stream runs in order.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "mscclpp/host/device.hpp"

namespace mscclpp {

class Stream {
 public:
  explicit Stream(Device device);
  // Takes part in a stream that somebody else owns, such as a framework's cudaStream_t. Of handles that stand for a
  // stream of each thread (cudaStreamPerThread), that of the calling thread, which alone may use what this returns.
  static Stream borrow(Device device, void* native);
  // As part of a queue of work that goes through several streams, one after the other (runAfter): what is kept for
  // streams, such as the team of collectives, is kept for the queue, whose number `id` is then. See queueId(). All work
  // of a queue is captured into a CUDA graph, or none, which nobody has to ask then.
  static Stream borrow(Device device, void* native, std::uint64_t id, bool captured);
  // A number that no queue and no stream of this process has or had.
  static std::uint64_t queueId() noexcept;
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;

  Device device() const noexcept { return device_; }
  // cudaStream_t on CUDA.
  void* native() const noexcept { return native_; }
  // No other stream of this process has it, or had.
  std::uint64_t id() const noexcept { return id_; }

  // Returns when all work is done. Throws timeout past the limit (that of the environment where not given, so give one
  // for work that may take longer), deviceError where a kernel failed.
  void synchronize(std::optional<std::chrono::nanoseconds> limit = {}) const;
  bool idle() const;
  // What is put into it becomes part of a CUDA graph.
  bool capturing() const;
  // Which graph that is, by a number that no other of this process has; 0: none.
  std::uint64_t capture() const;

  // What is put into this stream from now on begins when what is in `earlier` now is done; both are of one device.
  // Where `earlier` is captured into a CUDA graph, this stream takes part in that from then on.
  void runAfter(Stream const& earlier) const;
  // Copies within the device, or to or from what it maps of a peer, in stream order; returns at once.
  void copy(void* dst, void const* src, std::size_t bytes) const;

 private:
  Stream(Device device, void* native, std::uint64_t id);

  Device device_;
  void* native_ = nullptr;
  std::uint64_t id_ = 0;
  std::optional<bool> captured_{};  // where it is known
  bool owned_ = false;
};

}  // namespace mscclpp
