// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/others/copy_engine.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

void enterSumIntegers(KernelTable& table) {
  addReductionsAndCopies<std::int8_t, Sum>(table);
  addReductionsAndCopies<std::uint8_t, Sum>(table);
  addReductionsAndCopies<std::int32_t, Sum>(table);
  addReductionsAndCopies<std::uint32_t, Sum>(table);
  addReductionsAndCopies<std::int64_t, Sum>(table);
  addReductionsAndCopies<std::uint64_t, Sum>(table);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
