// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Types and operations by the numbers that NCCL's interface has for them.
#pragma once

#include <array>

#include "mscclpp/device/data_type.hpp"

namespace mscclpp::detail {

inline constexpr std::array ncclTypes{DataType::int8,     DataType::uint8,      DataType::int32,
                                      DataType::uint32,   DataType::int64,      DataType::uint64,
                                      DataType::float16,  DataType::float32,    DataType::float64,
                                      DataType::bfloat16, DataType::float8E4M3, DataType::float8E5M2};
inline constexpr std::array ncclOperations{ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::avg};

}  // namespace mscclpp::detail
