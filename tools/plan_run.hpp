// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a plan on GPUs or simulated ones and compares every element that its collective demands with what must come out,
// before and after the calls that are timed, as the benchmark times them. The ranks are threads of this process, or
// processes that a launcher started, each of which makes the call; on several hosts too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mscclpp/device/data_type.hpp"
#include "mscclpp/dsl/execution_plan.hpp"
#include "mscclpp/host/launcher.hpp"
#include "report/report.hpp"

namespace mscclpp::tools {

struct PlanRun {
  DeviceKind device;
  std::uint64_t bytes;  // of a rank's larger buffer
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  dsl::PlanPackets packets = dsl::PlanPackets::ll16;
  bool compiled = false;  // as code, compiled first; else interpreted
  bench::LaunchMode launch = bench::LaunchMode::graph;
  int operations = 1;  // timed ones, of one replay
  int replays = 1;
  std::uint64_t seed = 1;
};

struct PlanRunResult {
  std::uint64_t compared = 0;  // elements, of all ranks and both calls
  std::uint64_t wrong = 0;
  std::string form;                   // how the plan was made code, in words; empty where that was not asked for
  std::vector<std::string> findings;  // the first wrong element of each rank of this process, in words
  bench::Report report;               // of one row
};

// Bytes of the larger buffer are multiples of this.
std::uint64_t granularityOf(dsl::ExecutionPlan const& plan, DataType type);
// What the plan's steps do; none where they only move data.
ReduceOp operationOf(dsl::Program const& program);

// Throws Error where the call does not fit the plan or a rank fails, here or in another process.
PlanRunResult runPlan(dsl::ExecutionPlan const& plan, PlanRun const& run, LaunchInfo const& launch);

}  // namespace mscclpp::tools
