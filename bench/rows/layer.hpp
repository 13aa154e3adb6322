// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What stands between two layers of a transformer, as one rank runs it again and again: residual and norm of the sums
// over ranks, as bfloat16 or as FP8 with a scale for each 128 columns; and whether what came out is right. The residual
// is kept beside the old one, so that every call does the same.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "mscclpp/algorithms/rows/all_reduce_rows.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/launch/launch.hpp"
#include "rows/rows_bench.hpp"

namespace rows_bench {
inline namespace MSCCLPP_BACKEND {

using namespace mscclpp;

inline constexpr unsigned scaleColumns = 128;

// On the device.
struct Operands {
  std::size_t tokens, hidden;
  bf16 const *x, *residual, *gamma;
  bf16* sums;  // of an all-reduce by itself
  bf16 *kept, *y;
  Float8E4M3* values;
  float* scales;

  template <class T>
  MSCCLPP_DEVICE MatrixView<T> matrix(T* data) const {
    return {data, tokens, hidden};
  }
  MSCCLPP_DEVICE View<bf16 const> weights() const { return {gamma, hidden}; }
  MSCCLPP_DEVICE std::size_t scalesOfRow() const { return ceilDiv<std::size_t>(hidden, scaleColumns); }
  MSCCLPP_DEVICE float shareOfColumn() const { return 1 / static_cast<float>(hidden); }
};

// `share`: of a column in a row's mean; a division takes long where it is waited for.
template <class R, class Old, class Weights>
MSCCLPP_DEVICE void addNorm(R& row, float share, Old const& old, Weights const& weights, MatrixView<bf16> const& kept) {
  row.map([](float v, float before) { return v + before; }, old);
  float const mean = row.sum([](float v) { return v * v; }) * share;
  row.store(kept);
  float const norm = 1 / std::sqrt(mean + 1e-6f);
  row.map([=](float v, float weight) { return v * norm * weight; }, weights);
}

// Q: as what rows come out; void: as their sums, without residual and norm. A row is with a cluster, so that few rows
// have many multiprocessors, and each thread but one payload: more of them cost latency, and in the registers of one
// block there is no room for 8192 columns.
template <RowSchedule Schedule, class Q, int Ranks = 0>
struct FusedKernel {
  using Rows = AllReduceRows<Schedule, PacketTransport<LL128>, Sum, Ranks, ClusterPerRow>;
  static constexpr unsigned maxThreads = 256;

  MSCCLPP_DEVICE void operator()(Operands const& o, DeviceTeam const& team, layout::WindowHandle const& values,
                                 layout::WindowHandle const& scales) const {
    allowNextKernel();
    if constexpr (std::is_void_v<Q>) {
      Rows{team}(thisGrid(), o.matrix(o.x), [&](auto& row) { row.store(o.matrix(o.sums)); });
      return;
    }
    auto const share = o.shareOfColumn();
    auto const work = [&](auto& row, auto const& old, auto const& weights) {
      addNorm(row, share, old, weights, o.matrix(o.kept));
      if constexpr (std::same_as<Q, bf16>) {
        row.store(o.matrix(o.y));
      } else if constexpr (!std::is_void_v<Q>) {
        row.template quantise<scaleColumns>(SymmetricMatrix<Q>(values, 0, o.tokens, o.hidden),
                                            SymmetricMatrix<float>(scales, 0, o.tokens, o.scalesOfRow()));
      }
    };
    Rows{team}(thisGrid(), o.matrix(o.x), work, o.matrix(o.residual), o.weights());
  }
};

// Behind an all-reduce, a row a block; `G`: by what its threads reduce over a row.
template <class Q, class G = BlockPerRow>
struct NormKernel {
  using Slots = MemoryTransport<2>;  // which columns of a row a thread has
  using Threads = typename G::template Threads<GridGroup>;
  static constexpr unsigned maxThreads = 512;

  MSCCLPP_DEVICE void operator()(Operands const& o, DeviceTeam const& team) const {
    Threads threads(thisGrid(), team.watch);
    allowNextKernel();
    waitForPreviousKernel();
    auto const share = o.shareOfColumn();
    for (std::size_t index = threads.row(); index < o.tokens; index += threads.rows()) {
      Row<Slots, bf16, float, Slots::unroll, Threads> row(team, threads, index, o.hidden, 1);
      auto const sums = row.fetch(o.matrix(o.sums));
      auto const old = row.fetch(o.matrix(o.residual));
      auto const weights = row.fetch(o.weights());
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < Slots::unroll; ++i) row.values(i) = convert<float>(sums.values(i));
      addNorm(row, share, old, weights, o.matrix(o.kept));
      if constexpr (std::same_as<Q, bf16>) {
        row.store(o.matrix(o.y));
      } else {
        row.template quantise<scaleColumns>(o.matrix(o.values), MatrixView{o.scales, o.tokens, o.scalesOfRow()});
      }
    }
  }
};

class Layer {
 public:
  Layer(Communicator const& communicator, Stream const& stream, Options const& options)
      : communicator_(communicator),
        stream_(stream),
        tokens_(options.tokens),
        hidden_(options.hidden),
        x_(communicator.device(), elements()),
        residual_(communicator.device(), elements()),
        gamma_(communicator.device(), hidden_),
        sums_(communicator.device(), elements()),
        kept_(communicator.device(), elements()),
        y_(communicator.device(), elements()),
        values_(communicator.device(), elements()),
        scales_(communicator.device(), tokens_ * scalesOfRow()),
        valuesOfAll_(communicator, values_.data(), values_.bytes()),
        scalesOfAll_(communicator, scales_.data(), scales_.bytes()),
        watch_(communicator, {.blocks = 1}) {
    std::vector<bf16> x, old, gamma;
    for (std::size_t i = 0; i < elements(); ++i) {
      x.emplace_back(element(communicator.rank(), i));
      old.emplace_back(before(i));
    }
    for (std::size_t c = 0; c < hidden_; ++c) gamma.emplace_back(weight(c));
    copyToDevice(x_, std::span<bf16 const>(x));
    copyToDevice(residual_, std::span<bf16 const>(old));
    copyToDevice(gamma_, std::span<bf16 const>(gamma));
    forget();
  }

  GpuBuffer<bf16> const& x() const { return x_; }
  GpuBuffer<bf16> const& sums() const { return sums_; }

  // A call of the fused kernel, by so many blocks at most.
  template <RowSchedule Schedule, class Q>
  class Fused {
   public:
    Fused(Layer const& layer, unsigned maxBlocks)
        : layer_(layer),
          shape_(layer.shapeOf<typename Kernel::Rows>(layer.rowsMade<Schedule>(), maxBlocks)),
          team_(layer.communicator_, Kernel::Rows::requirement(static_cast<std::uint32_t>(layer.communicator_.size()),
                                                               shape_.blocks, shape_.threads)) {}
    LaunchShape const& shape() const { return shape_; }
    // By a kernel for just as many ranks, where there is one: it loads what all have sent at once.
    void operator()() const {
      switch (layer_.communicator_.size()) {
        case 2:
          return start<2>();
        case 4:
          return start<4>();
        default:
          return start<0>();
      }
    }

   private:
    template <int Ranks>
    void start() const {
      launch(layer_.stream_, shape_, FusedKernel<Schedule, Q, Ranks>{}, layer_.operands(), team_.deviceHandle(),
             layer_.valuesOfAll_.deviceHandle(), layer_.scalesOfAll_.deviceHandle());
    }

    using Kernel = FusedKernel<Schedule, Q>;
    Layer const& layer_;
    LaunchShape shape_;
    Team team_;
  };

  // How many threads of a block norm() has.
  unsigned normThreads() const {
    using Slots = impl::RowSlots<NormKernel<bf16>::Slots, bf16>;
    return BlockPerRow::shape<Slots>(Slots::holders(hidden_)).threads;
  }
  template <class Q, class G = BlockPerRow>
  void norm() const {
    launch(stream_, {.blocks = static_cast<unsigned>(tokens_), .threads = normThreads(), .overlapPrevious = overlaps()},
           NormKernel<Q, G>{}, operands(), watch_.deviceHandle());
  }

  // Before a form is looked at: no result is there. All ranks call.
  void forget() const {
    for (auto const* one : {&sums_, &kept_, &y_}) one->fill(0xff);
    values_.fill(0xff);
    scales_.fill(0xff);
    communicator_.bootstrap()->barrier();
  }

  // Elements that are not as they should be, against the same in double.
  std::size_t wrongSums() const {
    auto const sums = copyToHost(sums_);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < elements(); ++i) wrong += isNear(sums[i], sumOf(i), std::abs(sumOf(i)) / 128) ? 0 : 1;
    return wrong;
  }
  template <RowSchedule Schedule, class Q>
  std::size_t wrongRows() const {
    if constexpr (std::is_void_v<Q>) return wrongSums();
    auto const kept = copyToHost(kept_), y = copyToHost(y_);
    auto const values = copyToHost(values_);
    auto const scales = copyToHost(scales_);
    auto const mine = static_cast<std::size_t>(communicator_.rank()) * rowsMade<Schedule>();
    std::size_t wrong = 0;
    for (std::size_t token = 0; token < tokens_; ++token) {
      // With two shots the residual stays with who makes the row.
      bool const keeps = Schedule::sameToAll || (token >= mine && token < mine + rowsMade<Schedule>());
      std::vector<double> expected(hidden_), roundings(hidden_);
      double squares = 0;
      for (std::size_t c = 0; c < hidden_; ++c) {
        auto const i = token * hidden_ + c;
        expected[c] = sumOf(i) + before(i);
        roundings[c] = (std::abs(sumOf(i)) + before(i)) / 128;  // of sums and residual, to bfloat16
        squares += expected[c] * expected[c];
        if (keeps) wrong += isNear(kept[i], expected[c], roundings[c]) ? 0 : 1;
      }
      auto const norm = 1 / std::sqrt(squares / static_cast<double>(hidden_) + 1e-6);
      for (std::size_t c = 0; c < hidden_; ++c) {
        expected[c] *= norm * weight(c);
        roundings[c] *= norm * weight(c);
        if (!std::same_as<Q, bf16>) continue;
        wrong += isNear(y[token * hidden_ + c], expected[c], roundings[c] + std::abs(expected[c]) / 128) ? 0 : 1;
      }
      for (std::size_t first = 0; first < hidden_ && !std::same_as<Q, bf16>; first += scaleColumns) {
        auto const end = std::min<std::size_t>(first + scaleColumns, hidden_);
        double largest = 0;
        for (auto c = first; c < end; ++c) largest = std::max(largest, std::abs(expected[c]));
        auto const step = largest / 448;
        auto const scale = scales[token * scalesOfRow() + first / scaleColumns];
        wrong += isNear(scale, step, step / 64) ? 0 : 1;
        for (auto c = first; c < end; ++c) {
          auto const found = static_cast<float>(values[token * hidden_ + c]) * scale;
          wrong += isNear(found, expected[c], roundings[c] + std::abs(expected[c]) / 12 + step / 512) ? 0 : 1;
        }
      }
    }
    return wrong;
  }

 private:
  // False of NaN.
  template <class T>
  static bool isNear(T found, double expected, double bound) {
    return std::abs(static_cast<float>(found) - expected) <= bound;
  }
  static float element(int rank, std::size_t i) {
    return static_cast<float>((i * 7 + i / 100 + static_cast<std::size_t>(rank) * 3) % 17) - 8;
  }
  static float before(std::size_t i) { return static_cast<float>((i + i / 1000) % 5); }
  static float weight(std::size_t column) { return column % 3 == 0 ? 0.5f : 1.0f; }
  double sumOf(std::size_t i) const {
    double sum = 0;
    for (int rank = 0; rank < communicator_.size(); ++rank) sum += element(rank, i);
    return sum;
  }

  std::size_t elements() const { return tokens_ * hidden_; }
  std::size_t scalesOfRow() const { return ceilDiv<std::size_t>(hidden_, scaleColumns); }
  // As the library's own launches: not where kernels that wait for their turn could fill a device of several ranks.
  bool overlaps() const { return communicator_.ranksPerDevice() == 1; }
  // Of the rank that makes most.
  template <RowSchedule Schedule>
  std::size_t rowsMade() const {
    return Schedule::sameToAll ? tokens_ : ceilDiv(tokens_, static_cast<std::size_t>(communicator_.size()));
  }
  template <class Rows>
  LaunchShape shapeOf(std::size_t rows, unsigned maxBlocks) const {
    auto shape = Rows::template shape<bf16>(rows, hidden_, maxBlocks);
    shape.overlapPrevious = overlaps();
    return shape;
  }
  Operands operands() const {
    return {tokens_,      hidden_,      x_.data(), residual_.data(), gamma_.data(),
            sums_.data(), kept_.data(), y_.data(), values_.data(),   scales_.data()};
  }

  Communicator const& communicator_;
  Stream const& stream_;
  std::size_t tokens_, hidden_;
  GpuBuffer<bf16> x_, residual_, gamma_, sums_, kept_, y_;
  GpuBuffer<Float8E4M3> values_;
  GpuBuffer<float> scales_;
  MemoryWindow valuesOfAll_, scalesOfAll_;
  Team watch_;  // for what norm() has to report
};

}  // namespace MSCCLPP_BACKEND
}  // namespace rows_bench
