// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long each algorithm takes, from a few figures of the machine: latencies and bandwidths that mscclpp-bench
// --limits measures once. For choosing where nobody has tuned, and for planning. docs/cost_model.md tells the formulas
// and how far off they are.
//
// One host, all links alike, nothing else on them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mscclpp/algorithms/core/traits.hpp"

namespace mscclpp {

// Times in seconds, bandwidths in bytes a second.
struct MachineModel {
  std::string device;
  double multiprocessors = 0;
  double kernelTime = 0;     // of a kernel in a chain: its overlapped launch, first load and last store
  double launchGap = 0;      // more, where the launch may not overlap the kernel ahead
  double packetTime = 0;     // packets stored to a peer and read there
  double barrierTime = 0;    // a barrier of all ranks by signals, behind what they stored
  double stageTime = 0;      // from the barrier until what lies in the stage is in registers
  double bulkTime = 0;       // a bulk copy into shared memory and out of it, before the first byte leaves
  double copyTime = 0;       // a copy by a copy engine, behind another one
  double copyCallTime = 0;   // around such copies: two barriers and the changes between kernel and copy
  double copyChunkTime = 0;  // a chunk that is reduced between copies
  double storeRate = 0;      // out of a GPU by stores to its peers, from very many blocks
  double storeRamp = 0;      // blocks with which half of storeRate would be reached, were they not bound themselves
  double loadRate = 0;       // into a GPU by loads from its peers
  double copyRate = 0;       // out of a GPU by copy engines
  double blockRate = 0;      // what one multiprocessor stores, and loads of what has just come
  double memoryRate = 0;     // of the local memory, reads plus writes

  // For `device`: of the files that MSCCLPP_MODEL names, else built in, else of the H200, the closest that is known.
  static MachineModel const& of(std::string_view device);
  // Null where none is built in.
  static MachineModel const* builtIn(std::string_view device);

  // Throw invalidUsage that names `source`, the parameter, what is there and what is allowed.
  static MachineModel parse(std::string_view json, std::string const& source);
  static MachineModel load(std::string const& path);
  std::string json() const;
  void save(std::string const& path) const;

  friend bool operator==(MachineModel const&, MachineModel const&) = default;
};

// The parameters as the JSON has them: a value there times `unit` is the member.
struct ModelParameter {
  // An alias, for nvcc writes a plain declarator out with parentheses that g++ warns of.
  using Member = double MachineModel::*;
  std::string_view name;
  Member member;
  double unit;
};
inline constexpr double microsecond = 1e-6;
inline constexpr double gigabyte = 1e9;
inline constexpr std::array modelParameters{
    ModelParameter{"multiprocessors", &MachineModel::multiprocessors, 1},
    ModelParameter{"kernel_us", &MachineModel::kernelTime, microsecond},
    ModelParameter{"launch_gap_us", &MachineModel::launchGap, microsecond},
    ModelParameter{"packet_us", &MachineModel::packetTime, microsecond},
    ModelParameter{"barrier_us", &MachineModel::barrierTime, microsecond},
    ModelParameter{"stage_us", &MachineModel::stageTime, microsecond},
    ModelParameter{"bulk_us", &MachineModel::bulkTime, microsecond},
    ModelParameter{"copy_us", &MachineModel::copyTime, microsecond},
    ModelParameter{"copy_call_us", &MachineModel::copyCallTime, microsecond},
    ModelParameter{"copy_chunk_us", &MachineModel::copyChunkTime, microsecond},
    ModelParameter{"store_gbps", &MachineModel::storeRate, gigabyte},
    ModelParameter{"store_ramp_blocks", &MachineModel::storeRamp, 1},
    ModelParameter{"load_gbps", &MachineModel::loadRate, gigabyte},
    ModelParameter{"copy_gbps", &MachineModel::copyRate, gigabyte},
    ModelParameter{"block_gbps", &MachineModel::blockRate, gigabyte},
    ModelParameter{"memory_gbps", &MachineModel::memoryRate, gigabyte},
};

// One algorithm in one launch shape, of which the time is asked for.
struct CostQuery {
  int ranks = 1;
  Collective collective = Collective::allReduce;
  std::string_view algorithm;
  std::uint64_t bytes = 0;  // the whole buffer, as in SelectionRequest
  unsigned blocks = 1;
  unsigned threads = 1;
  bool overlapped = true;  // the launch with the kernel ahead
};

// Seconds from one call to the next in a chain; nothing where the model does not know the algorithm. Throws
// invalidUsage where ranks, blocks or threads cannot be.
std::optional<double> predict(MachineModel const& model, CostQuery const& query);

}  // namespace mscclpp
