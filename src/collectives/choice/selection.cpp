// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/collectives/selection.hpp"

#include <algorithm>
#include <limits>
#include <string_view>

#include "mscclpp/algorithms/tuning.hpp"
#include "mscclpp/collectives/kernel_table.hpp"

namespace mscclpp {
namespace {

constexpr std::uint64_t kibi = 1024;
constexpr std::uint64_t mebi = 1024 * kibi;

// Up to so many bytes from one rank to another, these algorithms, the best first. As measured on 4 H200
// (bench/results), but for scatter by copy engines, which is as all-to-all, and reduce by chain, which loads the links
// as broadcast by chain does and took as long on 2; what is not built, or refuses the call, is passed over. Elsewhere
// the cost model decides.
struct Range {
  std::uint64_t upTo;
  std::vector<std::string_view> names;
};
constexpr auto unlimited = std::numeric_limits<std::uint64_t>::max();

std::vector<Range> ranges(Collective collective) {
  switch (collective) {
    case Collective::allReduce:
      // Smaller ones are in tuning.hpp, which follows where these refuse.
      return {{2 * mebi, {}}, {unlimited, {"twoshot_push_wide"}}};
    case Collective::reduceScatter:
      return {{4 * kibi, {"ll8", "ll128", "ll16"}},
              {2 * mebi, {"ll128", "ll16"}},
              {128 * mebi, {"memory", "ll128"}},
              {unlimited, {"copy_engine", "memory"}}};
    case Collective::reduce:
      return {{8 * kibi, {"ll8", "ll128", "ll16"}},
              {256 * kibi, {"ll128", "ll16"}},
              {4 * mebi, {"pull", "memory"}},
              {128 * mebi, {"pull", "chain", "memory"}},
              {unlimited, {"chain", "push", "pull", "memory"}}};
    case Collective::broadcast:
      return {{8 * kibi, {"ll8", "ll128", "ll16"}},
              {256 * kibi, {"ll128", "ll16"}},
              {8 * mebi, {"push", "memory"}},
              {128 * mebi, {"push_bulk", "push", "memory"}},
              {unlimited, {"chain", "push", "memory"}}};
    default:
      return {{2 * kibi, {"ll8", "ll128", "ll16"}},
              {2 * mebi, {"ll128", "ll16"}},
              {32 * mebi, {"push", "memory"}},
              {unlimited, {"copy_engine", "push", "memory"}}};
  }
}

constexpr std::string_view measuredDevice = "NVIDIA H200";
constexpr int measuredRanks = 4;

std::uint64_t partBytesOf(SelectionRequest const& request) {
  return request.bytes / traitsOf(request.collective).partsOf(static_cast<std::size_t>(request.ranks));
}

KernelKey keyOf(SelectionRequest const& request) {
  return {.machine = request.machine,
          .collective = request.collective,
          .algorithm = {},
          .type = reduces(request.collective) ? request.type : DataType::uint8,
          .op = request.op,
          .ranks = request.ranks};
}

std::vector<std::string> algorithmsThere(SelectionRequest const& request) {
  auto const key = keyOf(request);
  return KernelTable::instance().algorithms(key.machine, key.collective, key.type, key.op);
}

bool contains(std::vector<std::string> const& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// By the table above.
std::vector<std::string> measuredOrder(SelectionRequest const& request, std::vector<std::string> const& there) {
  bool const divided = request.collective != Collective::broadcast && request.collective != Collective::reduce;
  auto const pairBytes = request.bytes / (divided ? static_cast<std::uint64_t>(request.ranks) : 1);
  std::vector<std::string> result;
  auto const add = [&](std::string_view name) {
    if (contains(there, name) && !contains(result, name)) result.emplace_back(name);
  };
  for (auto const& step : ranges(request.collective)) {
    if (pairBytes > step.upTo) continue;
    for (auto name : step.names) add(name);
    break;
  }
  if (request.collective == Collective::allReduce) {
    add(name(chooseAllReduce(static_cast<std::uint32_t>(request.ranks), request.bytes, bytesOf(request.type),
                             request.wholeLines)
                 .algorithm));
  }
  // Whatever else there is, rather than nothing.
  for (auto const& name : there) add(name);
  return result;
}

std::vector<AlgorithmPrediction> predictionsOf(SelectionRequest const& request, MachineModel const& model,
                                               std::vector<std::string> const& there) {
  std::vector<AlgorithmPrediction> result;
  auto key = keyOf(request);
  for (auto const& name : there) {
    key.algorithm = name;
    auto const* const kernel = KernelTable::instance().find(key);
    if (kernel == nullptr || kernel->shape == nullptr) continue;
    auto const shape =
        kernel->shape(static_cast<std::uint32_t>(request.ranks), partBytesOf(request), maxAllReduceBlocks);
    auto const seconds = predict(model, {.ranks = request.ranks,
                                         .collective = request.collective,
                                         .algorithm = name,
                                         .bytes = request.bytes,
                                         .blocks = shape.blocks,
                                         .threads = shape.threads});
    if (seconds) result.push_back({name, *seconds});
  }
  std::stable_sort(result.begin(), result.end(), [](auto const& a, auto const& b) { return a.seconds < b.seconds; });
  return result;
}

}  // namespace

std::vector<AlgorithmPrediction> predictions(SelectionRequest const& request, MachineModel const& model) {
  return predictionsOf(request, model, algorithmsThere(request));
}

std::vector<std::string> preferredAlgorithms(SelectionRequest const& request, MachineModel const& model) {
  auto const there = algorithmsThere(request);
  std::vector<std::string> result;
  for (auto& prediction : predictionsOf(request, model, there)) result.push_back(std::move(prediction.algorithm));
  if (result.size() == there.size()) return result;
  // What the model does not know comes behind, in the order of the table.
  for (auto& name : measuredOrder(request, there)) {
    if (!contains(result, name)) result.push_back(std::move(name));
  }
  return result;
}

std::vector<std::string> preferredAlgorithms(SelectionRequest const& request) {
  auto const& model = MachineModel::of(request.device);
  bool const measured =
      request.ranks == measuredRanks && (request.device == measuredDevice || model.device != request.device);
  return measured ? measuredOrder(request, algorithmsThere(request)) : preferredAlgorithms(request, model);
}

}  // namespace mscclpp
