// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The compiled kernels of the library, by machine, collective, algorithm, type, operation and rank count, with what the
// host must know to launch one.
//
// Each source in src/collectives/kernels/device/ is compiled once for every machine of the build and enters its
// kernels, so everything above is plain C++ and does not know which machines there are. Collectives that only move data
// have one kernel for all types, entered as DataType::uint8 and ReduceOp::none. A program may add kernels of its own.
#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "mscclpp/algorithms/core/traits.hpp"
#include "mscclpp/device/data_type.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/layout/launch_shape.hpp"
#include "mscclpp/layout/team_handle.hpp"
#include "mscclpp/layout/window_handle.hpp"

namespace mscclpp {

namespace layout {
struct PointToPointHandle;
struct Messages;
}  // namespace layout

struct KernelCall {
  Stream const& stream;
  layout::TeamHandle const& team;
  void const* in = nullptr;
  void* out = nullptr;
  // Elements of the smaller of the two buffers: of one part, where there are parts.
  std::size_t count = 0;
  int root = 0;
  ReduceOp op = ReduceOp::none;
  // Null where the buffer is not registered with the team; else the window that holds it, and where in it.
  layout::WindowHandle const* inWindow = nullptr;
  layout::WindowHandle const* outWindow = nullptr;
  std::uint64_t inOffset = 0;
  std::uint64_t outOffset = 0;
  LaunchShape shape{};
  // As many as the kernel asks for, of the same device, that no other call uses meanwhile.
  Stream const* sideStreams = nullptr;
  // Of messages between pairs of ranks (message_group.hpp), in place of team and buffers.
  layout::PointToPointHandle const* links = nullptr;
  layout::Messages const* messages = nullptr;
};

// What one kernel has been compiled for.
struct KernelKey {
  DeviceKind machine = DeviceKind::cuda;
  Collective collective = Collective::allReduce;
  std::string algorithm;
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::none;
  int ranks = 0;  // the team size that the kernel is compiled for, 0 for any

  friend auto operator<=>(KernelKey const&, KernelKey const&) = default;
};

// What the host does with a kernel, and what the kernel asks of a call.
struct Kernel {
  // Puts it into the call's stream, in the call's shape, and returns.
  void (*start)(KernelCall const&) = nullptr;
  // The workspace with which a launch of that shape takes the fewest rounds.
  layout::WorkspaceRequirement (*requirement)(std::uint32_t ranks, std::uint32_t blocks,
                                              std::uint32_t threads) = nullptr;
  // The launch for `bytes` of the smaller buffer (KernelCall::count, in bytes), with at most so many blocks.
  LaunchShape (*shape)(std::uint32_t ranks, std::uint64_t bytes, std::uint32_t maxBlocks) = nullptr;
  bool needsWholeLines = false;  // runs only where all links deliver 128-byte lines whole, in blocks of a warp or more
  bool inputWindow = false;      // reads the peers' input: their buffers must be registered
  bool outputWindow = false;     // writes the peers' output
  bool multicast = false;        // goes through the switch between the devices, by multicast addresses
  bool inPlace = true;           // input and output may be one buffer, in the collective's own way
  bool rankOrder = true;         // contributions are combined as in rank order, and rounded once
  bool packets = false;          // data comes with its flags
  bool overlaps = false;         // may be launched while the kernel ahead still runs, and waits for it itself
  unsigned minThreads = 1;       // per block
  unsigned maxThreads = 512;
  unsigned minBlocks = 1;
  unsigned sideStreams = 0;  // beside that of the call, for work that goes on meanwhile
};

class KernelTable {
 public:
  // Holds the kernels of this build.
  static KernelTable& instance();

  // Replaces a kernel of the same key. From any thread, not while another one uses what find() returned for the key.
  void add(KernelKey key, Kernel const& kernel);

  // The kernel for exactly key.ranks, else the one for any number; null where there is none. Stays valid.
  Kernel const* find(KernelKey key) const;
  // Counts the additions; takes no lock.
  std::uint64_t generation() const noexcept { return generation_.load(std::memory_order_acquire); }
  bool has(DeviceKind machine) const;
  // Names of the algorithms of a collective, for any machine, type and operation.
  std::vector<std::string> algorithms(Collective collective) const;
  // Names of the algorithms that are there for this type and operation and so many ranks, 0: for any number, in the
  // order in which they were first added.
  std::vector<std::string> algorithms(DeviceKind machine, Collective collective, DataType type, ReduceOp op,
                                      int ranks = 0) const;

 private:
  KernelTable();

  mutable std::mutex mutex_;
  std::atomic<std::uint64_t> generation_{0};
  std::map<KernelKey, Kernel> kernels_;
  std::vector<std::string> names_;  // in order of addition
};

}  // namespace mscclpp
