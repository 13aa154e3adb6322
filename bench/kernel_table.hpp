// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels that this program holds, by machine, type, operation, algorithm and rank count.
//
// Each source in device/ is compiled once for every machine of the build and enters its kernels when the program
// starts, so the rest of the benchmark is plain C++ and does not know which machines there are.
#pragma once

#include <cstddef>
#include <map>
#include <tuple>

#include "elements.hpp"
#include "mscclpp/algorithms/tuning.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/layout/launch_shape.hpp"
#include "mscclpp/layout/team_handle.hpp"

namespace mscclpp::bench {

struct KernelCall {
  Stream const& stream;
  layout::TeamHandle const& team;
  void const* in;
  void* out;
  std::size_t count;
  LaunchShape shape;
};

using KernelStart = void (*)(KernelCall const&);

class KernelTable {
 public:
  static KernelTable& instance();

  // `ranks`: the team size that the kernel is compiled for, 0 for any.
  void add(DeviceKind machine, ElementType type, Operation operation, AllReduceAlgorithm algorithm, int ranks,
           KernelStart start);

  // The kernel for exactly `ranks`, else the one for any number; null where there is none.
  KernelStart find(DeviceKind machine, ElementType type, Operation operation, AllReduceAlgorithm algorithm,
                   int ranks) const;
  bool has(DeviceKind machine) const;

 private:
  using Key = std::tuple<DeviceKind, ElementType, Operation, AllReduceAlgorithm, int>;
  std::map<Key, KernelStart> kernels_;
};

}  // namespace mscclpp::bench
