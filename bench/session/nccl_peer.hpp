// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL as something to compare with: opened when the program runs, so that it is needed neither to build nor to start.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "mscclpp/algorithms/core/traits.hpp"
#include "mscclpp/device/data_type.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/stream.hpp"

namespace mscclpp::bench {

class NcclLibrary {
 public:
  using UniqueId = std::array<std::byte, 128>;

  // Opens libnccl.so.2; throws Error(unsupported) with the loader's reason where there is none.
  NcclLibrary();
  ~NcclLibrary();
  NcclLibrary(NcclLibrary const&) = delete;
  NcclLibrary& operator=(NcclLibrary const&) = delete;

  std::string version() const;  // "2.28.9"
  // Whether this version has the type.
  bool supports(DataType type) const;
  // Whether it has symmetric windows, since 2.27.
  bool hasWindows() const;
  UniqueId makeUniqueId() const;

 private:
  friend class NcclCommunicator;
  friend class NcclWindow;
  struct Functions;
  std::unique_ptr<Functions> functions_;
};

struct NcclCall {
  Collective collective{};
  void const* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;  // elements, as in KernelCall
  DataType type{};
  ReduceOp op = ReduceOp::none;
  int root = 0;
};

// One rank's communicator on the calling thread's current device.
class NcclCommunicator {
 public:
  // Collective. NCCL itself sets no limit to it.
  NcclCommunicator(NcclLibrary const& library, NcclLibrary::UniqueId const& id, int rank, int ranks);
  // Of the bootstrap's ranks.
  NcclCommunicator(NcclLibrary const& library, Bootstrap& bootstrap);
  ~NcclCommunicator();
  NcclCommunicator(NcclCommunicator const&) = delete;
  NcclCommunicator& operator=(NcclCommunicator const&) = delete;

  // Puts the collective into the stream. All-to-all, gather and scatter are NCCL's own functions since 2.28, and before
  // that a group of its sends and receives, as its documentation writes them.
  void start(NcclCall const& call, Stream const& stream) const;
  // Ends what the communicator's kernels wait for. It is of no further use.
  void abort() noexcept;

 private:
  friend class NcclWindow;
  void check(int result, char const* operation) const;
  // Sends and receives of one group. A null address: nothing to or from anybody.
  void exchange(NcclCall const& call, std::byte const* toEach, std::byte* fromEach, std::byte const* toRoot,
                std::byte* fromRoot, void* stream) const;

  NcclLibrary::Functions const& nccl_;
  void* communicator_ = nullptr;
  int rank_;
  int ranks_;
};

// Memory of NCCL's own, registered so that its symmetric kernels take it: a stronger peer than NCCL on any memory.
class NcclWindow {
 public:
  // Collective over the communicator, which must outlive it.
  NcclWindow(NcclCommunicator const& communicator, std::size_t bytes);
  ~NcclWindow();
  NcclWindow(NcclWindow const&) = delete;
  NcclWindow& operator=(NcclWindow const&) = delete;

  std::byte* data() const noexcept { return static_cast<std::byte*>(memory_); }

 private:
  NcclCommunicator const& communicator_;
  void* memory_ = nullptr;
  void* window_ = nullptr;
};

}  // namespace mscclpp::bench
