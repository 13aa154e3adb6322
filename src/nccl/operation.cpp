// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl/operation.hpp"

#include <algorithm>

#include "mscclpp/nccl/numbers.hpp"
#include "nccl/result.hpp"

namespace mscclpp::nccl {
namespace {

using detail::ncclOperations;
using detail::ncclTypes;

static_assert(ncclTypes.size() == ncclNumTypes && ncclTypes[ncclBfloat16] == DataType::bfloat16);
static_assert(ncclOperations.size() == ncclNumOps && ncclOperations[ncclMin] == ReduceOp::min);

}  // namespace

DataType typeOf(int number) {
  if (number < 0 || number >= ncclNumTypes) {
    refuse(ncclInvalidArgument, "type {}; there are 0 to {}", number, ncclNumTypes - 1);
  }
  return ncclTypes[static_cast<std::size_t>(number)];
}

std::optional<ReduceOp> builtInOperation(int number) {
  if (number < 0 || number >= ncclNumOps) return std::nullopt;
  return ncclOperations[static_cast<std::size_t>(number)];
}

int numberOf(DataType type) { return static_cast<int>(std::ranges::find(ncclTypes, type) - ncclTypes.begin()); }

int numberOf(ReduceOp op) { return static_cast<int>(std::ranges::find(ncclOperations, op) - ncclOperations.begin()); }

}  // namespace mscclpp::nccl
