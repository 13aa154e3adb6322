// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl/operation.hpp"

#include <algorithm>
#include <array>

#include "nccl/result.hpp"

namespace mscclpp::nccl {
namespace {

// By NCCL's numbers.
constexpr std::array types{DataType::int8,    DataType::uint8,    DataType::int32,      DataType::uint32,
                           DataType::int64,   DataType::uint64,   DataType::float16,    DataType::float32,
                           DataType::float64, DataType::bfloat16, DataType::float8E4M3, DataType::float8E5M2};
static_assert(types.size() == ncclNumTypes && types[ncclBfloat16] == DataType::bfloat16);
constexpr std::array operations{ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::avg};
static_assert(operations.size() == ncclNumOps && operations[ncclMin] == ReduceOp::min);

}  // namespace

DataType typeOf(int number) {
  if (number < 0 || number >= ncclNumTypes) {
    refuse(ncclInvalidArgument, "type {}; there are 0 to {}", number, ncclNumTypes - 1);
  }
  return types[static_cast<std::size_t>(number)];
}

std::optional<ReduceOp> builtInOperation(int number) {
  if (number < 0 || number >= ncclNumOps) return std::nullopt;
  return operations[static_cast<std::size_t>(number)];
}

int numberOf(DataType type) { return static_cast<int>(std::ranges::find(types, type) - types.begin()); }

int numberOf(ReduceOp op) { return static_cast<int>(std::ranges::find(operations, op) - operations.begin()); }

}  // namespace mscclpp::nccl
