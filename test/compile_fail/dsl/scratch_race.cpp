// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// expect: this program is wrong
// expect: rank 0 block 1 step 0 \(copy\) reads scratch\[0\] of rank 0
#include "mscclpp/dsl/build.hpp"

using namespace mscclpp;

struct Program {
  static constexpr dsl::Spec spec{.name = "scratch_race", .collective = dsl::allGather(1)};
  static constexpr void define(dsl::Builder& p) {
    auto const rank = p.rank(0);
    auto const scratch = rank.scratch(1);
    rank.copy(scratch[0], rank.input()[0], {.tb = 0});
#if !defined(MSCCLPP_EXPECT_FAILURE)
    rank.barrier({0, 1});
#endif
    rank.copy(rank.output()[0], scratch[0], {.tb = 1});
  }
};
static_assert(dsl::verify<Program>());
