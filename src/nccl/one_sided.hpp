// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Puts into other ranks' memory, and signals: NCCL's one-sided operations. Whoever puts or signals asks nothing of the
// other rank but that it has made the same; what it reaches is mapped when it is first used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory.hpp"
#include "mscclpp/host/stream.hpp"

namespace mscclpp::nccl {

// Memory of one size that every rank has.
class RemoteMemory {
 public:
  // Collective. Memory that cannot be shared is left out: of() refuses it. `alone`: all ranks are of this process.
  RemoteMemory(Communicator const& communicator, void* base, std::size_t bytes, bool alone);

  std::size_t bytes() const noexcept { return bytes_; }
  int ranks() const noexcept { return static_cast<int>(records_.size()); }
  // As mapped here. Throws unsupported, with the reason, where it is not to be had.
  std::byte* of(int rank);

 private:
  Communicator const& communicator_;
  std::size_t bytes_;
  RegisteredMemory own_;
  std::string why_;                              // there is none
  std::vector<std::vector<std::byte>> records_;  // by rank, for mapping; empty: it could not
  std::mutex mutex_;
  std::vector<RegisteredMemory> mapped_;
};

// The memory of windows, by their handles: some functions are given no communicator.
void nameWindow(void const* handle, std::shared_ptr<RemoteMemory> memory);
void forgetWindow(void const* handle) noexcept;
// Throws for one that there is not, or that was not registered as symmetric.
std::shared_ptr<RemoteMemory> windowMemory(void const* handle);

// Counters of signals. Each rank has one for every rank, index and context: signals of one do not end waits for
// another. They are read and counted on the device, so that all of it may be captured and replayed.
class Signals {
 public:
  static constexpr int indices = 8;
  static constexpr int contexts = 8;

  struct Which {
    int peer;
    int index;
    int context;
  };

  Signals(Communicator const& communicator, bool alone);  // collective

  // Throws for one that there is not.
  void check(Which const& which) const;
  void signal(Stream const& stream, Which const& to);
  // For `count` more of that rank.
  void wait(Stream const& stream, Which const& from, std::uint64_t count);
  std::size_t bytes() const noexcept { return memory_.bytes(); }

 private:
  Communicator const& communicator_;
  DeviceMemory memory_;  // that have come, then that were waited for: [ranks][contexts][indices] each
  RemoteMemory remote_;
};

}  // namespace mscclpp::nccl
