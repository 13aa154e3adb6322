// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "machine/machine.hpp"
#include "machine/over_ranks.hpp"
#include "mscclpp/collectives/reduce_op_type.hpp"
#include "mscclpp/dsl/core/demand.hpp"
#include "mscclpp/dsl/detail/lower/lower.hpp"
#include "mscclpp/dsl/plan_algorithm.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/ranks.hpp"
#include "mscclpp/jit/plan_executor.hpp"
#include "plan/exchange.hpp"

namespace mscclpp::tools {
namespace {

// What nobody has written.
constexpr int poison = 0xa5;
// Behind the output, where nobody may write.
constexpr std::size_t guardBytes = 256;

std::uint64_t mixed(std::uint64_t seed, int rank, std::size_t index) {
  auto x = seed + 0x9e3779b97f4a7c15u * (index + 1) + 0xd1b54a32d192ed03u * static_cast<std::uint64_t>(rank + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Any bits where data are only moved; else small whole numbers, whose sums are exact in any order, and powers of two,
// whose products are.
template <Number T>
T element(std::uint64_t word, ReduceOp op) {
  if (op == ReduceOp::none) {
    T value;
    std::memcpy(&value, &word, sizeof(T));
    return value;
  }
  if (op == ReduceOp::prod) {
    constexpr float factors[] = {1, 2, -1, 0.5};
    return convertNumber<T>(factors[word % (std::is_integral_v<T> ? 2 : 4)]);
  }
  return convertNumber<T>(static_cast<float>(word % 4 + 1));
}

// Narrow floats round the sums of many ranks, once for each step of the plan: then neighbours pass.
template <Number T>
bool agree(T actual, T expected, ReduceOp op, int ranks) {
  if (std::memcmp(&actual, &expected, sizeof(T)) == 0) return true;
  if constexpr (!std::is_integral_v<T>) {
    if (op != ReduceOp::sum && op != ReduceOp::avg) return false;
    auto const exactUpTo = sizeof(T) == 1 ? 8 : std::is_same_v<T, BFloat16> ? 256 : 2048;
    if (op == ReduceOp::sum && 4 * ranks <= exactUpTo) return false;
    auto const a = convertNumber<double>(actual), e = convertNumber<double>(expected);
    return std::abs(a - e) <= 2.0 / exactUpTo * ranks * std::abs(e);
  } else {
    return false;
  }
}

struct ChunkRange {
  std::size_t first = 0, count = 0;  // elements
};

// Chunk `chunk` of a buffer whose slices hold `count` elements in `perSlice` chunks: 16-byte units, the first chunks
// one longer.
ChunkRange rangeOf(std::size_t count, std::size_t elementBytes, int perSlice, int chunk) {
  auto const bytes = count * elementBytes, units = (bytes + 15) / 16;
  auto const n = static_cast<std::size_t>(perSlice), c = static_cast<std::size_t>(chunk % perSlice);
  auto const start = [&](std::size_t i) { return std::min((units / n * i + std::min(i, units % n)) * 16, bytes); };
  auto const slice = static_cast<std::size_t>(chunk / perSlice) * count;
  return {slice + start(c) / elementBytes, (start(c + 1) - start(c)) / elementBytes};
}

// One rank's buffers and what they must hold.
template <Number T>
class RankBuffers {
 public:
  RankBuffers(Communicator const& communicator, dsl::ExecutionPlan const& plan, PlanRun const& run)
      : communicator_(communicator), program_(plan.program()), run_(run) {
    auto const& collective = program_.collective;
    auto const inSlices = static_cast<std::size_t>(collective.inputSlices());
    auto const outSlices = static_cast<std::size_t>(collective.outputSlices());
    count_ = run.bytes / sizeof(T) / std::max(inSlices, outSlices);
    inCount_ = count_ * inSlices;
    outCount_ = count_ * outSlices;
    auto const larger = std::max(inCount_, outCount_) + guardBytes / sizeof(T);
    auto const make = [&](int which, dsl::BufferKind buffer) {
      auto& memory = memory_[which];
      bool const multicast = plan.windowUse(communicator, buffer, nullptr) == WindowUse::multicast;
      memory = GpuBuffer<T>(communicator.device(), larger, multicast ? MemoryKind::shareable : MemoryKind::standard);
      windows_.emplace_back(communicator, memory.data(), memory.bytes(), std::vector<int>{},
                            plan.windowUse(communicator, buffer, memory.data()));
    };
    // The one buffer of a program in place goes by the name of the larger.
    make(0, program_.inPlace && inCount_ <= outCount_ ? dsl::BufferKind::output : dsl::BufferKind::input);
    in_ = out_ = memory_[0].data();
    if (!program_.inPlace) {
      make(1, dsl::BufferKind::output);
      out_ = memory_[1].data();
    } else if (inCount_ != outCount_) {
      (inCount_ < outCount_ ? in_ : out_) += static_cast<std::size_t>(communicator.rank()) * count_;
    }
  }

  dsl::PlanExecution call() {
    return {.in = in_,
            .out = out_,
            .inBytes = inCount_ * sizeof(T),
            .outBytes = outCount_ * sizeof(T),
            .type = run_.type,
            .op = run_.op,
            .packets = run_.packets,
            .inWindow = &windows_.front(),
            .outWindow = &windows_.back()};
  }

  void prepare(std::uint64_t seed) {
    for (auto const& memory : memory_) memory.fill(poison);
    std::vector<T> values(inCount_);
    for (std::size_t i = 0; i < inCount_; ++i) values[i] = input(seed, communicator_.rank(), i);
    copyToDevice(communicator_.device(), in_, std::span<T const>(values));
  }

  void compare(std::uint64_t seed, PlanRunResult& result) const {
    std::vector<T> got(outCount_ + guardBytes / sizeof(T));
    // Behind a reduce-scatter in place lies the rest of the input.
    bool const guarded = !(program_.inPlace && inCount_ > outCount_);
    if (!guarded) got.resize(outCount_);
    copyToHost(communicator_.device(), std::span<T>(got), static_cast<T const*>(out_));
    std::string first;
    auto const note = [&](std::size_t i, auto const& expected) {
      ++result.wrong;
      if (!first.empty()) return;
      first = fmt::format("rank {}: output element {} is {}, expected {}", communicator_.rank(), i, shown(got[i]),
                          expected);
    };
    for (int chunk = 0; chunk < program_.collective.outputChunks(); ++chunk) {
      auto const holds = dsl::demanded(program_, communicator_.rank(), chunk);
      if (holds.empty()) continue;
      auto const out = rangeOf(count_, sizeof(T), program_.perSlice(dsl::BufferKind::output), chunk);
      for (std::size_t i = 0; i < out.count; ++i) {
        auto const expected = expectedAt(seed, holds, i);
        ++result.compared;
        if (!agree(got[out.first + i], expected, run_.op, communicator_.size())) {
          note(out.first + i, shown(expected));
        }
      }
    }
    T untouched;
    std::memset(&untouched, poison, sizeof(T));
    for (auto i = outCount_; i < got.size(); ++i) {
      if (std::memcmp(&got[i], &untouched, sizeof(T)) != 0) note(i, "nothing to be written there, behind the buffer");
    }
    if (!first.empty()) result.findings.push_back(first);
  }

 private:
  static double shown(T value) { return convertNumber<double>(value); }
  T input(std::uint64_t seed, int rank, std::size_t i) const {
    auto const reduces = operationOf(program_) != ReduceOp::none;
    return element<T>(mixed(seed, rank, i), reduces ? run_.op : ReduceOp::none);
  }

  T expectedAt(std::uint64_t seed, std::vector<dsl::Contribution> const& holds, std::size_t i) const {
    int const perSlice = program_.perSlice(dsl::BufferKind::input);
    auto const from = [&](dsl::Contribution const& each) {
      return input(seed, each.rank, rangeOf(count_, sizeof(T), perSlice, each.chunk).first + i);
    };
    if (holds.size() == 1) return from(holds[0]);
    return withReduceOp(run_.op, [&]<class Op>(std::type_identity<Op>) {
      using A = DefaultAccumulator<T>;
      auto total = convertNumber<A>(from(holds[0]));
      for (std::size_t h = 1; h < holds.size(); ++h) total = Op{}(total, convertNumber<A>(from(holds[h])));
      return convertNumber<T>(Op{}.finish(total, static_cast<int>(holds.size())));
    });
  }

  Communicator const& communicator_;
  dsl::Program const& program_;
  PlanRun const& run_;
  std::size_t count_, inCount_, outCount_;
  GpuBuffer<T> memory_[2];
  std::vector<MemoryWindow> windows_;
  T *in_, *out_;
};

}  // namespace

std::uint64_t granularityOf(dsl::ExecutionPlan const& plan, DataType type) {
  auto const& collective = plan.program().collective;
  auto const slices = static_cast<std::uint64_t>(std::max(collective.inputSlices(), collective.outputSlices()));
  auto const shape = dsl::shapeOf(plan.program(), false);
  auto const whole = std::uint64_t{16} * static_cast<unsigned>(shape.longestOf);
  return slices * (plan.verdict().needsEvenChunks ? whole : bytesOf(type));
}

ReduceOp operationOf(dsl::Program const& program) {
  for (auto const& rank : program.ranks) {
    for (auto const& block : rank.blocks) {
      for (auto const& step : block.steps) {
        if (step.sources.size() < 2) continue;
        switch (step.reduce) {
          case dsl::ReduceKind::prod:
            return ReduceOp::prod;
          case dsl::ReduceKind::min:
            return ReduceOp::min;
          case dsl::ReduceKind::max:
            return ReduceOp::max;
          default:
            return ReduceOp::sum;
        }
      }
    }
  }
  return ReduceOp::none;
}

namespace {

// As the benchmark's table has it.
bench::Row rowOf(dsl::ExecutionPlan const& plan, PlanRun const& run, LaunchShape const& shape) {
  auto const& collective = plan.program().collective;
  bench::Row row;
  row.item.plan = plan.program().name.str();
  row.item.type = run.type;
  row.item.operation = run.op;
  row.item.slots = std::max(collective.inputSlices(), collective.outputSlices());
  row.item.count = run.bytes / bytesOf(run.type) / static_cast<unsigned>(row.item.slots);
  row.item.inPlace = plan.program().inPlace;
  row.item.launch = KernelLaunch{.shape = shape};
  row.item.operations = run.operations;
  row.item.replays = run.replays;
  if (auto const known = dsl::collectiveOf(plan.program())) {
    row.item.collective = *known;
  } else if (collective.kind == dsl::CollectiveKind::sendReceive) {
    row.item.collective = Collective::sendRecv;
  } else {
    row.item.ofItsOwn = true;
  }
  return row;
}

// One rank's part of it; ranks of one process share `result`.
template <Number T>
void runRank(Communicator& communicator, dsl::ExecutionPlan const& plan, PlanRun const& run, PlanRunResult& result,
             std::mutex& mutex) {
  auto& machine = *bench::machine(run.device);
  machine.use(communicator.device());
  auto const& collective = plan.program().collective;
  auto const message = run.bytes / static_cast<unsigned>(std::max(collective.inputSlices(), collective.outputSlices()));
  Stream const stream(communicator.device());
  jit::PlanExecutor const executor(communicator, plan, message, jit::CompileWhen::asked);
  using Clock = std::chrono::steady_clock;
  auto const begin = Clock::now();
  bool const isCode = run.compiled && executor.compile(run.type, run.op, run.packets);
  std::chrono::duration<double> const compiling = Clock::now() - begin;
  RankBuffers<T> buffers(communicator, plan, run);
  PlanRunResult own;
  // All ranks' buffers are ready before the first kernel, and read before they are filled again.
  auto const together = [&] { communicator.bootstrap()->barrier(); };
  auto const checkedCall = [&](std::uint64_t seed) {
    buffers.prepare(seed);
    together();
    executor.execute(stream, buffers.call());
    communicator.synchronize(stream);
    together();
    buffers.compare(seed, own);
  };
  checkedCall(run.seed);
  together();
  bool const graph = run.launch == bench::LaunchMode::graph;
  auto const timer = graph ? machine.makeTimer(stream) : bench::makeLoopTimer(machine.warmUps());
  auto seconds = timer->measure({.restore = [&] { buffers.prepare(run.seed); },
                                 .operate = [&](int, bool) { executor.execute(stream, buffers.call()); },
                                 .operations = run.operations,
                                 .together = together,
                                 .synchronize = [&] { communicator.synchronize(stream); }},
                                run.replays);
  for (double& one : seconds) one = bench::largest(communicator, one);
  checkedCall(run.seed + 1);
  auto const compared = bench::total(communicator, own.compared), wrong = bench::total(communicator, own.wrong);
  bool const shares = bench::largest(communicator, communicator.ranksPerDevice()) > 1;
  together();

  std::lock_guard lock(mutex);
  result.findings.insert(result.findings.end(), own.findings.begin(), own.findings.end());
  if (run.compiled) {
    result.form = isCode ? fmt::format("compiled at run time, which took {:.3g} s on rank {}", compiling.count(),
                                       communicator.rank())
                         : "too long to be compiled, and interpreted";
  }
  result.compared = compared;
  result.wrong = wrong;
  auto row = rowOf(plan, run, executor.launchShape(run.type, run.op, run.packets, message));
  row.median = bench::quantile(seconds, 0.5);
  row.p99 = bench::quantile(seconds, 0.99);
  row.algorithmBandwidth = row.median > 0 ? static_cast<double>(row.item.bytes()) / row.median : 0;
  auto const factor = row.item.ofItsOwn ? 1 : bench::busFactor(row.item.collective, communicator.size());
  row.busBandwidth = row.algorithmBandwidth * factor;
  if (compared != 0) row.wrong = wrong;
  result.report.rows = {row};
  result.report.ranks = communicator.size();
  result.report.launch = graph && machine.makesGraphs() ? bench::LaunchMode::graph : bench::LaunchMode::eager;
  result.report.shared = shares;
  result.report.note = machine.note();
}

}  // namespace

PlanRunResult runPlan(dsl::ExecutionPlan const& plan, PlanRun const& run, LaunchInfo const& launch) {
  PlanRunResult result;
  std::mutex mutex;
  auto const rankMain = [&](Communicator& communicator) {
    withDataType(run.type, [&]<class T>(std::type_identity<T>) { runRank<T>(communicator, plan, run, result, mutex); });
  };
  if (launch.size > 1) {
    Communicator communicator(bootstrapFromEnvironment(),
                              Device{run.device, launch.localRank % Device::count(run.device)});
    rankMain(communicator);
  } else {
    runRanks(devicesInTurn(run.device, plan.program().size()), rankMain);
  }
  return result;
}

}  // namespace mscclpp::tools
