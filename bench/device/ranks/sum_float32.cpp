// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "device/allreduce_kernels.hpp"

namespace mscclpp::bench {
namespace MSCCLPP_BACKEND {
namespace {

bool const entered = [] {
  addAllReduce<float, Sum, 2>();
  addAllReduce<float, Sum, 4>();
  addAllReduce<float, Sum, 8>();
  return true;
}();

}  // namespace
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::bench
