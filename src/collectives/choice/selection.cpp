// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/collectives/selection.hpp"

#include <algorithm>
#include <limits>
#include <string_view>

#include "mscclpp/algorithms/catalogue.hpp"
#include "mscclpp/collectives/kernel_table.hpp"

namespace mscclpp {
namespace {

constexpr std::uint64_t kibi = 1024;
constexpr std::uint64_t mebi = 1024 * kibi;

// Up to so many bytes from one rank to another, these algorithms, the best first. As measured on 4 H200 and, between
// buffers of any kind, on 4 H100 (bench/results), but for scatter by copy engines, which is as all-to-all; what is not
// built, or refuses the call, is passed over. Reduce-scatter by copy engines won 2 % where the ranks are threads, and
// took 1.6 times as long where they are processes. Elsewhere the cost model decides.
struct Range {
  std::uint64_t upTo;
  std::vector<std::string_view> names;
};
constexpr auto unlimited = std::numeric_limits<std::uint64_t>::max();

std::vector<Range> ranges(Collective collective, bool wholeLines) {
  switch (collective) {
    case Collective::allReduce:
      if (!wholeLines) {
        return {{kibi / 8, {"oneshot_ll8", "oneshot_ll16"}},
                {24 * kibi, {"oneshot_ll16"}},
                {256 * kibi, {"twoshot_ll16"}},
                {2 * mebi, {"twoshot_memory"}},
                {24 * mebi, {"twoshot_push_wide", "twoshot_memory"}},
                {unlimited, {"twoshot_push_wide", "twoshot_memory_wide"}}};
      }
      return {{kibi / 2, {"oneshot_ll16"}},
              {48 * kibi, {"oneshot_ll128"}},
              {2 * mebi, {"twoshot_ll128"}},
              {5 * mebi / 2, {"twoshot_push_wide", "twoshot_ll128"}},
              {24 * mebi, {"twoshot_push_wide", "twoshot_memory"}},
              {unlimited, {"twoshot_push_wide", "twoshot_memory_wide"}}};
    case Collective::reduceScatter:
      return {{4 * kibi, {"ll8", "ll128", "ll16"}}, {2 * mebi, {"ll128", "ll16"}}, {unlimited, {"memory", "ll128"}}};
    case Collective::reduce:
      return {{8 * kibi, {"ll8", "ll128", "ll16"}},
              {256 * kibi, {"ll128", "ll16"}},
              {mebi, {"twoshot_ll128", "pull", "memory"}},
              {8 * mebi, {"twoshot_ll128", "pull", "chain"}},
              {64 * mebi, {"pull", "twoshot_ll128", "chain"}},
              {128 * mebi, {"pull", "chain", "memory"}},
              {unlimited, {"chain", "push", "pull", "memory"}}};
    case Collective::broadcast:
      return {{8 * kibi, {"ll8", "ll128", "ll16"}},
              {256 * kibi, {"ll128", "ll16"}},
              {mebi, {"twoshot_ll128", "push", "memory"}},
              {8 * mebi, {"twoshot_ll128", "push", "chain_staged"}},
              {24 * mebi, {"twoshot_ll128", "push_bulk", "push", "twoshot_memory", "chain_staged"}},
              {96 * mebi, {"twoshot_ll128", "push_bulk", "push", "chain_staged", "memory"}},
              {unlimited, {"chain", "push", "chain_staged", "memory"}}};
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
  return KernelTable::instance().algorithms(key.machine, key.collective, key.type, key.op, key.ranks);
}

bool contains(std::vector<std::string> const& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// By the table above.
std::vector<std::string_view> measuredOrder(SelectionRequest const& request) {
  bool const divided = request.collective != Collective::broadcast && request.collective != Collective::reduce;
  auto const pairBytes = request.bytes / (divided ? static_cast<std::uint64_t>(request.ranks) : 1);
  for (auto& step : ranges(request.collective, request.wholeLines)) {
    if (pairBytes <= step.upTo) return std::move(step.names);
  }
  return {};
}

std::vector<AlgorithmPrediction> predictionsOf(SelectionRequest const& request, MachineModel const& model,
                                               std::vector<std::string> const& there) {
  std::vector<AlgorithmPrediction> result;
  auto key = keyOf(request);
  for (auto const& name : there) {
    key.algorithm = name;
    auto const* const kernel = KernelTable::instance().find(key);
    if (kernel == nullptr || kernel->shape == nullptr) continue;
    auto const shape = kernel->shape(static_cast<std::uint32_t>(request.ranks), partBytesOf(request), largestGrid);
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

namespace {

std::vector<std::string> preferred(SelectionRequest const& request, MachineModel const& model, bool measured) {
  auto const there = algorithmsThere(request);
  std::vector<std::string> result;
  auto const add = [&](std::string_view name) {
    if (contains(there, name) && !contains(result, name)) result.emplace_back(name);
  };
  if (request.ranks == 1) add("copy");
  auto const table = measuredOrder(request);
  if (measured) std::for_each(table.begin(), table.end(), add);
  for (auto const& prediction : predictionsOf(request, model, there)) add(prediction.algorithm);
  // What the model does not know.
  std::for_each(table.begin(), table.end(), add);
  std::for_each(there.begin(), there.end(), add);
  return result;
}

}  // namespace

std::vector<std::string> preferredAlgorithms(SelectionRequest const& request, MachineModel const& model) {
  return preferred(request, model, false);
}

std::vector<std::string> preferredAlgorithms(SelectionRequest const& request) {
  auto const& model = MachineModel::of(request.device);
  bool const measured =
      request.ranks == measuredRanks && (request.device == measuredDevice || model.device != request.device);
  return preferred(request, model, measured);
}

}  // namespace mscclpp
