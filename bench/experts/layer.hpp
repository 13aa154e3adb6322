// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A layer of experts as one rank runs it again and again: what is sent, and whether what came home is right. The
// experts leave rows as they are, so home comes each token times the sum of its weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <span>
#include <vector>

#include "experts/experts_bench.hpp"
#include "mscclpp/algorithms/experts/combine.hpp"
#include "mscclpp/algorithms/experts/dispatch.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/fused/experts.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/launch/launch.hpp"

namespace experts_bench {
inline namespace MSCCLPP_BACKEND {

using namespace mscclpp;

// Of an expert's first row: tiles of products of many tokens, hardly any of few.
MSCCLPP_HOST_DEVICE constexpr std::uint32_t alignmentFor(std::uint32_t tokens) { return tokens > 512 ? 128 : 8; }

template <class W>
struct DispatchKernel {
  static constexpr unsigned maxThreads = 512;

  MSCCLPP_DEVICE void operator()(bf16 const* x, Routing<std::int32_t> const& routing, PlacedRows<W> const& placed,
                                 DeviceExperts const& experts) const {
    Dispatch<bf16, W> const dispatch(experts, thisGrid());
    dispatch.run(MatrixView{x, routing.tokens, placed.rows.columns}, routing,
                 PackedByExpert{alignmentFor(routing.tokens)}, placed);
  }
};

template <class W>
struct Widen {
  MSCCLPP_DEVICE void operator()(PlacedRows<W> const& placed, std::uint32_t scalesOfRow, bf16* results) const {
    auto const columns = placed.rows.columns;
    for (std::size_t i = thisGrid().rank(); i < placed.rows.rows * columns; i += thisGrid().size()) {
      auto const row = i / columns, column = i % columns;
      auto const scale = placed.scales == nullptr ? 1 : placed.scales[row * scalesOfRow + column / 128];
      results[i] = bf16(static_cast<float>(*placed.rows.at(row, column)) * scale);
    }
  }
};

struct CombineKernel {
  static constexpr unsigned maxThreads = 512;

  MSCCLPP_DEVICE void operator()(MatrixView<bf16 const> const& results, Routing<std::int32_t> const& routing, bf16* y,
                                 DeviceExperts const& experts) const {
    Combine<bf16> const combine(experts, thisGrid());
    combine.send(thisGrid(), results);
    combine.fold(thisGrid(), routing, MatrixView{y, routing.tokens, results.columns});
    combine.end();
  }
};

struct CopyKernel {
  MSCCLPP_DEVICE void operator()(std::byte* to, std::byte const* from, std::uint64_t bytes) const {
    copy(thisGrid(), to, from, bytes);
  }
};

// Whether rows can travel so.
inline bool has(Communicator const& communicator, Options const& options, ExpertTransport transport) {
  return transport == ExpertTransport::memory ||
         (communicator.linesArriveWhole() && options.tokens <= layout::ExpertLimits::mostPacketTokens);
}

// W: as which rows travel.
template <class W>
class Layer {
 public:
  static constexpr bool isQuantised = !std::is_same_v<W, bf16>;

  Layer(Communicator const& communicator, Stream const& stream, Options const& options, Crowd crowd,
        ExpertTransport transport, unsigned blocks)
      : options_(options),
        rank_(static_cast<std::uint32_t>(communicator.rank())),
        ranks_(static_cast<std::uint32_t>(communicator.size())),
        stream_(stream),
        experts_(communicator, {.experts = options.experts,
                                .topK = options.topK,
                                .tokens = options.tokens,
                                .hidden = options.hidden,
                                .elementBytes = sizeof(bf16),
                                .blocks = blocks,
                                .transport = transport}),
        shape_{.blocks = blocks, .threads = options.threads},
        indices_(routingOf(options, crowd, rank_)),
        room_(roomOf(options, crowd, rank_, ranks_)),
        x_(communicator.device(), elements()),
        y_(communicator.device(), elements()),
        results_(communicator.device(), std::size_t{room_} * options.hidden),
        rows_(communicator.device(), std::size_t{room_} * options.hidden),
        scales_(communicator.device(), std::size_t{room_} * scalesOfRow()),
        onDevice_(communicator.device(), indices_.size()),
        weights_(communicator.device(), indices_.size()) {
    std::vector<bf16> x;
    for (std::size_t i = 0; i < elements(); ++i) x.emplace_back(element(i));
    std::vector<float> weights;
    for (std::size_t i = 0; i < indices_.size(); ++i) weights.push_back(weight(i));
    copyToDevice(x_, std::span<bf16 const>(x));
    copyToDevice(onDevice_, std::span<std::int32_t const>(indices_));
    copyToDevice(weights_, std::span<float const>(weights));
    rows_.fill(0);
    scales_.fill(0);
  }

  void dispatch() const {
    launch(stream_, shape_, DispatchKernel<W>{}, x_.data(), routing(), placed(), experts_.deviceHandle());
  }
  // What combine() sends home, from what the last dispatch has placed.
  void widen() const {
    launch(stream_, shape_, Widen<W>{}, placed(), static_cast<std::uint32_t>(scalesOfRow()), results_.data());
  }
  void combine() const {
    launch(stream_, shape_, CombineKernel{}, MatrixView<bf16 const>{results_.data(), room_, options_.hidden}, routing(),
           y_.data(), experts_.deviceHandle());
  }

  // Rows that leave for other ranks, and bytes of a row with what goes with it.
  std::size_t rowsOut() const {
    std::size_t rows = 0;
    for (std::uint32_t token = 0; token < options_.tokens; ++token) {
      std::set<std::uint32_t> there;
      for (std::uint32_t k = 0; k < options_.topK; ++k) there.insert(rankOf(options_, ranks_, at(token, k)));
      rows += there.size() - there.count(rank_);
    }
    return rows;
  }
  std::size_t rowBytes() const {
    return options_.hidden * sizeof(W) + (isQuantised ? scalesOfRow() * sizeof(float) : 0) + sizeof(layout::ExpertRow);
  }
  static std::size_t partBytes(Options const& options) { return options.hidden * sizeof(bf16); }

  std::size_t wrong() const {
    auto const sums = copyToHost(y_);
    std::size_t different = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      float expected = 0;
      for (std::uint32_t k = 0; k < options_.topK; ++k) {
        expected += element(i) * weight(i / options_.hidden * options_.topK + k);
      }
      // FP8 is off by a 16th of a value at most, bf16 by a 256th, three times.
      auto const bound = std::abs(expected) * (isQuantised ? 0.08f : 0.02f) + 0.02f;
      different += std::abs(static_cast<float>(sums[i]) - expected) > bound ? 1 : 0;
    }
    return different;
  }

 private:
  static std::uint32_t rankOf(Options const& options, std::uint32_t ranks, std::int32_t expert) {
    return static_cast<std::uint32_t>(expert) / ceilDiv(options.experts, ranks);
  }
  static std::vector<std::int32_t> routingOf(Options const& options, Crowd crowd, std::uint32_t rank) {
    std::mt19937_64 engine(options.tokens * 1009 + rank);
    std::vector<double> chances;
    for (std::uint32_t i = 0; i < options.experts; ++i) chances.push_back(crowd == Crowd::skewed ? 1.0 / (i + 8) : 1);
    std::discrete_distribution<std::int32_t> draw(chances.begin(), chances.end());
    std::vector<std::int32_t> indices;
    for (std::uint32_t token = 0; token < options.tokens; ++token) {
      std::set<std::int32_t> taken;
      while (taken.size() < options.topK) {
        auto const expert = crowd == Crowd::hot && taken.empty() ? 0 : draw(engine);
        if (taken.insert(expert).second) indices.push_back(expert);
      }
    }
    return indices;
  }
  // Rows for this rank's experts, of all ranks.
  static std::uint32_t roomOf(Options const& options, Crowd crowd, std::uint32_t rank, std::uint32_t ranks) {
    std::vector<std::uint32_t> counts(options.experts);
    for (std::uint32_t source = 0; source < ranks; ++source) {
      for (auto const expert : routingOf(options, crowd, source)) ++counts[static_cast<std::size_t>(expert)];
    }
    std::uint32_t room = 1;
    for (std::uint32_t e = 0; e < options.experts; ++e) {
      if (rankOf(options, ranks, static_cast<std::int32_t>(e)) == rank)
        room += roundUp(counts[e], alignmentFor(options.tokens));
    }
    return room;
  }

  std::size_t elements() const { return std::size_t{options_.tokens} * options_.hidden; }
  std::size_t scalesOfRow() const { return ceilDiv(options_.hidden, layout::ExpertsLayout::scaleColumns); }
  std::int32_t at(std::uint32_t token, std::uint32_t k) const {
    return indices_[std::size_t{token} * options_.topK + k];
  }
  float element(std::size_t i) const { return static_cast<float>((i * 7 + i / 100 + rank_ * 3) % 17) - 8; }
  float weight(std::size_t i) const { return static_cast<float>(1 + i % 3) / static_cast<float>(options_.topK); }
  Routing<std::int32_t> routing() const { return {onDevice_.data(), weights_.data(), options_.tokens, options_.topK}; }
  PlacedRows<W> placed() const {
    return {.rows = {rows_.data(), room_, options_.hidden}, .scales = isQuantised ? scales_.data() : nullptr};
  }

  Options const& options_;
  std::uint32_t rank_, ranks_;
  Stream const& stream_;
  Experts experts_;
  LaunchShape shape_;
  std::vector<std::int32_t> indices_;
  std::uint32_t room_;
  GpuBuffer<bf16> x_, y_, results_;
  GpuBuffer<W> rows_;
  GpuBuffer<float> scales_;
  GpuBuffer<std::int32_t> onDevice_;
  GpuBuffer<float> weights_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace experts_bench
