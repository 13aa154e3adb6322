// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "programs_bench.hpp"

#include <algorithm>
#include <chrono>

#include "dsl/programs.hpp"
#include "machine/machine.hpp"
#include "machine/over_ranks.hpp"
#include "mscclpp/dsl/kernel.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/jit/plan_executor.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"

namespace programs_bench {
namespace {

using namespace mscclpp;
using T = float;

template <class Collective>
struct AlgorithmKernel {
  MSCCLPP_DEVICE void operator()(T* data, std::size_t count, DeviceTeam const& team) const {
    Collective{team}(thisGrid(), View{data, count}, View{data, count});
  }
};

class RankBench {
 public:
  RankBench(Communicator& communicator, Options const& options, Result& result)
      : communicator_(communicator),
        options_(options),
        result_(result),
        stream_(communicator.device()),
        timer_(bench::machine(kernelDevice)->makeTimer(stream_)) {}

  template <int Ranks>
  void measureAll() {
    measure<dsl_test::OneShotPackets<Ranks>, AllReduce<OneShot, PacketTransport<LL16>, Avg, Ranks>>("one-shot");
    measure<dsl_test::TwoShotPackets<Ranks>, AllReduce<TwoShot, PacketTransport<LL16>, Avg, Ranks>>("two-shot");
  }

 private:
  template <class Program, class Collective>
  void measure(char const* name) {
    auto const largest = *std::ranges::max_element(options_.sizes);
    auto const context = dsl::makeContext<Program>(communicator_, largest);
    dsl::ExecutionPlan const plan(dsl::build<Program>());
    dsl::PlanExecutor const executor(communicator_, plan, largest);
    jit::PlanExecutor const late(communicator_, plan, largest, jit::CompileWhen::asked);
    auto const callOf = [](GpuBuffer<T> const& data) {
      return dsl::PlanExecution{.in = data.data(),
                                .out = data.data(),
                                .inBytes = data.bytes(),
                                .outBytes = data.bytes(),
                                .type = DataType::float32,
                                .op = ReduceOp::avg};
    };
    auto const most = context.launchShape();
    auto const ranks = static_cast<std::uint32_t>(communicator_.size());
    Team const team(communicator_, Collective::requirement(ranks, most.blocks, most.threads));
    layout::WindowHandle const none{};
    for (auto const bytes : options_.sizes) {
      std::size_t const count = bytes / sizeof(T);
      auto const shape = context.launchShape(bytes);
      GpuBuffer<T> const data(communicator_.device(), count);
      Row row{.program = name, .bytes = bytes, .blocks = shape.blocks, .threads = shape.threads};
      auto const ahead = [&] {
        launch(stream_, shape, dsl::Kernel<Program, T, Avg>{}, data.data(), data.data(), count, context.deviceHandle(),
               none, none);
      };
      row.compiled = time(data, row.wrong, ahead);
      row.plan = time(data, row.wrong, [&] { executor.execute(stream_, callOf(data)); });
      if (options_.late) {
        if (bytes == options_.sizes.front()) measureLate(name, plan, late, callOf(data), ahead);
        row.late = time(data, row.wrong, [&] { late.execute(stream_, callOf(data)); });
      }
      row.algorithm = time(data, row.wrong, [&] {
        launch(stream_, shape, AlgorithmKernel<Collective>{}, data.data(), count, team.deviceHandle());
      });
      if (communicator_.rank() == 0) result_.rows.push_back(row);
    }
  }

  template <class Ahead>
  void measureLate(char const* name, dsl::ExecutionPlan const& plan, jit::PlanExecutor const& late,
                   dsl::PlanExecution const& call, Ahead const& ahead) {
    using Clock = std::chrono::steady_clock;
    auto const seconds = [](auto const& f) {
      auto const begin = Clock::now();
      f();
      return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    Late one{.program = name};
    communicator_.bootstrap()->barrier();
    one.compiling = seconds([&] { late.compile(call.type, call.op); });
    // Calls that the device keeps up with; the least is what nothing disturbed.
    auto const host = [&](auto const& f) {
      double least = 1;
      for (int i = 0; i < 100; ++i) {
        communicator_.synchronize(stream_);
        communicator_.bootstrap()->barrier();
        least = std::min(least, seconds(f));
      }
      communicator_.synchronize(stream_);
      return least * 1e6;
    };
    one.call = host([&] { late.execute(stream_, call); });
    one.aheadCall = host(ahead);
    jit::PlanExecutor const again(communicator_, plan, call.inBytes, jit::CompileWhen::asked);
    one.again = seconds([&] { again.compile(call.type, call.op); }) * 1e6;
    if (communicator_.rank() == 0) result_.late.push_back(one);
  }

  static float input(std::size_t rank, std::size_t i) { return static_cast<float>((i * 7 + rank * 5) % 64); }

  template <class Operate>
  double time(GpuBuffer<T> const& data, std::size_t& wrong, Operate const& operate) {
    auto const rank = static_cast<std::size_t>(communicator_.rank());
    auto const ranks = static_cast<std::size_t>(communicator_.size());
    std::vector<T> inputs(data.size()), averages(data.size());
    for (std::size_t i = 0; i < data.size(); ++i) {
      inputs[i] = input(rank, i);
      for (std::size_t r = 0; r < ranks; ++r) averages[i] += input(r, i) / static_cast<float>(ranks);
    }
    auto const times = timer_->measure({.restore = [&] { copyToDevice(data, std::span<T const>(inputs)); },
                                        .operate = [&](int, bool) { operate(); },
                                        .operations = options_.operations,
                                        .together = [&] { communicator_.bootstrap()->barrier(); },
                                        .synchronize = [&] { communicator_.synchronize(stream_); }},
                                       options_.replays);
    auto const found = copyToHost(data);
    std::size_t different = 0;
    for (std::size_t i = 0; i < found.size(); ++i) different += found[i] == averages[i] ? 0 : 1;
    // Each replay, and each rank, in turn.
    std::vector<double> slowest(times);
    for (double& one : slowest) one = bench::largest(communicator_, one);
    std::ranges::sort(slowest);
    wrong += bench::total(communicator_, different);
    return slowest[slowest.size() / 2] * 1e6;
  }

  Communicator& communicator_;
  Options const& options_;
  Result& result_;
  Stream stream_;
  std::unique_ptr<bench::Timer> timer_;
};

}  // namespace

Result measure(Options const& options) {
  auto& machine = *bench::machine(kernelDevice);
  machine.prepare(4);
  Result result;
  int const devices = Device::count(kernelDevice);
  result.ranks = options.ranks != 0 ? options.ranks : devices >= 4 ? 4 : 2;
  result.devices = std::min(result.ranks, devices);
  result.note = machine.note();
  runRanks(devicesInTurn(kernelDevice, result.ranks), [&](Communicator& communicator) {
    machine.use(communicator.device());
    RankBench bench(communicator, options, result);
    communicator.size() == 4 ? bench.measureAll<4>() : bench.measureAll<2>();
  });
  return result;
}

}  // namespace programs_bench
