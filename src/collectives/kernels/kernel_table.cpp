// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/collectives/kernel_table.hpp"

#include <algorithm>
#include <utility>

#include "collectives/kernels/enter_kernels.hpp"

namespace mscclpp {

KernelTable& KernelTable::instance() {
  static KernelTable table;
  return table;
}

KernelTable::KernelTable() {
  // Called, not left to static objects, which a linker drops with their file.
#if defined(MSCCLPP_COLLECTIVES_SIM)
  collectives_impl::enterKernels(*this, MachineTag<DeviceKind::sim>{});
#endif
#if defined(MSCCLPP_COLLECTIVES_CUDA)
  collectives_impl::enterKernels(*this, MachineTag<DeviceKind::cuda>{});
#endif
}

void KernelTable::add(KernelKey key, Kernel const& kernel) {
  std::lock_guard const lock(mutex_);
  if (std::find(names_.begin(), names_.end(), key.algorithm) == names_.end()) names_.push_back(key.algorithm);
  kernels_.insert_or_assign(std::move(key), kernel);
  generation_.fetch_add(1, std::memory_order_release);
}

Kernel const* KernelTable::find(KernelKey key) const {
  std::lock_guard const lock(mutex_);
  for (int compiledFor : {key.ranks, 0}) {
    key.ranks = compiledFor;
    auto const found = kernels_.find(key);
    if (found != kernels_.end()) return &found->second;
  }
  return nullptr;
}

bool KernelTable::has(DeviceKind machine) const {
  std::lock_guard const lock(mutex_);
  return std::any_of(kernels_.begin(), kernels_.end(),
                     [&](auto const& entry) { return entry.first.machine == machine; });
}

std::vector<std::string> KernelTable::algorithms(Collective collective) const {
  std::lock_guard const lock(mutex_);
  std::vector<std::string> result;
  for (auto const& name : names_) {
    if (std::any_of(kernels_.begin(), kernels_.end(), [&](auto const& entry) {
          return entry.first.collective == collective && entry.first.algorithm == name;
        })) {
      result.push_back(name);
    }
  }
  return result;
}

std::vector<std::string> KernelTable::algorithms(DeviceKind machine, Collective collective, DataType type, ReduceOp op,
                                                 int ranks) const {
  std::lock_guard const lock(mutex_);
  std::vector<std::string> result;
  for (auto const& name : names_) {
    bool const there = kernels_.contains({machine, collective, name, type, op, ranks}) ||
                       kernels_.contains({machine, collective, name, type, op, 0});
    if (there) result.push_back(name);
  }
  return result;
}

}  // namespace mscclpp
