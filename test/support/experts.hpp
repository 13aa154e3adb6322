// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A layer of experts on every rank: tokens go to their experts, which multiply them by a number of their own, and come
// home; beside the same steps on the host, bit for bit. Products are exact; sums are not, so their order shows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mscclpp/algorithms/experts/combine.hpp"
#include "mscclpp/algorithms/experts/dispatch.hpp"
#include "mscclpp/algorithms/experts/hierarchical_combine.hpp"
#include "mscclpp/algorithms/experts/hierarchical_dispatch.hpp"
#include "mscclpp/host/fused/experts.hpp"
#include "mscclpp/host/fused/hierarchical_experts.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/launch/launch.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

namespace mscclpp_test {

enum class Crowd : std::uint8_t { even, skewed, oneExpert, nobody };

struct ExpertsCase {
  int ranks = 2;
  int nodes = 1;  // ranks are numbered node by node
  layout::ExpertLimits limits{.experts = 4, .topK = 2, .tokens = 6, .hidden = 40, .elementBytes = 4, .blocks = 4};
  Crowd crowd = Crowd::even;
  bool byToken = false;
  ExpertWeights weights = ExpertWeights::asRouted;
  std::uint32_t rowsOfExpert = 0;  // 0: packed, as many as come
  std::uint32_t alignment = 1;
  std::uint32_t room = 0;  // rows; 0: as many as can come
  unsigned movers = 0;     // blocks beside those that multiply in one kernel; 0: kernels behind each other
  unsigned layers = 2;
  unsigned repeats = 1;  // of each kernel, with the same result
  unsigned threads = 64;
  bool overlap = false;
  int failed = -1;  // a rank that takes no part from `failedLayer` on; by packets only
  unsigned failedLayer = 0;
  bool failsBetween = false;  // in that layer after its dispatch
  unsigned seed = 1;

  bool hasFailed(int rank, unsigned layer, bool dispatched = false) const {
    return failed >= 0 && rank == failed &&
           (layer > failedLayer || (layer == failedLayer && (dispatched || !failsBetween)));
  }

  // The rank that is number `source`, as origins count; of one node's the same.
  int rankOfSource(int source) const { return source % nodes * (ranks / nodes) + source / nodes; }
  int nodeOf(int rank) const { return rank / (ranks / nodes); }

  unsigned blocks(int rank) const { return 1 + (static_cast<unsigned>(rank) + seed) % limits.blocks; }
  layout::ExpertsLayout layout() const {
    return layout::ExpertsLayout::make(static_cast<std::uint32_t>(ranks), limits);
  }
  RowOrder order() const {
    return byToken             ? RowOrder(ByToken{})
           : rowsOfExpert != 0 ? RowOrder(PaddedByExpert{rowsOfExpert})
                               : RowOrder(PackedByExpert{alignment});
  }
  std::uint32_t rows() const {
    if (room != 0) return room;
    auto const perRank = layout().perRank;
    if (rowsOfExpert != 0) return rowsOfExpert * perRank;
    auto const most = static_cast<std::uint32_t>(ranks) * limits.tokens * limits.topK;
    return roundUp(most + perRank * (alignment - 1), alignment);
  }
};

inline namespace MSCCLPP_BACKEND {

template <class T, class W>
struct DispatchTokens {
  RowOrder order;

  MSCCLPP_DEVICE void operator()(T const* x, Routing<std::int64_t> const& routing, PlacedRows<W> const& out,
                                 DeviceExperts const& experts) const {
    allowNextKernel();
    Dispatch<T, W> const dispatch(experts, thisGrid());
    dispatch.send(thisGrid(), MatrixView{x, routing.tokens, experts.layout.limits.hidden}, routing);
    dispatch.place(thisGrid(), dispatch.layOut(order), out);
    dispatch.end();
  }
};

template <class T, class W>
struct DispatchTokensOverNodes {
  RowOrder order;

  MSCCLPP_DEVICE void operator()(T const* x, Routing<std::int64_t> const& routing, PlacedRows<W> const& out,
                                 DeviceHierarchicalExperts const& experts) const {
    allowNextKernel();
    HierarchicalDispatch<T, W> const dispatch(experts, thisGrid());
    dispatch.exchange(MatrixView{x, routing.tokens, experts.layout.limits.hidden}, routing);
    dispatch.send(thisGrid());
    dispatch.withinNode().place(thisGrid(), dispatch.withinNode().layOut(order), out);
    dispatch.end();
  }
};

// Rows of this rank's expert e times a power of two of the expert's number among all.
template <class T, class W>
MSCCLPP_DEVICE void multiplyRows(PlacedRows<W> const& placed, T* results, DeviceExperts const& experts,
                                 std::uint32_t firstExpert, std::uint32_t e, std::uint32_t first, std::uint32_t count) {
  auto const& layout = experts.layout;
  auto const hidden = layout.limits.hidden;
  auto const expert = firstExpert + e;
  for (auto i = thisBlock().rank(); i < count * hidden; i += thisBlock().size()) {
    auto const row = first + i / hidden, column = i % hidden;
    auto value = convertNumber<float>(*placed.rows.at(row, column));
    if (placed.scales != nullptr) {
      value *= placed.scales[std::size_t{row} * layout.scalesOfRow + column / layout.scaleColumns];
    }
    results[std::size_t{row} * hidden + column] = convertNumber<T>(value * static_cast<float>(1u << expert % 3));
  }
}

// What the kernel before it has placed.
template <class T, class W>
struct Multiply {
  std::uint32_t firstExpert;

  MSCCLPP_DEVICE void operator()(PlacedRows<W> const& placed, T* results, DeviceExperts const& experts) const {
    allowNextKernel();
    waitForPreviousKernel();
    for (std::uint32_t e = thisGrid().blockRank(); e < experts.layout.perRank; e += thisGrid().blockCount()) {
      auto const first = placed.firsts[e];
      auto const room = static_cast<std::uint32_t>(placed.rows.rows);
      multiplyRows(placed, results, experts, firstExpert, e, first,
                   first < room ? minimum(placed.counts[e], room - first) : 0);
    }
  }
};

// The same of rows that were placed once: each by the sum of what its experts here would make of it, weighted.
template <class T, class W>
struct MultiplyOnce {
  std::uint32_t firstExpert;

  MSCCLPP_DEVICE void operator()(PlacedRows<W> const& placed, T* results, DeviceExperts const& experts) const {
    allowNextKernel();
    waitForPreviousKernel();
    auto const& layout = experts.layout;
    auto const hidden = layout.limits.hidden, topK = layout.limits.topK;
    auto const rows = minimum<std::uint64_t>(placed.firsts[experts.size()], placed.rows.rows);
    for (std::size_t i = thisGrid().rank(); i < rows * hidden; i += thisGrid().size()) {
      auto const row = i / hidden, column = i % hidden;
      float factor = 0;
      for (std::uint32_t k = 0; k < topK; ++k) {
        auto const local = placed.experts[row * topK + k];
        if (local < 0) continue;
        auto const expert = firstExpert + static_cast<unsigned>(local);
        factor += static_cast<float>(1u << expert % 3) * placed.weights[row * topK + k];
      }
      auto value = convertNumber<float>(*placed.rows.at(row, column));
      if (placed.scales != nullptr) value *= placed.scales[row * layout.scalesOfRow + column / layout.scaleColumns];
      results[i] = convertNumber<T>(value * factor);
    }
  }
};

// Dispatch in the kernel that multiplies: some blocks move rows, the others take tiles of them as they come.
template <class T, class W>
struct DispatchAndMultiply {
  std::uint32_t tileRows;  // to which experts' rows are aligned
  unsigned movers;

  MSCCLPP_DEVICE void operator()(T const* x, Routing<std::int64_t> const& routing, PlacedRows<W> const& out, T* results,
                                 DeviceExperts const& experts) const {
    allowNextKernel();
    Dispatch<T, W> const dispatch(experts, thisGrid());
    auto const mine = blocksOfGrid(0, movers);
    bool const moves = arch::blockIndex() < movers;
    if (moves) dispatch.send(mine, MatrixView{x, routing.tokens, experts.layout.limits.hidden}, routing);
    auto const& laidOut = dispatch.layOut(PackedByExpert{tileRows});
    if (moves) {
      dispatch.place(mine, laidOut, out);
    } else {
      auto const others = blocksOfGrid(movers, thisGrid().blockCount() - movers);
      for (std::uint32_t e = others.blockRank(); e < experts.layout.perRank; e += others.blockCount()) {
        for (std::uint32_t row = 0; row < laidOut.count[e]; row += tileRows) {
          auto const first = laidOut.first[e] + row, rows = minimum(tileRows, laidOut.count[e] - row);
          if (thisBlock().rank() == 0) dispatch.awaitPlaced(first / tileRows, rows);
          syncWhole(thisBlock());
          auto const firstExpert = static_cast<unsigned>(experts.rank()) * experts.layout.perRank;
          multiplyRows(out, results, experts, firstExpert, e, first, rows);
        }
      }
    }
    dispatch.end();
  }
};

template <class T>
struct CombineTokens {
  MSCCLPP_DEVICE void operator()(T const* results, std::uint32_t rows, Routing<std::int64_t> const& routing, T* y,
                                 ExpertWeights weights, DeviceExperts const& experts) const {
    allowNextKernel();
    Combine<T> const combine(experts, thisGrid());
    combine.send(thisGrid(), MatrixView{results, rows, experts.layout.limits.hidden}, weights);
    combine.fold(thisGrid(), routing, MatrixView{y, routing.tokens, experts.layout.limits.hidden});
    combine.end();
  }
};

template <class T>
struct CombineTokensOverNodes {
  MSCCLPP_DEVICE void operator()(T const* results, std::uint32_t rows, Routing<std::int64_t> const& routing, T* y,
                                 ExpertWeights weights, DeviceHierarchicalExperts const& experts) const {
    allowNextKernel();
    HierarchicalCombine<T> const combine(experts, thisGrid());
    combine.send(thisGrid(), MatrixView{results, rows, experts.layout.limits.hidden}, weights);
    combine.fold(routing, MatrixView{y, routing.tokens, experts.layout.limits.hidden});
    combine.end();
  }
};

// ---- host -----------------------------------------------------------------------------------------------------------

// What each rank has in a layer.
template <class T>
struct ExpertsInput {
  std::uint32_t tokens;
  std::vector<T> x;
  std::vector<std::int64_t> experts;
  std::vector<float> weights;

  static ExpertsInput make(ExpertsCase const& test, unsigned layer, int rank) {
    auto const seed = test.seed * 1000u + layer;
    std::mt19937_64 engine(seed * 131 + static_cast<unsigned>(rank));
    auto const below = [&](std::uint64_t limit) { return static_cast<std::uint32_t>(engine() % limit); };
    auto const& limits = test.limits;
    ExpertsInput input;
    input.tokens = test.crowd == Crowd::even && layer == 0 ? limits.tokens : below(limits.tokens + 1);
    input.x = randomInput<T>(seed, rank, std::size_t{input.tokens} * limits.hidden);
    for (std::uint32_t i = 0; i < input.tokens * limits.topK; ++i) {
      std::int64_t expert = below(limits.experts + 1) - std::int64_t{1};  // now and then none
      if (test.crowd == Crowd::skewed && below(2) == 0) expert = expert % 2;
      if (test.crowd == Crowd::oneExpert) expert = limits.experts - 1;
      if (test.crowd == Crowd::nobody) expert = -1;
      // Mostly another than those before.
      for (std::uint32_t k = 0; expert >= 0 && test.crowd == Crowd::even && k < i % limits.topK; ++k) {
        if (input.experts[i - 1 - k] == expert && limits.experts > 2 * limits.topK) expert = -1;
      }
      input.experts.push_back(expert);
      input.weights.push_back(static_cast<float>(1u << below(3)) / 2);
    }
    return input;
  }
};

// What Dispatch sends of a row, as its receiver sees it.
template <class T, class W>
void wireOf(T const* row, std::uint32_t hidden, W* out, float* scales) {
  if constexpr (std::is_same_v<T, W>) {
    std::copy_n(row, hidden, out);
  } else {
    constexpr auto together = layout::ExpertsLayout::scaleColumns;
    for (std::uint32_t first = 0; first < hidden; first += together) {
      float most = 0;
      auto const end = std::min(first + together, hidden);
      for (auto c = first; c < end; ++c) most = std::max(most, std::abs(convertNumber<float>(row[c])));
      for (auto c = first; c < end; ++c) {
        out[c] = quantised<W>(convertNumber<float>(row[c]) * (most == 0 ? 0 : largestOf<W> / most));
      }
      scales[first / together] = most / largestOf<W>;
    }
  }
}

template <class T, class W>
class ExpertsReference {
 public:
  ExpertsReference(ExpertsCase const& test, std::vector<ExpertsInput<T>> const& inputs)
      : test_(test), layout_(test.layout()), inputs_(inputs) {
    for (int rank = 0; rank < test.ranks; ++rank) {
      Placed all;
      forEachRow(rank, all, [&](std::uint32_t row, int source, std::uint32_t entry) {
        if (row == layout::noExpertRow) dropped_.insert({source, entry});
      });
    }
  }

  struct Placed {
    std::vector<W> rows;
    std::vector<float> scales, weights;
    std::vector<std::uint32_t> firsts, counts, origins;
    std::vector<std::int32_t> experts;
    std::uint32_t dropped = 0;
  };

  // Of what nobody has placed anything all bytes are `filler`.
  Placed placed(int rank, int filler) const {
    auto const hidden = test_.limits.hidden, topK = test_.limits.topK;
    auto const filled = [&](auto& values, std::size_t count) {
      values.resize(count);
      std::memset(static_cast<void*>(values.data()), filler, count * sizeof(values[0]));
    };
    Placed all;
    std::size_t const rows = test_.rows();
    filled(all.rows, rows * hidden);
    filled(all.scales, rows * layout_.scalesOfRow);
    filled(all.origins, rows);
    filled(all.weights, rows * topK);
    filled(all.experts, rows * topK);
    forEachRow(rank, all, [&](std::uint32_t row, int source, std::uint32_t entry) {
      if (row == layout::noExpertRow) return;
      auto const& input = inputs_[at(source)];
      auto const token = entry / topK;
      wireOf(input.x.data() + std::size_t{token} * hidden, hidden, all.rows.data() + std::size_t{row} * hidden,
             all.scales.data() + std::size_t{row} * layout_.scalesOfRow);
      all.origins[row] = static_cast<std::uint32_t>(numberOf(source)) * test_.limits.tokens + token;
      if (!test_.byToken) all.weights[row] = input.weights[entry];
      for (std::uint32_t k = 0; test_.byToken && k < topK; ++k) {
        auto const expert = input.experts[token * topK + k];
        bool const here = expert >= 0 && rankOf(expert) == rank;
        all.weights[std::size_t{row} * topK + k] = here ? input.weights[token * topK + k] : 0;
        all.experts[std::size_t{row} * topK + k] = here ? static_cast<std::int32_t>(expert % layout_.perRank) : -1;
      }
    });
    return all;
  }

  std::vector<T> combined(int rank) const {
    auto const& limits = test_.limits;
    auto const& input = inputs_[at(rank)];
    std::vector<T> y(std::size_t{input.tokens} * limits.hidden);
    std::vector<W> wire(limits.hidden);
    std::vector<float> scales(layout_.scalesOfRow);
    for (std::uint32_t token = 0; token < input.tokens; ++token) {
      wireOf(input.x.data() + std::size_t{token} * limits.hidden, limits.hidden, wire.data(), scales.data());
      for (std::uint32_t c = 0; c < limits.hidden; ++c) {
        auto value = convertNumber<float>(wire[c]);
        if (!std::is_same_v<T, W>) value *= scales[c / layout_.scaleColumns];
        y[std::size_t{token} * limits.hidden + c] = convertNumber<T>(sum(rank, token, value));
      }
    }
    return y;
  }

 private:
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
  int rankOf(std::int64_t expert) const { return static_cast<int>(expert / layout_.perRank); }
  int numberOf(int rank) const {
    int number = 0;
    while (test_.rankOfSource(number) != rank) ++number;
    return number;
  }

  // f(row, source, entry of its routing) for each that is for `rank`, with the tables of what goes where.
  template <class F>
  void forEachRow(int rank, Placed& all, F const& f) const {
    if (test_.byToken) {
      forEachToken(rank, all, f);
    } else {
      forEachEntry(rank, all, f);
    }
  }
  template <class F>
  void forEachToken(int rank, Placed& all, F const& f) const {
    std::uint32_t next = 0;
    all.counts.resize(layout_.perRank);
    for (int number = 0; number < test_.ranks; ++number) {
      int const source = test_.rankOfSource(number);
      auto const& input = inputs_[at(source)];
      if (number % test_.nodes == 0) all.firsts.push_back(next);
      for (std::uint32_t i = 0; i < input.experts.size(); ++i) {
        if (input.experts[i] < 0 || rankOf(input.experts[i]) != rank) continue;
        ++all.counts[static_cast<std::size_t>(input.experts[i] % layout_.perRank)];
        if (!isFirst(input, i)) continue;
        auto const row = next++;
        if (row >= test_.rows()) ++all.dropped;
        f(row < test_.rows() ? row : layout::noExpertRow, source, i);
      }
    }
    all.firsts.push_back(next);
  }
  // Whether an entry is the first of its token on its rank.
  bool isFirst(ExpertsInput<T> const& input, std::uint32_t entry) const {
    auto const topK = test_.limits.topK;
    for (auto other = entry / topK * topK; other < entry; ++other) {
      if (input.experts[other] >= 0 && rankOf(input.experts[other]) == rankOf(input.experts[entry])) return false;
    }
    return true;
  }
  template <class F>
  void forEachEntry(int rank, Placed& all, F const& f) const {
    std::uint32_t next = 0;
    for (std::uint32_t e = 0; e < layout_.perRank; ++e) {
      auto const first = test_.rowsOfExpert != 0 ? e * test_.rowsOfExpert : next;
      std::uint32_t count = 0;
      for (int number = 0; number < test_.ranks; ++number) {
        int const source = test_.rankOfSource(number);
        auto const& input = inputs_[at(source)];
        for (std::uint32_t i = 0; i < input.experts.size(); ++i) {
          if (input.experts[i] != rank * std::int64_t{layout_.perRank} + e) continue;
          auto const among = count++;
          auto const row = first + among;
          if (row >= test_.rows() || (test_.rowsOfExpert != 0 && among >= test_.rowsOfExpert)) {
            ++all.dropped;
            f(layout::noExpertRow, source, i);
          } else {
            f(row, source, i);
          }
        }
      }
      all.firsts.push_back(first);
      all.counts.push_back(test_.rowsOfExpert != 0 ? std::min(count, test_.rowsOfExpert) : count);
      next = roundUp(first + count, test_.alignment);
    }
  }

  // Of what a token's experts make of `value`; of those that had no room for it, nothing. Over nodes the sums of each
  // node, rounded, in the order of the first expert there.
  float sum(int rank, std::uint32_t token, float value) const {
    auto const& input = inputs_[at(rank)];
    auto const topK = test_.limits.topK;
    float total = 0;
    std::vector<bool> done(static_cast<std::size_t>(test_.nodes));
    for (auto entry = token * topK; entry < (token + 1) * topK; ++entry) {
      if (input.experts[entry] < 0) continue;
      int const node = test_.nodeOf(rankOf(input.experts[entry]));
      if (!done[at(node)]) {
        done[at(node)] = true;
        total += convertNumber<float>(convertNumber<T>(sumOfNode(node, rank, token, value)));
      }
    }
    return total;
  }
  float sumOfNode(int node, int rank, std::uint32_t token, float value) const {
    auto const& input = inputs_[at(rank)];
    auto const topK = test_.limits.topK;
    auto const result = [&](std::uint32_t k) {
      auto const expert = input.experts[token * topK + k];
      if (dropped_.contains({rank, token * topK + k})) return 0.0f;
      return convertNumber<float>(convertNumber<T>(value * static_cast<float>(1u << expert % 3)));
    };
    bool const weighted = test_.weights == ExpertWeights::asRouted;
    auto const weight = [&](std::uint32_t k) { return weighted ? input.weights[token * topK + k] : 1; };
    float total = 0;
    for (std::uint32_t k = 0; k < topK; ++k) {
      auto const entry = token * topK + k;
      if (input.experts[entry] < 0 || test_.nodeOf(rankOf(input.experts[entry])) != node) continue;
      if (test_.limits.partOfEach && !test_.byToken) {
        total += result(k) * weight(k);
        continue;
      }
      if (!isFirst(input, entry)) continue;
      float part = 0, factor = 0;
      for (auto other = k; other < topK; ++other) {
        auto const theirs = input.experts[token * topK + other];
        if (theirs < 0 || rankOf(theirs) != rankOf(input.experts[entry])) continue;
        part += result(other) * weight(other);
        factor += static_cast<float>(1u << theirs % 3) * input.weights[token * topK + other];
      }
      if (test_.byToken) part = dropped_.contains({rank, entry}) ? 0 : value * factor;
      total += convertNumber<float>(convertNumber<T>(part));
    }
    return total;
  }

  ExpertsCase const& test_;
  layout::ExpertsLayout layout_;
  std::vector<ExpertsInput<T>> const& inputs_;
  std::set<std::pair<int, std::uint32_t>> dropped_;  // source, entry
};

// Of each rank, as if one had no tokens and nobody any for its experts.
template <class T>
std::vector<ExpertsInput<T>> without(std::vector<ExpertsInput<T>> inputs, int rank, std::uint32_t perRank) {
  auto& gone = inputs[static_cast<std::size_t>(rank)];
  gone.tokens = 0;
  gone.experts.clear();
  for (auto& input : inputs) {
    for (auto& expert : input.experts) expert = expert / perRank == rank ? -1 : expert;
  }
  return inputs;
}

template <class T>
void requireSame(std::string const& what, Rank const& rank, unsigned layer, GpuBuffer<T> const& found,
                 std::vector<T> const& expected) {
  std::vector<T> here(expected.size());
  if (!here.empty()) copyToHost(std::span<T>(here), found);
  if (countDifferent(here, expected) == 0) return;
  throw std::runtime_error(what + " of rank " + std::to_string(rank.rank) + " in layer " + std::to_string(layer) +
                           " is not the reference's");
}

// Both ways by kernels of this file, within one node.
template <class T, class W>
class ByKernels {
 public:
  ByKernels(Communicator const& communicator, layout::ExpertLimits const& limits, ExpertsCase const& test)
      : test_(test), experts_(communicator, limits) {}

  void dispatch(Stream const& stream, LaunchShape const& shape, T const* x, Routing<std::int64_t> const& routing,
                PlacedRows<W> const& placed, std::int32_t const* failed) const {
    launch(stream, shape, DispatchTokens<T, W>{test_.order()}, x, routing, placed, deviceHandle(failed));
  }
  void combine(Stream const& stream, LaunchShape const& shape, T const* results, Routing<std::int64_t> const& routing,
               T* y, std::int32_t const* failed) const {
    launch(stream, shape, CombineTokens<T>{}, results, test_.rows(), routing, y, test_.weights, deviceHandle(failed));
  }
  layout::ExpertsHandle deviceHandle(std::int32_t const* failed) const { return experts_.deviceHandle(failed); }

 private:
  ExpertsCase const& test_;
  Experts experts_;
};

// And over several.
template <class T, class W>
class OverNodes {
 public:
  OverNodes(Communicator const& communicator, layout::ExpertLimits const& limits, ExpertsCase const& test)
      : test_(test), experts_(communicator, limits) {}

  void dispatch(Stream const& stream, LaunchShape const& shape, T const* x, Routing<std::int64_t> const& routing,
                PlacedRows<W> const& placed, std::int32_t const*) const {
    launch(stream, shape, DispatchTokensOverNodes<T, W>{test_.order()}, x, routing, placed,
           DeviceHierarchicalExperts(experts_.deviceHandle()));
  }
  void combine(Stream const& stream, LaunchShape const& shape, T const* results, Routing<std::int64_t> const& routing,
               T* y, std::int32_t const*) const {
    launch(stream, shape, CombineTokensOverNodes<T>{}, results, test_.rows(), routing, y, test_.weights,
           DeviceHierarchicalExperts(experts_.deviceHandle()));
  }
  layout::ExpertsHandle deviceHandle(std::int32_t const*) const { return experts_.withinNode().deviceHandle(); }

 private:
  ExpertsCase const& test_;
  HierarchicalExperts experts_;
};

template <class T, class W = T, class How = ByKernels<T, W>>
void runExperts(Rank& rank, ExpertsCase const& test) {
  auto limits = test.limits;
  limits.blocks += test.movers;
  if (test.movers != 0) limits.gates = test.rows() / test.alignment;
  How const experts(rank.communicator, limits, test);
  auto const layout = test.layout();
  auto const tokens = std::size_t{limits.tokens};
  GpuBuffer<T> const x(rank.device, tokens * limits.hidden), y(rank.device, tokens * limits.hidden),
      results(rank.device, std::size_t{test.rows()} * limits.hidden);
  GpuBuffer<std::int64_t> const indices(rank.device, tokens * limits.topK);
  GpuBuffer<float> const weights(rank.device, tokens * limits.topK),
      scales(rank.device, std::size_t{test.rows()} * layout.scalesOfRow);
  GpuBuffer<W> const rows(rank.device, std::size_t{test.rows()} * limits.hidden);
  GpuBuffer<std::uint32_t> const firsts(rank.device, std::max(layout.perRank, layout.ranks + 1)),
      counts(rank.device, layout.perRank), origins(rank.device, test.rows()), dropped(rank.device, 1);
  std::size_t const entries = std::size_t{test.rows()} * limits.topK;
  GpuBuffer<std::int32_t> const failed(rank.device, static_cast<std::size_t>(test.ranks));
  GpuBuffer<std::uint8_t> const unsent(rank.device, tokens * limits.topK);
  GpuBuffer<std::uint32_t> const unsentCount(rank.device, 1);
  auto const* const mask = test.failed < 0 ? nullptr : failed.data();
  auto const tellFailed = [&](unsigned layer, bool dispatched) {
    if (test.failed < 0) return;
    std::vector<std::int32_t> states;
    for (int r = 0; r < test.ranks; ++r) states.push_back(test.hasFailed(r, layer, dispatched) ? 7 : 0);
    copyToDevice(failed, std::span<std::int32_t const>(states));
  };
  GpuBuffer<float> const placedWeights(rank.device, entries);
  GpuBuffer<std::int32_t> const placedExperts(rank.device, entries);
  PlacedRows<W> const placed{.rows = {rows.data(), test.rows(), limits.hidden},
                             .scales = std::is_same_v<T, W> ? nullptr : scales.data(),
                             .firsts = firsts.data(),
                             .counts = counts.data(),
                             .origins = origins.data(),
                             .weights = placedWeights.data(),
                             .experts = placedExperts.data(),
                             .dropped = test.room != 0 || test.rowsOfExpert != 0 ? dropped.data() : nullptr};
  LaunchShape const shape{.blocks = test.blocks(rank.rank), .threads = test.threads, .overlapPrevious = test.overlap};
  auto const firstExpert = static_cast<std::uint32_t>(rank.rank) * layout.perRank;
  constexpr int filler = 0x2a;
  for (unsigned layer = 0; layer < test.layers; ++layer) {
    std::vector<ExpertsInput<T>> inputs;
    for (int r = 0; r < test.ranks; ++r) inputs.push_back(ExpertsInput<T>::make(test, layer, r));
    auto const& own = inputs[static_cast<std::size_t>(rank.rank)];
    if (own.tokens != 0) {
      copyToDevice(x, std::span<T const>(own.x));
      copyToDevice(indices, std::span<std::int64_t const>(own.experts));
      copyToDevice(weights, std::span<float const>(own.weights));
    }
    rows.fill(filler);
    scales.fill(filler);
    origins.fill(filler);
    placedWeights.fill(filler);
    placedExperts.fill(filler);
    y.fill(filler);
    dropped.fill(0);
    unsent.fill(filler);
    unsentCount.fill(0);
    tellFailed(layer, false);
    bool const sends = !test.hasFailed(rank.rank, layer), combines = !test.hasFailed(rank.rank, layer, true);
    Routing<std::int64_t> const routing{.experts = indices.data(),
                                        .weights = weights.data(),
                                        .tokens = own.tokens,
                                        .topK = limits.topK,
                                        .unsent = mask == nullptr ? nullptr : unsent.data(),
                                        .unsentCount = mask == nullptr ? nullptr : unsentCount.data()};
    auto homeRouting = routing;
    if (test.byToken || test.weights == ExpertWeights::none) homeRouting.weights = nullptr;
    rank.meet();
    for (unsigned repeat = 0; sends && repeat < test.repeats; ++repeat) {
      if (test.movers != 0) {
        auto both = shape;
        both.blocks += test.movers;
        launch(rank.stream, both, DispatchAndMultiply<T, W>{test.alignment, test.movers}, x.data(), routing, placed,
               results.data(), experts.deviceHandle(mask));
      } else {
        experts.dispatch(rank.stream, shape, x.data(), routing, placed, mask);
      }
      rank.pace();
    }
    if (sends && test.byToken) {
      launch(rank.stream, shape, MultiplyOnce<T, W>{firstExpert}, placed, results.data(), experts.deviceHandle(mask));
    } else if (sends && test.movers == 0) {
      launch(rank.stream, shape, Multiply<T, W>{firstExpert}, placed, results.data(), experts.deviceHandle(mask));
    }
    if (sends != combines || (test.failsBetween && layer == test.failedLayer)) {
      rank.synchronize();
      tellFailed(layer, true);
    }
    for (unsigned repeat = 0; combines && repeat < test.repeats; ++repeat) {
      rank.pace();
      experts.combine(rank.stream, shape, results.data(), homeRouting, y.data(), mask);
    }
    rank.synchronize();
    if (!combines) continue;

    bool const unsentAny = test.hasFailed(test.failed, layer);
    if (mask != nullptr) {
      std::vector<std::uint8_t> lost;
      for (auto const expert : own.experts) {
        lost.push_back(unsentAny && expert >= 0 && expert / layout.perRank == test.failed ? 1 : 0);
      }
      auto const count = static_cast<std::uint32_t>(std::count(lost.begin(), lost.end(), 1));
      requireSame("what was not sent", rank, layer, unsent, lost);
      requireSame("the number of what was not sent", rank, layer, unsentCount, {count * test.repeats});
    }
    if (unsentAny) inputs = without(std::move(inputs), test.failed, layout.perRank);
    ExpertsReference<T, W> const reference(test, inputs);
    auto const expected = reference.placed(rank.rank, filler);
    requireSame("the table of first rows", rank, layer, firsts, expected.firsts);
    requireSame("the table of counts", rank, layer, counts, expected.counts);
    requireSame("what came", rank, layer, rows, expected.rows);
    if (!std::is_same_v<T, W>) requireSame("the table of scales", rank, layer, scales, expected.scales);
    requireSame("where it came from", rank, layer, origins, expected.origins);
    requireSame("with which weights", rank, layer, placedWeights, expected.weights);
    requireSame("for which experts", rank, layer, placedExperts, expected.experts);
    requireSame("the number of dropped rows", rank, layer, dropped, {expected.dropped * test.repeats});
    if (test.hasFailed(test.failed, layer, true)) {
      auto const left = without(inputs, test.failed, layout.perRank);
      requireSame("the sum", rank, layer, y, ExpertsReference<T, W>(test, left).combined(rank.rank));
    } else {
      requireSame("the sum", rank, layer, y, reference.combined(rank.rank));
    }
  }
}

// By memory and by packets, whatever the case says.
template <class T, class W = T, class How = ByKernels<T, W>>
void checkExperts(ExpertsCase test) {
  if (!canRun(test.ranks)) return;
  for (auto const transport : {layout::ExpertTransport::memory, layout::ExpertTransport::packets}) {
    if (test.failed >= 0 && transport == layout::ExpertTransport::memory) continue;
    CAPTURE(static_cast<int>(transport));
    test.limits.transport = transport;
#if !defined(__CUDACC__)
    if (test.nodes > 1) sim::install({.devices = test.ranks, .devicesPerNode = test.ranks / test.nodes});
#endif
    forEachRank(test.ranks, [&](Rank& rank) { runExperts<T, W, How>(rank, test); });
  }
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp_test
