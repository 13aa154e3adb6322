// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A communicator's counterpart in NVIDIA's own library, made when it is first needed.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "mscclpp/host/communicator.hpp"
#include "nccl/fallback/real_nccl.hpp"
#include "nccl/operation.hpp"

namespace mscclpp::nccl {

class Shadow {
 public:
  Shadow(RealNccl const& real, Communicator const& communicator) : real_(real), communicator_(communicator) {}
  ~Shadow();
  Shadow(Shadow const&) = delete;
  Shadow& operator=(Shadow const&) = delete;

  // Why NCCL's version there cannot do it; empty where it can.
  std::string refusal(Collective collective) const;
  // All of them in one group. Collective where it is the first call.
  void start(std::span<Operation const> operations);
  void abort() noexcept;
  ncclResult_t asyncError();

 private:
  void make();
  void startOne(Operation const& operation) const;

  RealNccl const& real_;
  Communicator const& communicator_;
  std::mutex mutex_;
  std::atomic<ncclComm_t> comm_{nullptr};
};

}  // namespace mscclpp::nccl
