// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "device/allreduce_kernels.hpp"

namespace mscclpp::bench {
namespace MSCCLPP_BACKEND {
namespace {

bool const entered = [] {
  addAllReduce<BFloat16, Sum, 2>();
  addAllReduce<BFloat16, Sum, 4>();
  addAllReduce<BFloat16, Sum, 8>();
  return true;
}();

}  // namespace
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::bench
