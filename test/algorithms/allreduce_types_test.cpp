// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every element type and operation.
#include "mscclpp/algorithms/collective/allreduce.hpp"

#include <cstdint>

#include "support/allreduce.hpp"

using namespace mscclpp_test;

TEST_CASE_TEMPLATE("every type is reduced", T, float, double, Half, BFloat16, Float8E4M3, Float8E5M2, std::int8_t,
                   std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t,
                   std::uint64_t) {
  checkAlgorithm<"oneshot_ll16", T>({.ranks = 3, .counts = {1, 501}});
  checkAlgorithm<"twoshot_ll128", T>({.ranks = 3, .counts = {1, 501}, .offset = 1});
}

TEST_CASE_TEMPLATE("every operation, on floats and integers", Op, Sum, Prod, Min, Max, Avg) {
  checkAlgorithm<"oneshot_ll128", float, Op>({.ranks = 3, .counts = {700}});
  checkAlgorithm<"twoshot_ll16", std::int32_t, Op>({.ranks = 3, .counts = {700}});
  checkAlgorithm<"twoshot_memory", BFloat16, Op>({.ranks = 3, .counts = {700}});
  checkAlgorithm<"oneshot_ll8", std::int8_t, Op>({.ranks = 3, .counts = {700}});
}

TEST_CASE("the accumulate type can be chosen") {
  static_assert(!ReduceOperation<Sum, Half>, "storage types have no arithmetic of their own");
  using InDouble = NamedAllReduce<"twoshot_ll128", Sum, 0, double>;
  check<InDouble, float, Sum, double>({.counts = {777}});
}
