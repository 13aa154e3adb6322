// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NVIDIA's own library, for what this one does not do: loaded from MSCCLPP_NCCL_LIB_PATH, and called by the names
// behind a p, since its others may be taken for this library's.
//
// MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION=allreduce,send names what goes there in any case; `all` is everything.
#pragma once

#include <string>

#include "mscclpp/algorithms/core/traits.hpp"
#include "nccl/functions.hpp"

namespace mscclpp::nccl {

struct RealNccl {
  // Null where the environment names none. Throws for one that cannot be used. Loaded once.
  static RealNccl const* instance();

  int version = 0;
  decltype(&ncclGetUniqueId) getUniqueId;
  decltype(&ncclGetLastError) getLastError;
  decltype(&ncclCommInitRank) commInitRank;
  decltype(&ncclCommDestroy) commDestroy;
  decltype(&ncclCommAbort) commAbort;
  decltype(&ncclCommGetAsyncError) commGetAsyncError;
  decltype(&ncclGroupStart) groupStart;
  decltype(&ncclGroupEnd) groupEnd;
  decltype(&ncclRedOpCreatePreMulSum) redOpCreatePreMulSum;
  decltype(&ncclRedOpDestroy) redOpDestroy;
  decltype(&ncclAllReduce) allReduce;
  decltype(&ncclReduce) reduce;
  decltype(&ncclReduceScatter) reduceScatter;
  decltype(&ncclAllGather) allGather;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) recv;
  // Null in versions before 2.28.
  decltype(&ncclAlltoAll) allToAll;
  decltype(&ncclGather) gather;
  decltype(&ncclScatter) scatter;

  // Throws, with its own words, for any result but success.
  void require(ncclResult_t result, char const* function) const;
};

// What the environment sends there. Throws for a name that there is not.
class Forced {
 public:
  static Forced const& instance();
  static Forced parse(std::string const& list);

  bool holds(Collective collective) const noexcept { return (bits_ >> static_cast<unsigned>(collective) & 1) != 0; }
  unsigned bits() const noexcept { return bits_; }

 private:
  unsigned bits_ = 0;  // by Collective
};

}  // namespace mscclpp::nccl
