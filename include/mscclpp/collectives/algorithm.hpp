// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A collective that the host starts: one call per rank, the same interface for the library's compiled kernels and for a
// user's own (native_algorithm.hpp).
//
//   algorithm.execute(communicator, in, out, inBytes, outBytes, DataType::bfloat16, ReduceOp::sum, stream);
//   algorithm.execute(communicator, stream, {.in = in, .out = out, .inBytes = n, .outBytes = n, .type = ...});
//
// It puts the work into the stream and returns. What it needs beside the buffers is made at the first call with that
// communicator and stream, also while the stream is captured into a graph, and kept (contexts.hpp). Therefore the ranks
// of a communicator make the same calls in the same order: collective, algorithm, sizes, type, operation, launch shape,
// root, `symmetric`, and streams that correspond. Input that cannot be right is refused before anything is started, by
// an Error that names rank, collective, value and limit; what only other ranks could see is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "mscclpp/algorithms/core/traits.hpp"
#include "mscclpp/collectives/kernel_table.hpp"
#include "mscclpp/collectives/world.hpp"
#include "mscclpp/device/data_type.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/stream.hpp"

namespace mscclpp {

// Further arguments of a user's algorithm, by name; the library's own take none.
using Extras = std::unordered_map<std::string, std::uintptr_t>;

// What one rank asks for: its buffers, how many bytes they have, and how it shall be done.
struct CollectiveCall {
  void const* in = nullptr;
  void* out = nullptr;
  std::size_t inBytes = 0;
  std::size_t outBytes = 0;
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::none;  // where the collective reduces
  int blocks = 0;                // 0: chosen by size
  int threads = 0;               // per block; 0: likewise
  // Every rank's buffers of this call are as large and lie as far into their allocations as those of all others, and
  // are freed by all or by none: algorithms may use the peers' buffers directly.
  bool symmetric = false;
  int root = 0;  // of broadcast, reduce, gather and scatter
  Extras extras{};
  // Only algorithms that combine contributions as in rank order and round once: results have the same bits, whichever
  // of them is chosen.
  bool rankOrder = false;
};

// A kernel of the library, as one call starts it.
struct KernelLaunch {
  Kernel const* kernel = nullptr;
  LaunchShape shape{};
  std::size_t count = 0;  // as KernelCall::count
  layout::WorkspaceRequirement requirement{};
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;

  virtual std::string const& name() const noexcept = 0;
  virtual Collective collective() const noexcept = 0;
  // Why this call cannot be done, as a sentence; empty where it can. The same on all ranks for the same call.
  virtual std::string refusal(World const& world, CollectiveCall const& call) const = 0;
  std::string refusal(Communicator const& communicator, CollectiveCall const& call) const {
    return refusal(World::of(communicator), call);
  }
  // What execute() starts for a call that is right and not refused; nothing where the algorithm does that by itself.
  virtual std::optional<KernelLaunch> launchFor(World const& world, CollectiveCall const& call) const;
  virtual void execute(Communicator const& communicator, Stream const& stream, CollectiveCall const& call) const = 0;

  void execute(Communicator const& communicator, void const* in, void* out, std::size_t inBytes, std::size_t outBytes,
               DataType type, ReduceOp op, Stream const& stream, int blocks = 0, int threads = 0,
               bool symmetric = false, int root = 0, Extras const& extras = {}) const {
    execute(communicator, stream, {in, out, inBytes, outBytes, type, op, blocks, threads, symmetric, root, extras});
  }
  // `nativeStream`: a cudaStream_t of somebody else.
  void execute(Communicator const& communicator, void const* in, void* out, std::size_t inBytes, std::size_t outBytes,
               DataType type, ReduceOp op, void* nativeStream, int blocks = 0, int threads = 0, bool symmetric = false,
               int root = 0, Extras const& extras = {}) const {
    execute(communicator, in, out, inBytes, outBytes, type, op, Stream::borrow(communicator.device(), nativeStream),
            blocks, threads, symmetric, root, extras);
  }
};

inline std::optional<KernelLaunch> Algorithm::launchFor(World const&, CollectiveCall const&) const { return {}; }

}  // namespace mscclpp
