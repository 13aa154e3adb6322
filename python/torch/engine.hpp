// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What PyTorch's process groups have of the library: calls of collectives and messages by one rank, in any streams.
//
// Ranks make the same collectives in the same order, and each message has its counterpart; streams need not correspond.
// Calls are put in by one thread at a time; abort(), fault() and wait() by any. Compiled into libmscclpp.so: the
// backend, which is compiled for the PyTorch at hand, sees nothing else of the library.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "mscclpp/algorithms/core/traits.hpp"
#include "mscclpp/device/data_type.hpp"
#include "mscclpp/host/device.hpp"

namespace mscclpp::torch {

enum class Work : std::uint8_t { collective, send, receive };

struct Call {
  Work work = Work::collective;
  Collective collective = Collective::allReduce;
  void const* in = nullptr;  // of device memory; null where this rank has none
  void* out = nullptr;
  std::size_t count = 0;  // elements of the smaller buffer: of all-gather the input, of reduce-scatter the output
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::none;
  int root = 0;  // of collectives that have one; of messages the other rank
  // Inputs are multiplied by it before they are summed: a value of `type`, or where it is in device memory.
  std::optional<std::array<std::byte, 8>> factor{};
  void const* deviceFactor = nullptr;
};

class Engine {
 public:
  // On one rank, for join() on all.
  static std::string createId();
  // Collective. `timeout`: that of the meeting, and of each wait of kernels where MSCCLPP_KERNEL_TIMEOUT is not set.
  static std::shared_ptr<Engine> join(int rank, int size, std::string const& id, Device device,
                                      std::chrono::nanoseconds timeout);
  // The device of this process for tensors of the CPU.
  static Device simulatedDevice();

  virtual ~Engine() = default;
  virtual Device device() const = 0;
  // Puts them into the stream, a cudaStream_t or one of makeStream(): collectives in this order, then all messages
  // together. Throws what cannot be right before it starts anything.
  virtual void start(std::span<Call const> calls, void* stream) = 0;
  // A stream of the simulated machine; it belongs to the engine.
  virtual void* makeStream() = 0;
  // One that is done when what is in `stream` now is done, until it is given back.
  virtual void* mark(void* stream) = 0;
  virtual void unmark(void* mark) = 0;
  // Returns when what is in the stream is done. Throws what went wrong: who waits for whom, or which rank has died.
  virtual void wait(void* stream) = 0;
  virtual bool idle(void* stream) = 0;
  // What has gone wrong so far, as far as is known without waiting; empty: nothing.
  virtual std::string fault() = 0;
  virtual void setTimeLimit(std::chrono::nanoseconds limit) = 0;
  // Ends the waits of its kernels; later calls are refused.
  virtual void abort() noexcept = 0;
  // Of the simulated machine, which the host reads and writes.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
};

}  // namespace mscclpp::torch
