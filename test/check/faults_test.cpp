// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the library ships, under faults that schedules choose: ranks that are late, absent or aborted. Every rank makes
// several calls; each call is right or throws, and after an error all find together and make everything anew.
// MSCCLPP_CHECK_SCHEDULES is the number of schedules of each program and rank count; 2000 for the long run.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "check/channel_to_peer.hpp"
#include "check/explore_ranks.hpp"
#include "dsl/programs.hpp"
#include "mscclpp/algorithms/collective/allreduce.hpp"
#include "mscclpp/device/port_channel.hpp"
#include "mscclpp/dsl/kernel.hpp"
#include "mscclpp/dsl/plan_context.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "support/collective.hpp"
#include "support/messages.hpp"
#include "support/quiet_log.hpp"

using namespace check_test;
using namespace mscclpp_test;

namespace {

constexpr int calls = 4;
constexpr int schedulesHere = 40;

// A launch that is refused is the program's own fault.
void requireReport(Error const& error) {
  if (error.code() == ErrorCode::invalidUsage) throw std::runtime_error(error.what());
}

// What the ranks of a program have in common, made anew after an error; start() puts a call into the stream, isRight()
// says whether its result is what it must be.
template <class Shared>
void makeCalls(Rank& rank) {
  std::vector<std::unique_ptr<Shared>> made;  // also what is given up stays, to find what still touches it
  made.push_back(std::make_unique<Shared>(rank));
  for (int call = 0; call < calls;) {
    try {
      for (; call < calls; ++call) {
        made.back()->start(rank, call);
        rank.communicator.synchronize(rank.stream);
        if (!made.back()->isRight(rank, call)) throw std::runtime_error("a wrong result without a report");
      }
    } catch (Error const& error) {
      requireReport(error);
      rank.stream.synchronize();
      ++call;
    }
    // All go on with the first call that none has given up.
    for (auto const& others : rank.communicator.rejoin({static_cast<std::byte>(call)})) {
      call = std::max(call, static_cast<int>(others.at(0)));
    }
    if (call < calls) made.push_back(std::make_unique<Shared>(rank));
  }
  if constexpr (requires { made.back()->stop(); }) {
    for (auto const& each : made) each->stop();
  }
  rank.communicator.bootstrap()->barrier();
}

template <class Shared>
void explored(std::vector<int> const& sizes = {2, 3}, sim::MachineOptions const& machine = {}) {
  auto const* const text = std::getenv("MSCCLPP_CHECK_SCHEDULES");
  int const schedules = text == nullptr ? schedulesHere : std::max(1, std::atoi(text));
  for (int const ranks : sizes) {
    CAPTURE(ranks);
    for (auto const strategy : {sim::Strategy::random, sim::Strategy::pct}) {
      auto const result =
          exploreRanks({ranks, machine}, makeCalls<Shared>,
                       {.strategy = strategy, .schedules = (schedules + 1) / 2, .stopAtFirst = true, .faults = 2});
      CHECK_MESSAGE(result.ok(), sim::toText(result));
    }
  }
}

// Goes on after an error with what the ranks had in common, as a program may that overlooks it. Where a launch has
// failed it ends: the ranks' later calls would be for each other.
template <class Shared, bool Marked>
void goOn(Rank& rank) {
  Shared shared(rank);
  if (!Marked) rank.communicator.watch()->countersUsed = 0;  // so no counter is ever marked
  for (int call = 0; call < calls; ++call) {
    try {
      shared.start(rank, call);
      rank.communicator.synchronize(rank.stream);
      if (!shared.isRight(rank, call)) throw std::runtime_error("a wrong result without a report");
    } catch (Error const& error) {
      requireReport(error);
      rank.stream.synchronize();
      if (error.code() == ErrorCode::deviceError) break;
    }
  }
  rank.communicator.bootstrap()->barrier();
}

template <class Shared>
void markedAndNot() {
  sim::ExploreOptions options{.schedules = 100, .preemption = 0.1, .stopAtFirst = true, .faults = 1};
  auto const marked = exploreRanks({.ranks = 2}, goOn<Shared, true>, options);
  CHECK_MESSAGE(marked.ok(), sim::toText(marked));
  auto const unmarked = [](sim::ExploreOptions const& how) {
    return exploreRanks({.ranks = 2}, goOn<Shared, false>, how);
  };
  // Others may be found first, as old packets that end a wait.
  options.stopAtFirst = false;
  options.timeLimit = std::chrono::seconds(20);
  auto const result = unmarked(options);
  auto const wrong = std::find_if(result.findings.begin(), result.findings.end(), [](sim::Finding const& finding) {
    return finding.kind == sim::FindingKind::hostFailure &&
           finding.summary.find("a wrong result without a report") != std::string::npos;
  });
  REQUIRE_MESSAGE(wrong != result.findings.end(), sim::toText(result));
  CHECK(wrong->faults.size() == 1);
  auto const again = unmarked({.replay = wrong->schedule});
  auto const same = std::find_if(again.findings.begin(), again.findings.end(),
                                 [&](sim::Finding const& finding) { return finding.key == wrong->key; });
  REQUIRE_MESSAGE(same != again.findings.end(), sim::toText(again));
  CHECK(same->summary == wrong->summary);
  CHECK(same->faults == wrong->faults);
  CHECK(same->schedule == wrong->schedule);
}

// ---- collectives ----------------------------------------------------------------------------------------------------

template <class Collective, class T>
struct Collectives {
  static constexpr std::size_t count = 20;
  static constexpr unsigned blocks = 2;
  static constexpr unsigned threads = 32;

  explicit Collectives(Rank& rank)
      : team(rank.communicator, Collective::requirement(static_cast<std::uint32_t>(rank.size), blocks, threads)),
        in(rank.device, count),
        out(rank.device, count),
        inWindow(rank.communicator, in.data(), in.bytes()),
        outWindow(rank.communicator, out.data(), out.bytes()) {}

  void start(Rank& rank, int call) const {
    copyToDevice(in, std::span<T const>(inputOf(rank.rank, call)));
    startCollective<Collective, T>(rank, {.blocks = blocks, .threads = threads}, in.data(), out.data(), count, 0, team,
                                   inWindow.deviceHandle(), outWindow.deviceHandle());
  }
  bool isRight(Rank& rank, int call) const {
    Buffers<T> inputs;
    for (int r = 0; r < rank.size; ++r) inputs.push_back(inputOf(r, call));
    return countDifferent(copyToHost(out), Meaning<Collective>::template result<T>(inputs, rank.rank, 0)) == 0;
  }

 private:
  static std::vector<T> inputOf(int rank, int call) {
    return randomInput<T>(static_cast<std::uint64_t>(1000 + call), rank, count);
  }

  Team team;
  GpuBuffer<T> in, out;
  MemoryWindow inWindow, outWindow;
};

using ShortRing = StagePieces<2, 128>;

// ---- messages -------------------------------------------------------------------------------------------------------

// To the next rank, from the one before.
template <class P>
struct MessageRing {
  static constexpr std::size_t bytes = 90;

  explicit MessageRing(Rank& rank)
      : links(rank.communicator, {.lanes = 2, .slots = 2, .stageBytes = 1024, .packetLimit = 1000}),
        out(rank.device, bytes),
        in(rank.device, bytes) {}

  void start(Rank& rank, int call) const {
    copyToDevice(out, std::span<std::uint8_t const>(sentBy(rank.rank, call)));
    layout::Messages messages{};
    messages.addSend((rank.rank + 1) % rank.size, out.data(), bytes);
    messages.addRecv((rank.rank + rank.size - 1) % rank.size, in.data(), bytes);
    launch(rank.stream, {.blocks = 2, .threads = 32}, MessageKernel<P>{}, links.deviceHandle(), messages, 1);
  }
  bool isRight(Rank& rank, int call) const {
    return copyToHost(in) == sentBy((rank.rank + rank.size - 1) % rank.size, call);
  }

 private:
  static std::vector<std::uint8_t> sentBy(int rank, int call) {
    std::vector<std::uint8_t> data(bytes);
    for (std::size_t i = 0; i < bytes; ++i) data[i] = messageByte(static_cast<std::uint64_t>(call), rank, 0, i);
    return data;
  }

  PointToPoint links;
  GpuBuffer<std::uint8_t> out, in;
};

// ---- programs -------------------------------------------------------------------------------------------------------

struct ProgramKernel {
  MSCCLPP_DEVICE void operator()(std::uint32_t* data, std::size_t count, layout::PlanHandle const& plan) const {
    layout::WindowHandle const none{};
    dsl::kernel<dsl_test::OneShotPackets<2>, Sum>(data, data, count, plan, none, none);
  }
};

struct CompiledProgram {
  static constexpr std::size_t count = 64;

  explicit CompiledProgram(Rank& rank)
      : context(dsl::makeContext<dsl_test::OneShotPackets<2>>(rank.communicator, count * sizeof(std::uint32_t))),
        data(rank.device, count) {}

  void start(Rank& rank, int call) const {
    copyToDevice(data, std::span<std::uint32_t const>(
                           std::vector<std::uint32_t>(count, static_cast<std::uint32_t>(10 * call + rank.rank + 1))));
    launch(rank.stream, {.blocks = context.launchShape().blocks, .threads = 64}, ProgramKernel{}, data.data(), count,
           context.deviceHandle());
  }
  bool isRight(Rank&, int call) const {
    return copyToHost(data) == std::vector<std::uint32_t>(count, static_cast<std::uint32_t>(20 * call + 3));
  }

  dsl::PlanContext context;
  GpuBuffer<std::uint32_t> data;
};

// ---- port channels --------------------------------------------------------------------------------------------------

// A put each way through the ranks' proxies, from the first part to the peer's second one, and from there to the third.
struct PutKernel {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const& channel, std::uint32_t* own, unsigned words) const {
    auto const block = thisBlock();
    auto const part = words * sizeof(std::uint32_t);
    channel.putWithSignal(block, part, 0, part);
    channel.wait(block);
    for (auto i = block.rank(); i < words; i += block.size()) own[2 * words + i] = own[words + i];
    channel.flush(block);
    channel.signal(block);  // the peer may put again
    channel.wait(block);
  }
};

struct Ports {
  static constexpr unsigned words = 64;

  explicit Ports(Rank& rank)
      : own(rank.device, 3 * words),
        service(rank.communicator, {.proxies = 1, .fifoSize = 4}),
        channel(channelToPeer(rank, service, own)) {
    service.startProxy();
  }

  void start(Rank& rank, int call) const {
    copyToDevice(own, std::span<std::uint32_t const>(std::vector<std::uint32_t>(words, wordOf(rank.rank, call))));
    launch(rank.stream, {.blocks = 1, .threads = 32}, PutKernel{}, channel.deviceHandle(), own.data(), words);
  }
  bool isRight(Rank& rank, int call) const {
    std::vector<std::uint32_t> result(words);  // alone, since the peer may put again
    copyToHost(std::span<std::uint32_t>(result), own, std::size_t{2} * words);
    return result == std::vector<std::uint32_t>(words, wordOf(1 - rank.rank, call));
  }

  // Proxies still carry out what kernels have left.
  void stop() { service.stopProxy(); }

  GpuBuffer<std::uint32_t> own;
  ProxyService service;
  PortChannel channel;

 private:
  static std::uint32_t wordOf(int rank, int call) { return static_cast<std::uint32_t>(10 * call + rank + 1); }
};

}  // namespace

TEST_CASE_TEMPLATE("one-shot all-reduce", Tr, PacketTransport<LL8>, PacketTransport<LL16>, PacketTransport<LL128>,
                   MemoryTransport<2>) {
  explored<Collectives<AllReduce<OneShot, Tr, Sum>, float>>();
}

TEST_CASE_TEMPLATE("two-shot all-reduce", Tr, PacketTransport<LL16>, PacketTransport<LL128>) {
  explored<Collectives<AllReduce<TwoShot, Tr, Sum>, float>>();
}

TEST_CASE("all-reduce around the ring") { explored<Collectives<AllReduce<RingSchedule, ShortRing, Sum>, BFloat16>>(); }

TEST_CASE("messages") {
  explored<MessageRing<LL128>>();
  explored<MessageRing<LL16>>({2, 3}, {.linesArriveWhole = false});
}

TEST_CASE("calls go on after a report: refused with the mark, and found to be wrong without it") {
  markedAndNot<MessageRing<LL128>>();
  markedAndNot<Collectives<AllReduce<OneShot, MemoryTransport<2>, Sum>, float>>();
}

TEST_CASE("a compiled program") { explored<CompiledProgram>({2}); }

TEST_CASE("puts of port channels") { explored<Ports>({2}); }
