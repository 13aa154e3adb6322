// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every all-reduce composition, over counts, alignments, rank counts, schedules and launch shapes.
#include "mscclpp/algorithms/collective/allreduce.hpp"

#include <vector>

#include "support/allreduce.hpp"

using namespace mscclpp_test;

namespace {

std::vector<std::size_t> const raggedCounts{1, 0, 7, 8, 60, 61, 479, 1000, 2049};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("every algorithm reduces ragged counts", A, everyAlgorithm) {
  constexpr auto algorithm = A::value;
  checkAlgorithm<algorithm, BFloat16>({.counts = raggedCounts});
  checkAlgorithm<algorithm, float, Sum, 4>({.counts = raggedCounts, .overlap = true, .seed = 2});
  checkAlgorithm<algorithm, float, Sum, 4>({.counts = {333}, .inPlace = true, .seed = 3});
  // Blocks that end in the middle of a warp.
  checkAlgorithm<algorithm, float>({.counts = {1, 2000}, .threads = 100, .seed = 5});
  // Misaligned by one element, and a workspace so small that it takes many rounds.
  checkAlgorithm<algorithm, BFloat16>({.counts = {1, 999}, .offset = 1, .seed = 4});
  checkAlgorithm<algorithm, BFloat16>({.counts = {3000, 50, 3000}, .blocks = 2, .threads = 32, .regionBytes = 4096});
}
template <FixedName A>
struct Algorithm {
  static constexpr auto value = A;
};
TEST_CASE_TEMPLATE_INVOKE(everyAlgorithm, Algorithm<"oneshot_ll8">, Algorithm<"oneshot_ll16">,
                          Algorithm<"oneshot_ll128">, Algorithm<"oneshot_memory">, Algorithm<"twoshot_ll8">,
                          Algorithm<"twoshot_ll16">, Algorithm<"twoshot_ll128">, Algorithm<"twoshot_memory">,
                          Algorithm<"twoshot_memory_wide">);

TEST_CASE("one rank to many ranks") {
  for (int ranks : {1, 2, 3, 5, 8}) {
    CAPTURE(ranks);
    checkAlgorithm<"oneshot_ll8", float>({.ranks = ranks, .counts = {257}});
    checkAlgorithm<"twoshot_ll16", float>({.ranks = ranks, .counts = {257}});
    checkAlgorithm<"twoshot_ll128", float>({.ranks = ranks, .counts = {257}});
    checkAlgorithm<"twoshot_memory", float>({.ranks = ranks, .counts = {257}});
  }
  checkAlgorithm<"twoshot_ll128", float, Sum, 8>({.ranks = 8, .counts = {5000}});
}

#if !defined(__CUDACC__)
TEST_CASE("72 ranks") {
  checkAlgorithm<"oneshot_ll16", float>({.ranks = 72, .counts = {100}, .blocks = 1, .threads = 32});
  checkAlgorithm<"twoshot_ll128", float>({.ranks = 72, .counts = {9999}, .blocks = 1});
}

TEST_CASE("any schedule gives the same result") {
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    CAPTURE(seed);
    checkAlgorithm<"oneshot_ll128", float>({.counts = {130, 5, 260}, .threads = 32, .seed = seed});
    checkAlgorithm<"twoshot_memory", float>({.counts = {130, 5, 260}, .threads = 32, .seed = seed});
  }
}
#endif
