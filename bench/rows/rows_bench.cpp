// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "rows/rows_bench.hpp"

#include <algorithm>
#include <memory>

#include "machine/chained.hpp"
#include "machine/machine.hpp"
#include "machine/over_ranks.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "rows/layer.hpp"

#if defined(__CUDACC__)
#include "rows/cub_rows.hpp"
#endif

namespace rows_bench {
namespace {

using namespace mscclpp;

class RankBench {
 public:
  RankBench(Communicator& communicator, Options const& options)
      : communicator_(communicator),
        options_(options),
        stream_(communicator.device()),
        timer_(bench::machine(kernelDevice)->makeTimer(stream_)),
        algorithms_(AlgorithmCollection::defaults()),
        layer_(communicator, stream_, options) {}

  std::vector<Line> measureAll() {
    CollectiveCall const call{.in = layer_.x().data(),
                              .out = layer_.sums().data(),
                              .inBytes = layer_.x().bytes(),
                              .outBytes = layer_.sums().bytes(),
                              .type = DataType::bfloat16,
                              .op = ReduceOp::sum,
                              .symmetric = true};
    auto const reduce = [&] { algorithms_.execute(Collective::allReduce, communicator_, stream_, call); };
    auto const chosen = algorithms_.resolve(Collective::allReduce, World::of(communicator_), call);
    auto const blocks = chosen.launch ? chosen.launch->shape.blocks : 0;
    reduce();  // makes what it needs
    communicator_.synchronize(stream_);

    std::vector<Line> lines;
    lines.push_back(measure("all-reduce", blocks, reduce, [&] { return layer_.wrongSums(); }));
    lines.back().form += " by " + chosen.algorithm->name();
    lines.push_back(measurePair<bf16>("all-reduce, norm", blocks, reduce));
    lines.push_back(measurePair<Float8E4M3>("all-reduce, norm FP8", blocks, reduce));
    lines.push_back(measureFused<RowOneShot, void>("rows without a norm"));
    lines.push_back(measureFused<RowOneShot, bf16>("fused norm"));
    lines.push_back(measureFused<RowOneShot, Float8E4M3>("fused norm FP8"));
    lines.push_back(measureFused<RowTwoShot, Float8E4M3>("fused two-shot FP8"));
#if defined(__CUDACC__)
    using ByCub = CubPerRow<512>;  // for rows of 8192, as this program has them unless it is told otherwise
    if (layer_.normThreads() == ByCub::threads) {
      lines.push_back(measurePair<bf16, ByCub>("all-reduce, norm by CUB", blocks, reduce));
    }
#endif
    compare(lines);
    return lines;
  }

 private:
  template <class Q, class G = BlockPerRow, class Reduce>
  Line measurePair(char const* name, unsigned blocks, Reduce const& reduce) {
    auto const both = [&] {
      reduce();
      layer_.norm<Q, G>();
    };
    return measure(name, blocks, both, [&] { return layer_.wrongSums() + layer_.wrongRows<RowOneShot, Q>(); });
  }

  template <class Schedule, class Q>
  Line measureFused(char const* name) {
    Line best;
    unsigned before = 0;
    for (auto const most : bench::blocksToTry(communicator_, options_.blocks, 2)) {
      Layer::Fused<Schedule, Q> const fused(layer_, most);
      auto const blocks = fused.shape().blocks;
      if (blocks == before) continue;  // there are no more rows
      before = blocks;
      keepFaster(best, measure(name, blocks, fused, [&] { return layer_.wrongRows<Schedule, Q>(); }));
    }
    return best;
  }

  template <class Operate, class Wrong>
  Line measure(char const* name, unsigned blocks, Operate const& operate, Wrong const& wrong) {
    layer_.forget();
    auto const times =
        bench::timeChain(communicator_, stream_, *timer_, options_.operations, options_.replays, [&] { operate(); });
    return {.form = name,
            .blocks = blocks,
            .microseconds = times.median,
            .p99 = times.p99,
            .wrong = bench::total(communicator_, wrong())};
  }

  Communicator& communicator_;
  Options const& options_;
  Stream stream_;
  std::unique_ptr<bench::Timer> timer_;
  AlgorithmCollection algorithms_;
  Layer layer_;
};

}  // namespace

Result measure(Options const& options) {
  Result result;
  bench::onRanks(kernelDevice, options.ranks, result, [&](Communicator& communicator) {
    auto lines = RankBench(communicator, options).measureAll();
    if (communicator.rank() == 0) result.lines = std::move(lines);
  });
  return result;
}

}  // namespace rows_bench
