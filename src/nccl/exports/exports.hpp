// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the interface's functions are defined.
#pragma once

#include "nccl/functions.hpp"
#include "nccl/group.hpp"
#include "nccl/result.hpp"

// Every function exists twice, as in NCCL: under its name, which a tool may replace, and behind a p.
#define MSCCLPP_NCCL_FUNCTION(name) \
  extern "C" __attribute__((weak, alias("p" #name), visibility("default"))) decltype(p##name) name

namespace mscclpp::nccl {

// For functions that may be called between ncclGroupStart and ncclGroupEnd.
template <class F>
ncclResult_t grouped(char const* function, F&& body) noexcept {
  auto const code = guarded(function, static_cast<F&&>(body));
  if (code != ncclSuccess && code != ncclInProgress) spoilGroup(code);
  return code;
}

}  // namespace mscclpp::nccl
