// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL as something to compare with: opened when the program runs, so that it is needed neither to build nor to start.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "elements.hpp"
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
  bool supports(ElementType type) const;
  UniqueId makeUniqueId() const;

 private:
  friend class NcclCommunicator;
  struct Functions;
  std::unique_ptr<Functions> functions_;
};

// One rank's communicator on the calling thread's current device.
class NcclCommunicator {
 public:
  // Collective. NCCL itself sets no limit to it.
  NcclCommunicator(NcclLibrary const& library, NcclLibrary::UniqueId const& id, int rank, int ranks);
  ~NcclCommunicator();
  NcclCommunicator(NcclCommunicator const&) = delete;
  NcclCommunicator& operator=(NcclCommunicator const&) = delete;

  void allReduce(void const* in, void* out, std::size_t count, ElementType type, Operation operation,
                 Stream const& stream) const;
  // Ends what the communicator's kernels wait for. It is of no further use.
  void abort() noexcept;

 private:
  void check(int result, char const* operation) const;

  NcclLibrary::Functions const& nccl_;
  void* communicator_ = nullptr;
  int rank_;
};

}  // namespace mscclpp::bench
