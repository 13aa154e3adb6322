// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: there is no DataType of this number
#include "mscclpp/device/data_type.hpp"

using namespace mscclpp;

#if defined(MSCCLPP_EXPECT_FAILURE)
constexpr auto type = dataTypeOf<short>();
#else
constexpr auto type = dataTypeOf<int>();
#endif
static_assert(type == DataType::int32);
