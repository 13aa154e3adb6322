// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "device/allreduce_kernels.hpp"

namespace mscclpp::bench {
namespace MSCCLPP_BACKEND {
namespace {

bool const entered = [] {
  addAllReduce<std::int8_t, Sum>();
  addAllReduce<std::uint8_t, Sum>();
  return true;
}();

}  // namespace
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::bench
