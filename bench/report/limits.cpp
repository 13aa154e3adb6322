// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "report/limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

#include "machine/machine.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "report/network_limits.hpp"
#include "report/report.hpp"
#include "session/session.hpp"

namespace mscclpp::bench {
namespace {

constexpr double leastRate = 1;  // bytes a second: a file with 0 could not be used

double secondsOf(LimitTimes const& seconds, Limit limit) { return seconds[static_cast<std::size_t>(limit)]; }
LimitCase const& caseOf(LimitCases const& cases, Limit limit) { return cases[static_cast<std::size_t>(limit)]; }

double notNegative(double value) { return std::isfinite(value) ? std::max(0.0, value) : 0; }

// Of `bytes` in what is left of a time without its latencies.
double rateOf(double bytes, double seconds) { return seconds > 0 ? std::max(leastRate, bytes / seconds) : leastRate; }

struct Ramp {
  double rate;
  double blocks;
};
// The time of a byte is (1 + ramp / blocks) / rate, here for two grids.
Ramp rampOf(double few, double fewTime, double many, double manyTime) {
  auto const slope = notNegative((fewTime - manyTime) / (1 / few - 1 / many));
  auto const atInfinity = manyTime - slope / many;
  if (few >= many || atInfinity <= 0) return {1 / manyTime, 0};
  return {1 / atInfinity, slope / atInfinity};
}

// Reads plus writes of a copy within the device; on this process's first rank.
double measureMemory(Machine& machine, Device device, bool simulated) {
  std::size_t const bytes = simulated ? 64 << 10 : 256 << 20;
  int const copies = simulated ? 2 : 10;
  machine.use(device);
  DeviceMemory const from(device, bytes);
  DeviceMemory const to(device, bytes);
  Stream const stream(device);
  auto const seconds =
      machine.makeTimer(stream)->measure({.restore = [] {},
                                          .operate = [&](int, bool) { stream.copy(to.data(), from.data(), bytes); },
                                          .operations = copies,
                                          .together = [] {},
                                          .synchronize = [&] { stream.synchronize(machine.kernelLimit()); }},
                                         simulated ? 3 : 10);
  return rateOf(2.0 * static_cast<double>(bytes), quantile(seconds, 0.5));
}

Case plannedCase(Options const& given, LimitCase const& limit, Session const& session) {
  Options options;
  options.collectives = {limit.collective};
  options.algorithmChoice = AlgorithmChoice::named;
  options.algorithms = {std::string(limit.algorithm)};
  options.minBytes = limit.bytes;
  options.maxBytes = limit.bytes;
  options.overlap = limit.overlapped;
  options.replays = given.replays;
  if (limit.blocks != 0) options.blocks = limit.blocks;
  if (limit.threads != 0) options.threads = limit.threads;
  return session.plan(options).cases.at(0);
}

// A rate is missing where much data took no longer than little.
void requireRates(MachineModel const& model) {
  for (auto const& parameter : modelParameters) {
    auto const value = model.*parameter.member / parameter.unit;
    if (parameter.unit != gigabyte || value >= 0.1) continue;
    throw Error(ErrorCode::internalError,
                fmt::format("--limits: {} comes out as {:.2g}, which no GPU has; the times above do not fit together, "
                            "so nothing is written: repeat it while nothing else runs on these devices",
                            parameter.name, value));
  }
}

void measureNetworkLimits(Options const& options, Session& session) {
  if (session.leads())
    fmt::print("mscclpp-bench: limits between {} nodes, {}\n", session.world().nodes, session.description());
  NetworkModel model;
  session.onRanks([&](Communicator& communicator) {
    auto const found = measureNetwork(*machine(session.world().machine), communicator);
    if (communicator.rank() == 0) model = found;
  });
  session.close();
  if (!session.leads()) return;
  model.save(options.limits);
  fmt::print("{}", model.json());
}

}  // namespace

LimitCases limitCases(World const& world, unsigned multiprocessors) {
  bool const simulated = world.machine == DeviceKind::sim;
  auto const ranks = static_cast<std::uint64_t>(world.ranks);
  // One payload of every rank or so, and what takes many times the latencies; whole parts for every rank.
  auto const small = 256 * ranks;
  auto const whole = [&](std::uint64_t bytes) { return (bytes + 128 * ranks - 1) / (128 * ranks) * 128 * ranks; };
  auto const large = whole(simulated ? std::uint64_t{64} << 10 : std::uint64_t{256} << 20);
  auto const oneBlock = whole(simulated ? large : large / 16);
  unsigned const many = simulated ? 4 : multiprocessors;
  unsigned const some = std::max(1u, many / 8);
  unsigned const threads = simulated ? 32 : 512;
  using enum Limit;
  using enum Collective;
  return {{{oneExchange, "kernel and packets", allReduce, "oneshot_ll8", small},
           {twoExchanges, "kernel and packets twice", allReduce, "twoshot_ll8", small},
           {withoutOverlap, "the same without overlapped launches", allReduce, "oneshot_ll8", small, 0, 0, false},
           {twoMeetings, "two barriers", allGather, "push", small},
           {throughStage, "through the stage", allGather, "memory", small},
           {byBulkCopies, "bulk copies", allGather, "push_bulk", small},
           {copiesToAll, "copies by copy engines", allGather, "copy_engine", small, 0, 0, false},
           {copiesReduced, "such copies, reduced", reduceScatter, "copy_engine", small, 0, 0, false},
           {copiesTwice, "such copies, reduced and copied", allReduce, "copy_engine", small, 0, 0, false},
           {manyBlocksStore, "stores to the peers", allGather, "push", large, many, threads},
           {someBlocksStore, "stores to the peers, few blocks", allGather, "push", large, some, threads},
           {oneBlockStores, "stores of one block", allGather, "push", oneBlock, 1, threads},
           {loadsFromPeers, "loads from the peers", reduceScatter, "pull", large, many, threads},
           {copyEnginesStore, "copy engines to the peers", allGather, "copy_engine", large, 0, 0, false}}};
}

MachineModel solveLimits(LimitCases const& cases, LimitTimes const& seconds, int ranks, std::string device,
                         unsigned multiprocessors, double memoryRate) {
  auto const time = [&](Limit limit) { return secondsOf(seconds, limit); };
  auto const bytesOf = [&](Limit limit) { return static_cast<double>(caseOf(cases, limit).bytes); };
  double const n = ranks;
  double const peers = ranks - 1;
  MachineModel model;
  model.device = std::move(device);
  model.multiprocessors = multiprocessors;
  model.memoryRate = memoryRate;

  using enum Limit;
  model.packetTime = std::min(notNegative(time(twoExchanges) - time(oneExchange)), time(oneExchange));
  model.kernelTime = time(oneExchange) - model.packetTime;
  model.launchGap = notNegative(time(withoutOverlap) - time(oneExchange));
  model.barrierTime = notNegative((time(twoMeetings) - model.kernelTime) / 2);
  model.stageTime = notNegative(time(throughStage) - model.kernelTime - model.barrierTime);
  model.bulkTime = notNegative(time(byBulkCopies) - time(twoMeetings));
  model.copyTime = notNegative((time(copiesTwice) - time(copiesReduced)) / peers);
  model.copyCallTime = notNegative(time(copiesToAll) - peers * model.copyTime);
  model.copyChunkTime = notNegative(time(copiesReduced) - time(copiesToAll));

  // Each sends its part, an n-th of the bytes, to all peers.
  auto const sent = bytesOf(manyBlocksStore) / n * peers;
  auto const perByte = [&](Limit limit) { return 1 / rateOf(sent, time(limit) - time(twoMeetings)); };
  auto const ramp = rampOf(caseOf(cases, someBlocksStore).blocks, perByte(someBlocksStore),
                           caseOf(cases, manyBlocksStore).blocks, perByte(manyBlocksStore));
  model.storeRate = std::max(leastRate, ramp.rate);
  model.storeRamp = ramp.blocks;
  // The own part is stored too.
  model.blockRate = rateOf(bytesOf(oneBlockStores), time(oneBlockStores) - time(twoMeetings));
  model.loadRate = rateOf(bytesOf(loadsFromPeers) / n * peers, time(loadsFromPeers) - time(twoMeetings));
  model.copyRate = rateOf(bytesOf(copyEnginesStore) / n * peers, time(copyEnginesStore) - time(copiesToAll));
  return model;
}

void measureLimits(Options const& options, std::uint64_t digest) {
  Session session(options, digest);
  auto const& world = session.world();
  if (world.ranks < 2) {
    throw UsageError("--limits: there is 1 rank; it measures links, so 2 or more devices are needed");
  }
  if (session.shared()) {
    throw UsageError(
        fmt::format("--limits: {} ranks share devices; it measures links, so each needs one of its own", world.ranks));
  }
  if (world.nodes > 1) return measureNetworkLimits(options, session);
  bool const simulated = world.machine == DeviceKind::sim;
  Device const device{world.machine, 0};
  auto const multiprocessors = static_cast<unsigned>(device.properties().multiprocessors);
  auto const limits = limitCases(world, multiprocessors);
  std::vector<Case> cases;
  for (auto const& limit : limits) cases.push_back(plannedCase(options, limit, session));
  if (session.leads()) fmt::print("mscclpp-bench: limits of {}\n{}\n", session.description(), session.note());
  session.prepare(cases);
  LimitTimes seconds{};
  for (std::size_t i = 0; i < limits.size(); ++i) {
    auto const result = session.run(cases[i]);
    if (result.wrong.value_or(0) != 0) {
      throw Error(ErrorCode::internalError, fmt::format("--limits: {}: {} elements are wrong; nothing is written",
                                                        cases[i].name(), *result.wrong));
    }
    seconds[i] = quantile(result.seconds, 0.5);
    if (session.leads()) {
      fmt::print("{:<38}{:>6}{:>5} x {:<4}{:>10.2f} us\n", limits[i].what, formatBytes(cases[i].bytes()),
                 cases[i].launch->shape.blocks, cases[i].launch->shape.threads, seconds[i] * 1e6);
    }
  }
  std::optional<double> memoryRate;
  if (session.leads()) memoryRate = measureMemory(*machine(world.machine), device, simulated);
  session.close();
  if (!memoryRate) return;
  auto const model = solveLimits(limits, seconds, world.ranks, session.deviceName(), multiprocessors, *memoryRate);
  if (!simulated) requireRates(model);
  model.save(options.limits);
  fmt::print("{}", model.json());
}

}  // namespace mscclpp::bench
