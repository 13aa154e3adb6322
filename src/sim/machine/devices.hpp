// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The simulated devices: their room for blocks, the kernels that wait for it, and the memory that each may use.
//
// Only the host thread that drives the machine calls in, apart from count() and fitsTogether().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "mscclpp/layout/launch_shape.hpp"
#include "mscclpp/sim/runtime.hpp"
#include "sim/memory/heap.hpp"

namespace mscclpp::sim {

class Kernel;

class Devices {
 public:
  explicit Devices(Heap const& heap) : heap_(heap) {}

  void install(MachineOptions const& options);  // as many, without work
  void beginRun(int atLeast);                   // kernels are counted from 0 again
  int count() const { return static_cast<int>(devices_.size()); }

  // ---- room for blocks, whole clusters at a time, in the order in which their kernels come
  void queueBlocks(Kernel& kernel);  // starts as many as there is room for, the others later
  void dropBlocks(Kernel& kernel);   // that have not begun
  void freeBlock(Kernel& kernel);    // one has ended
  // Whether an empty device has room for one of the shape's clusters, for all the kernel's blocks.
  bool fitsTogether(LaunchShape const& shape) const;
  bool fits(Kernel const& kernel) const;

  unsigned numberKernel(int device) { return at(device).launches++; }

  // Whether `device` may use these bytes; true where addresses are not checked.
  bool reaches(int device, std::uintptr_t address, std::size_t bytes);

 private:
  struct Device {
    unsigned freeThreads = 0;
    unsigned launches = 0;                    // in this deterministic run
    std::deque<Kernel*> waiting;              // kernels with blocks that have not begun
    std::array<Heap::Window, 256> windows{};  // where the last accesses went, by address
    std::uint64_t heapGeneration = 0;
  };

  Device& at(int device) { return devices_[static_cast<std::size_t>(device)]; }
  Device& of(Kernel& kernel);
  void startBlocks(Device& device);

  Heap const& heap_;
  unsigned threads_ = 0;  // of each device
  bool checkAddresses_ = true;
  std::vector<Device> devices_;
};

}  // namespace mscclpp::sim
