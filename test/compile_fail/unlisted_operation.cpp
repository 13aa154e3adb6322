// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: there is no ReduceOp with this operation's name
#include "mscclpp/device/data_type.hpp"
#include "mscclpp/device/reduce_op.hpp"

using namespace mscclpp;

struct Product {
  static constexpr std::string_view name = "product";
};

#if defined(MSCCLPP_EXPECT_FAILURE)
constexpr auto operation = reduceOpOf<Product>();
#else
constexpr auto operation = reduceOpOf<Sum>();
#endif
static_assert(operation == ReduceOp::sum);
