// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What CUDA's driver says of the GPUs, without CUDA's runtime: also where this build has none, and where the two do not
// go together. Nothing is allocated, and multicast is only asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/cuda/fabric_driver.hpp"

namespace mscclpp::doctor {

struct Gpu {
  std::string name;
  std::string busId;  // as the kernel writes it: 0000:17:00.0
  std::uint64_t bytes = 0;
  int multiprocessors = 0;
  int computeMajor = 0;
  int computeMinor = 0;
  int copyEngines = 0;
  bool multicast = false;
  int links = -1;               // of NVLink that are up; -1: nobody says
  FabricState fabric{};         // that joins hosts
  bool fabricHandles = false;   // by which memory goes to them
  std::vector<bool> reaches{};  // by GPU: its memory can be mapped
  std::vector<bool> atomics{};  // by GPU: atomic operations go there
};

struct Gpus {
  std::string library{};  // the file of the driver's library; empty: none could be loaded
  std::string why{};      // nothing can be used: the sentence
  int version = 0;        // of CUDA, as 13000
  std::vector<Gpu> all{};
};

Gpus askDriver();

}  // namespace mscclpp::doctor
