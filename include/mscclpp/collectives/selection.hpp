// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The question which algorithm to use, and the answer. All ranks must choose alike, so whoever answers goes by what the
// ranks share: everything in SelectionRequest.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/algorithms/core/traits.hpp"
#include "mscclpp/collectives/cost_model.hpp"
#include "mscclpp/device/data_type.hpp"
#include "mscclpp/host/runtime.hpp"

namespace mscclpp {

// What a choice may depend on; the same on all ranks of a call.
struct SelectionRequest {
  Collective collective = Collective::allReduce;
  int ranks = 1;
  // The whole buffer: of all-gather and gather the output, of the others the input.
  std::uint64_t bytes = 0;
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::none;
  bool symmetric = false;
  DeviceKind machine = DeviceKind::cuda;
  std::string device;      // its product name
  bool wholeLines = true;  // all links deliver 128-byte lines whole
};

// Blocks and threads as in CollectiveCall; those of the call go before these.
struct Selection {
  std::string algorithm;
  int blocks = 0;
  int threads = 0;

  friend bool operator==(Selection const&, Selection const&) = default;
};

using Selector = std::function<std::optional<Selection>(SelectionRequest const&)>;

// The library's own rule where nobody has tuned: names of the kernel table, the best first. Some may refuse the call.
// What was measured on 4 H200 where that is what there is, else what the cost model predicts.
std::vector<std::string> preferredAlgorithms(SelectionRequest const& request);
// By the cost model alone.
std::vector<std::string> preferredAlgorithms(SelectionRequest const& request, MachineModel const& model);

// One algorithm of predictions(), and its time as predict() has it.
struct AlgorithmPrediction {
  std::string algorithm;
  double seconds = 0;
};
// Of all algorithms of the kernel table that the model knows, with their own launch shapes, the fastest first.
std::vector<AlgorithmPrediction> predictions(SelectionRequest const& request, MachineModel const& model);

}  // namespace mscclpp
