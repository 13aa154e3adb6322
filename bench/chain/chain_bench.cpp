// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "chain_bench.hpp"

#include <algorithm>
#include <memory>
#include <mutex>

#include "machine/over_ranks.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"

namespace chain_bench {
namespace {

using namespace mscclpp;
using T = bf16;

// Between the collectives of a chain: where blocks read what others wrote, these meet.
enum class Meeting : std::uint8_t { none, grid, cluster };

// Each round turns x, the same on all ranks from the first round on, into 4 - x: one that is missed shows at the end.
template <class Collective, Meeting M>
struct ReduceChain {
  static constexpr auto requirement = &Collective::requirement;
  static constexpr bool oneCluster = M == Meeting::cluster;

  MSCCLPP_DEVICE void operator()(T* data, std::size_t count, unsigned rounds, DeviceTeam const& team,
                                 std::uint64_t* ns) const {
    float const share = 1.0f / static_cast<float>(team.size);
    auto const blocks = [] {
      if constexpr (oneCluster)
        return thisCluster();
      else
        return thisGrid();
    }();
    Collective const collective{team};
    std::uint64_t begin = 0;
    for (unsigned round = 0; round < rounds + rounds / 10 / 2 * 2; ++round) {
      if (round == rounds / 10 / 2 * 2) begin = arch::nanoseconds();
      collective(blocks, View{data, count}, View{data, count}, [share](auto v) { return v * -share + 4.0f; });
      if constexpr (M != Meeting::none) gridBarrier(team, blocks);
    }
    if (blocks.rank() == 0) *ns = arch::nanoseconds() - begin;
  }

  // Their average is a whole number.
  static float input(int rank, int, std::size_t i) {
    return output(0, 0, i) + static_cast<float>(rank == 0) - static_cast<float>(rank == 1);
  }
  static float output(int, int, std::size_t i) { return static_cast<float>(i % 4); }
};

// Two rounds bring every part back to where it was.
template <class Collective>
struct ExchangeChain {
  static constexpr auto requirement = &Collective::requirement;
  static constexpr bool oneCluster = false;

  MSCCLPP_DEVICE void operator()(T* data, std::size_t count, unsigned rounds, DeviceTeam const& team,
                                 std::uint64_t* ns) const {
    auto const grid = thisGrid();
    Collective const collective{team};
    std::uint64_t begin = 0;
    for (unsigned round = 0; round < rounds + rounds / 10 / 2 * 2; ++round) {
      if (round == rounds / 10 / 2 * 2) begin = arch::nanoseconds();
      collective(grid, View{data, count}, View{data, count});
    }
    if (grid.rank() == 0) *ns = arch::nanoseconds() - begin;
  }

  static float input(int rank, int, std::size_t i) {
    return static_cast<float>((i * 7 + static_cast<unsigned>(rank) * 31) % 256);
  }
  static float output(int rank, int ranks, std::size_t i) { return input(rank, ranks, i); }
};

struct Nothing {
  MSCCLPP_DEVICE void operator()() const {}
};

class RankBench {
 public:
  RankBench(Communicator& communicator, Options const& options, std::vector<Row>& rows)
      : communicator_(communicator), options_(options), rows_(rows), stream_(communicator.device()) {
    try {
      launch(stream_, {.blocks = 2, .threads = 32, .clusterBlocks = 2}, Nothing{});
      stream_.synchronize();
    } catch (Error const&) {
      mostClusterBlocks_ = 1;  // a GPU without clusters
    }
  }

  template <int Ranks>
  void measureAll() {
    for (auto const bytes : options_.sizes) {
      using OneShot16 = AllReduce<OneShot, PacketTransport<LL16>, Sum, Ranks>;
      using OneShot128 = AllReduce<OneShot, PacketTransport<LL128>, Sum, Ranks>;
      using TwoShot128 = AllReduce<TwoShot, PacketTransport<LL128>, Sum, Ranks>;
      measure<ReduceChain<OneShot16, Meeting::none>>("allreduce", "oneshot_ll16", bytes);
      measure<ReduceChain<OneShot128, Meeting::none>>("allreduce", "oneshot_ll128", bytes);
      measure<ReduceChain<TwoShot128, Meeting::grid>>("allreduce", "twoshot_ll128", bytes);
      measure<ReduceChain<TwoShot128, Meeting::cluster>>("allreduce", "twoshot_ll128, one cluster", bytes);
      measure<ExchangeChain<AllToAll<OneExchange, PacketTransport<LL16>, Ranks>>>("alltoall", "ll16", bytes);
      measure<ExchangeChain<AllToAll<OneExchange, PacketTransport<LL128>, Ranks>>>("alltoall", "ll128", bytes);
    }
  }

 private:
  template <class Chain>
  void measure(char const* collective, char const* algorithm, std::size_t bytes) {
    auto const device = communicator_.device();
    int const rank = communicator_.rank();
    int const ranks = communicator_.size();
    std::size_t const count = bytes / sizeof(T);
    std::vector<T> inputs(count), expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      inputs[i] = T(Chain::input(rank, ranks, i));
      expected[i] = T(Chain::output(rank, ranks, i));
    }
    GpuBuffer<T> const data(device, count);
    GpuBuffer<std::uint64_t> const ns(device, 1);
    Row best{.collective = collective, .algorithm = algorithm, .bytes = bytes};
    bool const simulated = device.kind == DeviceKind::sim;
    for (unsigned const threads : simulated ? std::vector{32u} : std::vector{128u, 256u, 512u}) {
      for (unsigned const blocks : simulated ? std::vector{2u} : std::vector{1u, 2u, 4u, 8u, 16u, 32u, 64u}) {
        // More threads than there are packets, or many rounds of a thread, never win.
        std::size_t const packets = bytes / 8;
        std::size_t const all = std::size_t{blocks} * threads;
        if (!simulated && (all > std::max<std::size_t>(packets, 128) || all * 64 < packets)) continue;
        if (Chain::oneCluster && blocks > mostClusterBlocks_) continue;
        Team const team(communicator_, Chain::requirement(static_cast<std::uint32_t>(ranks), blocks, threads));
        std::vector<double> times;
        for (unsigned i = 0; i < options_.repeats; ++i) {
          copyToDevice(data, std::span<T const>(inputs));
          communicator_.bootstrap()->barrier();
          launch(stream_, {.blocks = blocks, .threads = threads, .clusterBlocks = Chain::oneCluster ? blocks : 1u},
                 Chain{}, data.data(), count, options_.rounds, team.deviceHandle(), ns.data());
          communicator_.synchronize(stream_, std::chrono::minutes(1));
          times.push_back(
              bench::largest(communicator_, static_cast<double>(copyToHost(ns)[0]) / 1e3 / options_.rounds));
          auto const result = copyToHost(data);
          for (std::size_t k = 0; k < count; ++k) {
            if (static_cast<float>(result[k]) != static_cast<float>(expected[k])) ++best.wrong;
          }
        }
        std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
        double const median = times[times.size() / 2];
        if (best.blocks != 0 && best.microseconds <= median) continue;
        best.blocks = blocks;
        best.threads = threads;
        best.microseconds = median;
      }
    }
    best.wrong = bench::total(communicator_, best.wrong);
    if (rank == 0 && best.blocks != 0) rows_.push_back(best);
  }

  Communicator& communicator_;
  Options const& options_;
  std::vector<Row>& rows_;
  Stream stream_;
  unsigned mostClusterBlocks_ = maxClusterBlocks;
};

}  // namespace

Result measure(Options const& options) {
  Result result;
  result.ranks = options.ranks != 0 ? options.ranks : std::min(8, Device::count(kernelDevice));
  runRanks(kernelDevice, result.ranks, [&](Communicator& communicator) {
    RankBench bench(communicator, options, result.rows);
    switch (communicator.size()) {
      case 2:
        return bench.measureAll<2>();
      case 4:
        return bench.measureAll<4>();
      default:
        return bench.measureAll<0>();
    }
  });
  return result;
}

}  // namespace chain_bench
