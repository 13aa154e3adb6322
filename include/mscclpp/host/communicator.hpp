// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank's side of a group of ranks: its device, what it shares with the others, and the watch through which its
// kernels tell of waits that did not end.
//
// Making one is collective over the bootstrap. Calls that name a peer are matched by that peer's own call, the i-th of
// one side with the i-th of the other for each tag. Destroy it, and the semaphores and teams made from it, only when
// all kernels of all ranks that use them have ended.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <typeindex>
#include <typeinfo>
#include <vector>

#include "mscclpp/host/bootstrap.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/host/memory.hpp"
#include "mscclpp/host/semaphore.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/layout/watch.hpp"

namespace mscclpp {

class Communicator {
 public:
  Communicator(std::shared_ptr<Bootstrap> bootstrap, Device device);
  ~Communicator();
  Communicator(Communicator const&) = delete;
  Communicator& operator=(Communicator const&) = delete;

  std::shared_ptr<Bootstrap> const& bootstrap() const noexcept;
  int rank() const noexcept;
  int size() const noexcept;
  Device device() const noexcept;
  // Whether kernels here can use the memory of `peer`: the same host and kind of machine.
  bool reaches(int peer) const;
  // Whether a warp's 128-byte line arrives as one at `peer`, which LL128 packets need; without an argument: at all.
  bool linesArriveWhole(int peer) const;
  bool linesArriveWhole() const;

  // Seen by host and kernels. Its limit is MSCCLPP_KERNEL_TIMEOUT until set otherwise; zero: none.
  layout::Watch* watch() const noexcept;
  void setTimeLimit(std::chrono::nanoseconds limit) const;

  RegisteredMemory registerMemory(void* pointer, std::size_t bytes) const;
  void sendMemory(RegisteredMemory const& memory, int peer, int tag = 0) const;
  RegisteredMemory recvMemory(int peer, int tag = 0) const;
  // Collective: everybody's memory, by rank; [rank] is the own.
  std::vector<RegisteredMemory> exchangeMemory(RegisteredMemory const& memory) const;

  MemoryDevice2DeviceSemaphore buildSemaphore(int peer, int tag = 0) const;

  // Throws what kernels of this rank have reported since the last call, in words, and clears it: timeout for waits,
  // invalidUsage for a launch that a kernel refused, aborted after abort(). Kernels must have ended. After an error the
  // counters of teams and semaphores may differ between ranks: make new ones.
  void checkReports() const;
  // Ends the waits of this rank's kernels, now and from now on.
  void abort() const noexcept;
  // Waits for the stream (limit as in Stream), then checkReports().
  void synchronize(Stream const& stream, std::optional<std::chrono::nanoseconds> limit = {}) const;

  // The one T of this communicator, made as T(communicator) by the first call and destroyed with the communicator.
  // What a library above keeps for each communicator lives here.
  template <class T>
  T& attached() const {
    return *static_cast<T*>(
        attach(typeid(T), [](Communicator const& self) -> std::shared_ptr<void> { return std::make_shared<T>(self); }));
  }

 private:
  friend class Members;
  friend class Team;
  friend class MemoryWindow;
  friend class PointToPoint;
  friend class MulticastWindow;
  friend class SwitchChannel;
  friend class MemoryDevice2DeviceSemaphore;
  struct Impl;
  struct Attachments;
  void* attach(std::type_index type, std::shared_ptr<void> (*make)(Communicator const&)) const;

  std::shared_ptr<Impl> impl_;
  std::unique_ptr<Attachments> attachments_;  // destroyed first
};

}  // namespace mscclpp
