// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The installed kernels are all there: nothing was dropped by the linker.
#include <cstdio>

#include "mscclpp/collectives/algorithm_collection.hpp"

int main() {
  auto const algorithms = mscclpp::AlgorithmCollection::defaults();
  auto const names = algorithms.names(mscclpp::Collective::allReduce);
  std::printf("%zu algorithms, %zu of all-reduce\n", algorithms.algorithms().size(), names.size());
  return names.size() >= 9 && algorithms.find(mscclpp::Collective::broadcast, "ll16") != nullptr ? 0 : 1;
}
