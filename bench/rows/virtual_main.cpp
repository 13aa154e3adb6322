// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-bench-rows-virtual: how long an all-reduce with its norm would take on GPUs that are not there, by timed runs
// of the simulated machine. The all-reduce by itself, and in the pair, is one-shot by LL128.
#include <algorithm>
#include <cstdio>
#include <exception>

#include "mscclpp/algorithms/catalogue.hpp"
#include "mscclpp/sim/run.hpp"
#include "mscclpp/sim/runtime.hpp"
#include "rows/layer.hpp"
#include "rows/options.hpp"

namespace {

using namespace mscclpp;
using namespace rows_bench;

// Calls that are timed, behind one that is not.
constexpr int chain = 3;

using Reduce = NamedAllReduce<"oneshot_ll128", Sum>;

struct RankRun {
  sim::RankContext& rank;
  Communicator const& communicator;
  Stream const& stream;
  Layer const& layer;
  Line& line;

  // wrong(): elements of this rank. Ranks run one at a time.
  template <class Operate, class Wrong>
  void time(LaunchShape const& shape, Operate const& operate, Wrong const& wrong) const {
    layer.forget();
    double nanoseconds = 0;
    for (int const calls : {1, 1 + chain}) {
      // As in a graph, which begins everywhere at once.
      communicator.bootstrap()->barrier();
      auto const begin = rank.nanoseconds();
      for (int i = 0; i < calls; ++i) operate();
      communicator.synchronize(stream);
      nanoseconds += (calls == 1 ? -1 : 1) * (rank.nanoseconds() - begin);
    }
    line.blocks = shape.blocks;
    line.microseconds = line.p99 = std::max(line.microseconds, nanoseconds / chain / 1000);
    line.wrong += wrong();
    communicator.bootstrap()->barrier();
  }

  // The all-reduce, and `behind` it.
  template <class Behind, class Wrong>
  void timePair(Behind const& behind, Wrong const& wrong) const {
    auto const ranks = static_cast<std::uint32_t>(communicator.size());
    auto shape = shapeOf<Reduce>(ranks, layer.x().bytes(), 2u * multiprocessors());
    shape.overlapPrevious = true;
    Team const team(communicator, Reduce::requirement(ranks, shape.blocks, shape.threads));
    time(
        shape,
        [&] {
          launch(stream, shape, AllReduceKernel<Reduce, bf16>{}, layer.x().data(), layer.sums().data(),
                 layer.x().size(), team.deviceHandle());
          behind();
        },
        wrong);
  }

  static unsigned multiprocessors() { return static_cast<unsigned>(sim::TimingModel::h200().multiprocessors); }
};

// body(RankRun) on each rank.
template <class Body>
Line timeOf(Options const& options, char const* form, Body const& body) {
  Line line{.form = form};
  sim::RunOptions run{.ranks = options.ranks, .preemption = 0, .timing = sim::TimingModel::h200()};
  run.wallLimit = {};
  sim::run(run, [&](sim::RankContext& rank) {
    Device const device{DeviceKind::sim, rank.device()};
    Communicator const communicator(rank.bootstrap(), device);
    Stream const stream(device);
    Layer const layer(communicator, stream, options);
    body(RankRun{rank, communicator, stream, layer, line});
  });
  return line;
}

template <class Q>
Line timeOfPair(Options const& options, char const* form) {
  return timeOf(options, form, [](RankRun const& run) {
    run.timePair([&] { run.layer.norm<Q>(); }, [&] { return run.layer.wrongRows<RowOneShot, Q>(); });
  });
}

template <class Schedule, class Q>
Line timeOfFused(Options const& options, char const* form) {
  Line best;
  for (auto const most : options.blocks) {
    keepFaster(best, timeOf(options, form, [&](RankRun const& run) {
                 Layer::Fused<Schedule, Q> const fused(run.layer, most);
                 run.time(fused.shape(), fused, [&] { return run.layer.wrongRows<Schedule, Q>(); });
               }));
  }
  return best;
}

std::vector<Line> timeAll(Options const& options) {
  std::vector<Line> lines;
  lines.push_back(timeOf(options, "all-reduce by oneshot_ll128",
                         [](RankRun const& run) { run.timePair([] {}, [&] { return run.layer.wrongSums(); }); }));
  lines.push_back(timeOfPair<bf16>(options, "all-reduce, norm"));
  lines.push_back(timeOfPair<Float8E4M3>(options, "all-reduce, norm FP8"));
  lines.push_back(timeOfFused<RowOneShot, void>(options, "rows without a norm"));
  lines.push_back(timeOfFused<RowOneShot, bf16>(options, "fused norm"));
  lines.push_back(timeOfFused<RowOneShot, Float8E4M3>(options, "fused norm FP8"));
  lines.push_back(timeOfFused<RowTwoShot, Float8E4M3>(options, "fused two-shot FP8"));
  compare(lines);
  return lines;
}

}  // namespace

int main(int argc, char** argv) {
  Options options{.ranks = 4, .blocks = {64}};
  std::vector<std::uint32_t> tokens{1};
  CLI::App app{"Times an all-reduce with its norm on simulated H200 GPUs."};
  addOptions(app, options, tokens);
  CLI11_PARSE(app, argc, argv);
  if (options.ranks == 0) {
    std::fprintf(stderr, "--ranks: there are as many simulated GPUs as you say\n");
    return 2;
  }
  try {
    // Many threads live at once.
    sim::install(
        {.devices = options.ranks, .multiprocessors = sim::TimingModel::h200().multiprocessors, .stackGuards = false});
    std::printf("Rows of %u bfloat16, %d simulated H200.\n\n", options.hidden, options.ranks);
    printHeading();
    std::size_t wrong = 0;
    for (auto const number : tokens) {
      options.tokens = number;
      wrong += print(options, timeAll(options));
      std::fflush(stdout);
    }
    return wrong == 0 ? 0 : 1;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
