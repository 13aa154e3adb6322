// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: this program is wrong
#include "mscclpp/dsl/build.hpp"

using namespace mscclpp;

struct Program {
  static constexpr dsl::Spec spec{.name = "out_of_bounds", .collective = dsl::allGather(1)};
  static constexpr void define(dsl::Builder& p) {
#if defined(MSCCLPP_EXPECT_FAILURE)
    int const chunk = 1;
#else
    int const chunk = 0;
#endif
    p.rank(0).copy(p.rank(0).output()[chunk], p.rank(0).input()[0]);
  }
};
static_assert(dsl::verify<Program>());
