// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "experts/experts_bench.hpp"

#include <functional>
#include <memory>

#include "experts/layer.hpp"
#include "machine/chained.hpp"
#include "machine/machine.hpp"
#include "machine/over_ranks.hpp"
#include "mscclpp/host/runtime.hpp"

namespace experts_bench {
namespace {

using namespace mscclpp;

class RankBench {
 public:
  RankBench(Communicator& communicator, Options const& options, Result& result)
      : communicator_(communicator),
        options_(options),
        result_(result),
        stream_(communicator.device()),
        timer_(bench::machine(kernelDevice)->makeTimer(stream_)) {}

  void measureAll() {
    for (auto const crowd : options_.crowds) {
      for (auto const transport : options_.transports) {
        if (!has(communicator_, options_, transport)) continue;
        measure<bf16>("bfloat16", crowd, transport);
        measure<Float8E4M3>("float8_e4m3", crowd, transport);
      }
    }
  }

 private:
  template <class W>
  void measure(char const* wire, Crowd crowd, ExpertTransport transport) {
    std::vector<Row> best(3);
    std::size_t wrong = 0;  // of any number of blocks
    for (auto const blocks : bench::blocksToTry(communicator_, options_.blocks)) {
      Layer<W> const layer(communicator_, stream_, options_, crowd, transport, blocks);
      communicator_.bootstrap()->barrier();
      // Not one behind the other in the stream, where ranks share a device (host/ranks.hpp).
      auto const alone = [&](auto const& operate) {
        operate();
        communicator_.synchronize(stream_, std::chrono::minutes(1));
      };
      alone([&] { layer.dispatch(); });
      alone([&] { layer.widen(); });
      alone([&] { layer.combine(); });
      Row common;
      common.wire = wire;
      common.transport = transport;
      common.crowd = crowd;
      common.blocks = blocks;
      common.rows = static_cast<std::size_t>(bench::largest(communicator_, static_cast<double>(layer.rowsOut())));
      auto const phase = [&](std::size_t number, char const* name, std::size_t rowBytes, auto const& operate) {
        auto row = common;
        row.phase = name;
        row.bytes = row.rows * rowBytes;
        time(row, operate);
        auto& before = best[number];
        if (before.blocks == 0 || row.microseconds < before.microseconds) before = row;
      };
      phase(0, "dispatch", layer.rowBytes(), [&] { layer.dispatch(); });
      phase(1, "combine", Layer<W>::partBytes(options_), [&] { layer.combine(); });
      phase(2, "both", layer.rowBytes() + Layer<W>::partBytes(options_), [&] {
        layer.dispatch();
        layer.combine();
      });
      wrong += bench::total(communicator_, layer.wrong());
    }
    for (auto& row : best) row.wrong = wrong;
    for (std::size_t i = 0; i < 2; ++i) best.push_back(copyOf(best[i]));
    if (communicator_.rank() == 0) result_.rows.insert(result_.rows.end(), best.begin(), best.end());
  }

  // As many bytes from memory to memory of this device, by as many blocks.
  Row copyOf(Row const& phase) {
    auto row = phase;
    row.phase = "copy as " + phase.phase;
    row.wrong = 0;
    auto const bytes = std::max<std::size_t>(row.bytes, 16);
    GpuBuffer<std::byte> const from(communicator_.device(), bytes), to(communicator_.device(), bytes);
    from.fill(1);
    time(row, [&] {
      launch(stream_, {.blocks = row.blocks, .threads = options_.threads}, CopyKernel{}, to.data(), from.data(),
             std::uint64_t{bytes});
    });
    return row;
  }

  void time(Row& row, std::function<void()> const& operate) {
    auto const times =
        bench::timeChain(communicator_, stream_, *timer_, options_.operations, options_.replays, operate);
    row.microseconds = times.median;
    row.p99 = times.p99;
  }

  Communicator& communicator_;
  Options const& options_;
  Result& result_;
  Stream stream_;
  std::unique_ptr<bench::Timer> timer_;
};

}  // namespace

Result measure(Options const& options) {
  Result result;
  bench::onRanks(kernelDevice, options.ranks, result,
                 [&](Communicator& communicator) { RankBench(communicator, options, result).measureAll(); });
  return result;
}

}  // namespace experts_bench
