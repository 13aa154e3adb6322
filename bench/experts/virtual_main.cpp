// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-bench-experts-virtual: how long dispatch and combine would take on GPUs that are not there, by a timed run of
// the simulated machine.
#include <cstdio>
#include <exception>

#include "experts/layer.hpp"
#include "experts/options.hpp"
#include "mscclpp/sim/run.hpp"

namespace {

using namespace mscclpp;
using namespace experts_bench;

// Calls that are timed, behind one that is not.
constexpr int chain = 3;

template <class W>
std::vector<Row> timeOf(Options const& options, Crowd crowd, ExpertTransport transport, unsigned blocks,
                        char const* wire) {
  std::vector<Row> rows(2);
  sim::RunOptions run{.ranks = options.ranks, .preemption = 0, .timing = sim::TimingModel::h200()};
  run.wallLimit = {};
  sim::run(run, [&](sim::RankContext& rank) {
    Device const device{DeviceKind::sim, rank.device()};
    Communicator const communicator(rank.bootstrap(), device);
    Stream const stream(device);
    Layer<W> const layer(communicator, stream, options, crowd, transport, blocks);
    auto const phase = [&](Row& row, char const* name, std::size_t bytes, auto const& operate) {
      double nanoseconds = 0;
      for (int const calls : {1, 1 + chain}) {
        // As in a graph, which begins everywhere at once.
        communicator.bootstrap()->barrier();
        auto const begin = rank.nanoseconds();
        for (int i = 0; i < calls; ++i) operate();
        communicator.synchronize(stream);
        nanoseconds += (calls == 1 ? -1 : 1) * (rank.nanoseconds() - begin);
      }
      auto const wrong = layer.wrong();
      // Ranks run one at a time.
      row.phase = name;
      row.wire = wire;
      row.transport = transport;
      row.crowd = crowd;
      row.blocks = blocks;
      row.microseconds = row.p99 = std::max(row.microseconds, nanoseconds / chain / 1000);
      row.rows = std::max(row.rows, layer.rowsOut());
      row.bytes = row.rows * bytes;
      row.wrong += wrong;
      communicator.bootstrap()->barrier();
    };
    layer.dispatch();
    layer.widen();
    layer.combine();
    communicator.synchronize(stream);
    phase(rows[0], "dispatch", layer.rowBytes(), [&] { layer.dispatch(); });
    phase(rows[1], "combine", Layer<W>::partBytes(options), [&] { layer.combine(); });
  });
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  Options options{.ranks = 4, .crowds = {Crowd::uniform}, .blocks = {64}, .threads = 256};
  CLI::App app{"Times layers of experts on simulated H200 GPUs."};
  addOptions(app, options);
  app.add_option("--tokens", options.tokens, "Tokens of a rank")->check(CLI::Range(1u, 1u << 16));
  CLI11_PARSE(app, argc, argv);
  auto text = mismatch(options);
  if (options.tokens > layout::ExpertLimits::mostPacketTokens) options.transports = {ExpertTransport::memory};
  if (options.ranks == 0) text = "--ranks: there are as many simulated GPUs as you say";
  if (!text.empty()) {
    std::fprintf(stderr, "%s\n", text.c_str());
    return 2;
  }
  try {
    std::vector<Row> rows;
    auto const add = [&](std::vector<Row> const& some) { rows.insert(rows.end(), some.begin(), some.end()); };
    for (auto const crowd : options.crowds) {
      for (auto const transport : options.transports) {
        for (auto const blocks : options.blocks) {
          add(timeOf<bf16>(options, crowd, transport, blocks, "bfloat16"));
          add(timeOf<Float8E4M3>(options, crowd, transport, blocks, "float8_e4m3"));
        }
      }
    }
    std::printf("%u tokens of %u bfloat16 a rank to %u of %u experts, %d simulated H200, blocks of %u threads.\n\n",
                options.tokens, options.hidden, options.topK, options.experts, options.ranks, options.threads);
    return print(rows) == 0 ? 0 : 1;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
