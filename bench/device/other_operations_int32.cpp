// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "device/allreduce_kernels.hpp"

namespace mscclpp::bench {
namespace MSCCLPP_BACKEND {
namespace {

bool const entered = [] {
  addAllReduce<std::int32_t, Prod>();
  addAllReduce<std::int32_t, Min>();
  addAllReduce<std::int32_t, Max>();
  addAllReduce<std::int32_t, Avg>();
  return true;
}();

}  // namespace
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::bench
