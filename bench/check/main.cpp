// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-bench-check: what checking costs. Measures, on one core, plain accesses that are checked, switches of fibers,
// and a collective under many schedules, and compares each with its goal.
//
//   mscclpp-bench-check [--effort=1] [--at-least=0]
//
// Exit status: 0; 1 where a rate is below `at-least` times its goal, or something was found; 2 for bad arguments.
#include <cstdint>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "mscclpp/algorithms/catalogue.hpp"
#include "mscclpp/algorithms/collective/allreduce.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/sim/explore.hpp"

using namespace mscclpp;

namespace {

struct Measured {
  double rate;
  double goal;
  std::string what;
};

sim::ExploreResult exploreQuietly(int ranks, std::function<void(sim::RankContext&)> const& body,
                                  sim::ExploreOptions const& options) {
  auto result = sim::explore({ranks, {}}, body, options);
  if (!result.ok()) throw std::runtime_error("the measured program is not in order:\n" + sim::toText(result));
  return result;
}

struct CopyWords {
  MSCCLPP_DEVICE void operator()(std::uint32_t* dst, std::uint32_t const* src, unsigned count, unsigned rounds) const {
    for (unsigned round = 0; round < rounds; ++round) {
      for (unsigned i = thisBlock().rank(); i < count; i += thisBlock().size()) dst[i] = src[i];
      thisBlock().sync();
    }
  }
};

// Words of 4 bytes, each read once and written once a round.
Measured plainAccessesOf(unsigned threads, double effort) {
  constexpr unsigned count = 1 << 16;
  auto const rounds = static_cast<unsigned>(1 + 100 * effort);
  auto const result = exploreQuietly(1,
                                     [&](sim::RankContext& rank) {
                                       Device const device{DeviceKind::sim, rank.device()};
                                       GpuBuffer<std::uint32_t> const src(device, count);
                                       GpuBuffer<std::uint32_t> const dst(device, count);
                                       Stream const stream(device);
                                       launch(stream, {.blocks = 1, .threads = threads}, CopyWords{}, dst.data(),
                                              src.data(), count, rounds);
                                       stream.synchronize();
                                     },
                                     {.schedules = 1});
  auto const accesses = std::uint64_t{2} * count * rounds;
  if (result.checkedAccesses < accesses) {
    throw std::runtime_error(
        fmt::format("of {} plain accesses {} were checked: was this program compiled without "
                    "linking mscclpp::check?",
                    accesses, result.checkedAccesses));
  }
  return {static_cast<double>(result.checkedAccesses) / result.seconds / 1e6, 20,
          fmt::format("M checked plain accesses/s of {} threads", threads)};
}
Measured plainAccesses(double effort) { return plainAccessesOf(32, effort); }
Measured plainAccessesOfMany(double effort) { return plainAccessesOf(256, effort); }

struct LookAround {
  MSCCLPP_DEVICE void operator()(std::uint64_t* word, unsigned looks) const {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < looks; ++i) sum += load<Order::relaxed, Scope::device>(word);
    if (sum != 0) arch::trap("the word is not zero");
  }
};

// 64 threads, each interrupted at every ordered access.
Measured switches(double effort) {
  auto const looks = static_cast<unsigned>(1 + 50'000 * effort);
  auto const result = exploreQuietly(1,
                                     [&](sim::RankContext& rank) {
                                       Device const device{DeviceKind::sim, rank.device()};
                                       GpuBuffer<std::uint64_t> const word(device, 1);
                                       Stream const stream(device);
                                       launch(stream, {.blocks = 2, .threads = 32}, LookAround{}, word.data(), looks);
                                       stream.synchronize();
                                     },
                                     {.schedules = 1, .preemption = 1, .liveLockSteps = 1'000'000'000});
  return {static_cast<double>(result.switches) / result.seconds / 1e6, 2, "M fiber switches/s"};
}

// 4 ranks, 4 KiB, one-shot LL16, launched as the library would.
Measured allReduce(double effort) {
  constexpr FixedName algorithm = "oneshot_ll16";
  using Collective = NamedAllReduce<algorithm, Sum, 4>;
  constexpr unsigned ranks = 4;
  constexpr unsigned count = 4096 / sizeof(float);
  constexpr auto shape = shapeOf<Collective>(ranks, count * sizeof(float), largestGrid);
  auto const result =
      exploreQuietly(ranks,
                     [&](sim::RankContext& rank) {
                       Communicator const communicator(rank.bootstrap(), Device{DeviceKind::sim, rank.device()});
                       Team const team(communicator, Collective::requirement(ranks, shape.blocks, shape.threads));
                       GpuBuffer<float> const in(communicator.device(), count);
                       GpuBuffer<float> const out(communicator.device(), count);
                       copyToDevice(in, std::vector<float>(count, 1.0f));
                       Stream const stream(communicator.device());
                       launch(stream, {.blocks = shape.blocks, .threads = shape.threads},
                              AllReduceKernel<Collective, float>{}, in.data(), out.data(), count, team.deviceHandle());
                       communicator.synchronize(stream);
                       if (copyToHost(out) != std::vector<float>(count, 4.0f)) throw std::runtime_error("a wrong sum");
                       communicator.bootstrap()->barrier();
                     },
                     {.schedules = static_cast<int>(1 + 999 * effort)});
  return {static_cast<double>(result.schedules) / result.seconds, 1000.0 / 30,
          fmt::format("schedules/s of a 4-rank LL16 all-reduce of 4 KiB ({} x {} threads a rank)", shape.blocks,
                      shape.threads)};
}

}  // namespace

int main(int argc, char** argv) {
  double effort = 1;
  double atLeast = 0;
  CLI::App app("What checking costs: rates on one core, beside their goals");
  app.add_option("--effort", effort, "How much to measure; 1 takes about a minute")->check(CLI::Range(0.001, 100.0));
  app.add_option("--at-least", atLeast, "Fail below this fraction of a goal")->check(CLI::Range(0.0, 10.0));
  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  bool slow = false;
  try {
    fmt::print("| measured | goal | |\n| --- | --- | --- |\n");
    for (auto* measure : {plainAccesses, plainAccessesOfMany, switches, allReduce}) {
      auto const [rate, goal, what] = measure(effort);
      fmt::print("| {:.1f} | {:.1f} | {} |\n", rate, goal, what);
      std::fflush(stdout);
      if (rate < atLeast * goal) {
        slow = true;
        fmt::print(stderr, "error: {:.2f} {} is below {} of the goal of {:.1f}\n", rate, what, atLeast, goal);
      }
    }
  } catch (std::exception const& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return slow ? 1 : 0;
}
