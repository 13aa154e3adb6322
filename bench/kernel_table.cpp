// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "kernel_table.hpp"

#include <algorithm>

namespace mscclpp::bench {

KernelTable& KernelTable::instance() {
  static KernelTable table;
  return table;
}

void KernelTable::add(DeviceKind machine, ElementType type, Operation operation, AllReduceAlgorithm algorithm,
                      int ranks, KernelStart start) {
  kernels_[{machine, type, operation, algorithm, ranks}] = start;
}

KernelStart KernelTable::find(DeviceKind machine, ElementType type, Operation operation, AllReduceAlgorithm algorithm,
                              int ranks) const {
  for (int compiledFor : {ranks, 0}) {
    auto const found = kernels_.find({machine, type, operation, algorithm, compiledFor});
    if (found != kernels_.end()) return found->second;
  }
  return nullptr;
}

bool KernelTable::has(DeviceKind machine) const {
  return std::any_of(kernels_.begin(), kernels_.end(),
                     [&](auto const& entry) { return std::get<DeviceKind>(entry.first) == machine; });
}

}  // namespace mscclpp::bench
