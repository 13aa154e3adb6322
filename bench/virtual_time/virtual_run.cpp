// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "virtual_run.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/sim/run.hpp"
#include "plan/exchange.hpp"

namespace virtual_time {
namespace {

using namespace mscclpp;

constexpr int chain = 4;  // calls that are timed, behind one that is not
constexpr std::uint64_t elementBytes = 2;

KernelTable& timedTable() {
  static bool const entered = [] {
    enterTimedKernels(KernelTable::instance());
    return true;
  }();
  static_cast<void>(entered);
  return KernelTable::instance();
}

DataType typeOf(Collective c) { return reduces(c) ? DataType::bfloat16 : DataType::uint8; }
ReduceOp operationOf(Collective c) { return reduces(c) ? ReduceOp::sum : ReduceOp::none; }

Kernel const* kernelOf(Collective collective, std::string const& algorithm) {
  return timedTable().find({DeviceKind::sim, collective, algorithm, typeOf(collective), operationOf(collective), 0});
}

// Not those that copy engines carry out from the host, nor those through the switch, of which no figure is known.
bool isTimed(Kernel const& kernel) { return kernel.sideStreams == 0 && !kernel.multicast; }

}  // namespace

std::vector<std::string> timedAlgorithms(Collective collective) {
  auto names = timedTable().algorithms(DeviceKind::sim, collective, typeOf(collective), operationOf(collective));
  std::erase_if(names, [&](auto const& name) {
    auto const* const kernel = kernelOf(collective, name);
    return kernel == nullptr || !isTimed(*kernel);
  });
  return names;
}

Answer timeOf(Query const& query, sim::TimingModel const& model) {
  auto const* const kernel = kernelOf(query.collective, query.algorithm);
  if (kernel == nullptr || !isTimed(*kernel)) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("no kernel of {} by {} is timed; there are {}", nameOf(query.collective), query.algorithm,
                            fmt::join(timedAlgorithms(query.collective), ", ")));
  }
  bool const sums = reduces(query.collective);
  auto const ranks = static_cast<std::uint64_t>(query.ranks);
  auto const& traits = traitsOf(query.collective);
  auto const smaller = query.bytes / traits.partsOf(ranks);
  if (smaller == 0 || smaller % elementBytes != 0 || smaller * traits.partsOf(ranks) != query.bytes) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("{} of {} bytes among {} ranks: there must be whole elements of {} bytes for each rank",
                            nameOf(query.collective), query.bytes, query.ranks, elementBytes));
  }
  auto const mostBlocks = World::mostBlocks(static_cast<unsigned>(model.multiprocessors));
  Answer answer{.shape = kernel->shape(static_cast<std::uint32_t>(ranks), smaller, mostBlocks)};
  if (query.blocks != 0) answer.shape.blocks = query.blocks;
  if (query.threads != 0) answer.shape.threads = query.threads;
  answer.shape.overlapPrevious = query.overlapped && kernel->overlaps;

  std::vector<double> seconds(ranks);
  sim::RunOptions options{.ranks = query.ranks, .preemption = 0, .timing = model};
  options.wallLimit = {};
  sim::run(options, [&](sim::RankContext& rank) {
    Device const device{DeviceKind::sim, rank.device()};
    Communicator const communicator(rank.bootstrap(), device);
    auto const& shape = answer.shape;
    Team const team(communicator, kernel->requirement(static_cast<std::uint32_t>(ranks), shape.blocks, shape.threads));
    auto const sizes = bench::sizedCall(query.collective, query.ranks, smaller);
    GpuBuffer<std::byte> const in(device, sizes.inBytes);
    GpuBuffer<std::byte> const out(device, sizes.outBytes);
    in.fill(0);
    std::optional<MemoryWindow> inWindow;
    std::optional<MemoryWindow> outWindow;
    if (kernel->inputWindow) inWindow.emplace(communicator, in.data(), in.bytes());
    if (kernel->outputWindow) outWindow.emplace(communicator, out.data(), out.bytes());
    Stream const stream(device);
    KernelCall const call{.stream = stream,
                          .team = team.deviceHandle(),
                          .in = in.data(),
                          .out = out.data(),
                          .count = sums ? smaller / elementBytes : smaller,
                          .op = operationOf(query.collective),
                          .inWindow = inWindow ? &inWindow->deviceHandle() : nullptr,
                          .outWindow = outWindow ? &outWindow->deviceHandle() : nullptr,
                          .shape = shape};
    for (int calls : {1, chain}) {
      // As in a graph, which begins everywhere at once.
      communicator.bootstrap()->barrier();
      auto const begin = rank.nanoseconds();
      for (int i = 0; i < calls; ++i) kernel->start(call);
      communicator.synchronize(stream);
      seconds[static_cast<std::size_t>(rank.rank())] += (calls == 1 ? -1 : 1) * (rank.nanoseconds() - begin) * 1e-9;
    }
    communicator.bootstrap()->barrier();
  });
  answer.seconds = *std::max_element(seconds.begin(), seconds.end()) / (chain - 1);
  return answer;
}

}  // namespace virtual_time
