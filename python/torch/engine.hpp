// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What PyTorch's process groups have of the library: calls of collectives and messages by one rank, in any streams.
//
// Ranks make the same collectives in the same order, and each message has its counterpart; streams need not correspond.
// Calls are put in by one thread at a time; abort(), fault() and wait() by any. Compiled into libmscclpp.so: the
// backend, which is compiled for the PyTorch at hand, sees nothing else of the library.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "mscclpp/host/device.hpp"
#include "mscclpp/host/error.hpp"
#include "nccl/operation.hpp"

namespace mscclpp {
class Algorithm;
class Communicator;
struct CollectiveCall;
}  // namespace mscclpp

namespace mscclpp::torch {

using Call = nccl::Operation;

class Engine {
 public:
  // On one rank, for join() on all.
  static std::string createId();
  // Collective. `timeout`: that of the meeting, and of each wait of kernels where MSCCLPP_KERNEL_TIMEOUT is not set.
  static std::shared_ptr<Engine> join(int rank, int size, std::string const& id, Device device,
                                      std::chrono::nanoseconds timeout);
  // Collective: over the ranks of a communicator, which may go before it.
  static std::shared_ptr<Engine> of(Communicator const& communicator);
  // The device of this process for tensors of the CPU.
  static Device simulatedDevice();
  // Of the simulated machine, which the host reads and writes.
  static std::shared_ptr<void> allocate(Device device, std::size_t bytes);

  virtual ~Engine() = default;
  virtual Device device() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Puts them into the stream, a cudaStream_t or one of makeStream(), whatever their own says: collectives in this
  // order, then all messages together. Throws what cannot be right before it starts anything.
  virtual void start(std::span<Call> calls, void* stream) = 0;
  // The same with an algorithm that is not the library's own.
  virtual void run(Algorithm const& algorithm, CollectiveCall const& call, void* stream) = 0;
  // A stream of the simulated machine; it belongs to the engine.
  virtual void* makeStream() = 0;
  // One that is done when what is in `stream` now is done, until it is given back.
  virtual void* mark(void* stream) = 0;
  virtual void unmark(void* mark) = 0;
  // Returns when what is in the stream is done. Throws what went wrong: who waits for whom, or which rank has died.
  virtual void wait(void* stream) = 0;
  virtual bool idle(void* stream) = 0;
  // What has gone wrong so far, as far as is known without waiting.
  virtual std::optional<Error> fault() = 0;
  virtual void setTimeLimit(std::chrono::nanoseconds limit) = 0;
  // Ends the waits of its kernels; later calls are refused.
  virtual void abort() noexcept = 0;
  // Collective: returns when this rank's work is done, and the others have come as far or have ended. A process that
  // ends without it ends the waits of ranks that are still in the last call.
  virtual void leave() noexcept = 0;
  // Collective: what lies alike at all ranks is read and written by other ranks where it lies.
  virtual void addWindow(void* base, std::size_t bytes) = 0;
};

}  // namespace mscclpp::torch

// Memory that peers can map, for torch.cuda.memory.CUDAPluggableAllocator; null where there is no more.
extern "C" void* mscclppTorchAllocate(std::size_t bytes, int device, void* stream);
extern "C" void mscclppTorchRelease(void* data, std::size_t bytes, int device, void* stream);
