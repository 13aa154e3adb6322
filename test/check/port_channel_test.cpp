// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Planted faults of programs with port channels: what the checker must say when a wait, a flush or a signal is missing.
#include "mscclpp/device/port_channel.hpp"
#include "check/channel_to_peer.hpp"
#include "check/harness.hpp"
#include "mscclpp/host/port_channel.hpp"

using namespace check_test;

namespace {

// Two ranks' port channel to each other, with its service, and a buffer of three parts: puts go from the own first part
// to the peer's second one.
struct PortPair {
  GpuBuffer<std::uint32_t> own;
  ProxyService service;
  PortChannel channel;

  explicit PortPair(Rank const& rank, std::size_t words = 64, std::uint32_t fifoSize = 4)
      : own(rank.device, 3 * words),
        service(rank.communicator, {.proxies = 1, .fifoSize = fifoSize}),
        channel(channelToPeer(rank, service, own)) {
    service.startProxy();
  }
};

// Program<F>::operator()(channel, own) is the kernel of both ranks.
template <template <Fault> class Program>
void checkPort(Expected const& expected, Setup const& setup = {},
               std::source_location const& here = std::source_location::current()) {
  auto const launched = [&setup](auto kernel) {
    return [&setup, kernel](Rank& rank) {
      PortPair const pair(rank);
      launch(rank.stream, {.blocks = setup.blocks, .threads = setup.threads}, kernel, pair.channel.deviceHandle(),
             pair.own.data());
      rank.synchronize();
    };
  };
  checkFound(expected, setup, launched(Program<Fault::planted>{}), here.file_name());
  checkSilent(setup, launched(Program<Fault::none>{}));
}

constexpr unsigned words = 64;
constexpr std::uint64_t part = words * sizeof(std::uint32_t);

template <Fault F>
struct MissingWait {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const& channel, std::uint32_t* own) const {
    auto const block = thisBlock();
    own[block.rank()] = 1;
    channel.putWithSignal(block, part, 0, part);
    if constexpr (!planted<F>) channel.wait(block);
    own[2 * words + block.rank()] = own[words + block.rank()];  // <- read too early
    if constexpr (planted<F>) channel.wait(block);
    channel.flush(block);
  }
};

template <Fault F>
struct MissingFlush {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const& channel, std::uint32_t* own) const {
    auto const block = thisBlock();
    own[block.rank()] = 1;
    channel.putWithSignal(block, part, 0, part);
    if constexpr (!planted<F>) channel.flush(block);
    own[block.rank()] = 2;  // <- source reused
    channel.wait(block);
  }
};

template <Fault F>
struct MissingSignal {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const& channel, std::uint32_t* own) const {
    auto const block = thisBlock();
    own[block.rank()] = 1;
    channel.put(block, part, 0, part);
    if constexpr (!planted<F>) channel.signal(block);
    channel.wait(block);
    channel.flush(block);
  }
};

// The one thread that puts is not ordered after those that wrote.
template <Fault F>
struct MissingSync {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const& channel, std::uint32_t* own) const {
    auto const block = thisBlock();
    own[block.rank()] = 1;  // <- written late
    if constexpr (!planted<F>) block.sync();
    if (block.rank() == 0) {
      channel.putWithSignal(part, 0, part);
      channel.wait();
      channel.flush();
    }
  }
};

// Puts of one channel come in any order.
template <Fault F>
struct PutsOverlap {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const& channel, std::uint32_t*) const {
    if (thisBlock().rank() != 0) return;
    channel.put(part, 0, part / 2);
    channel.putWithSignal(planted<F> ? part : part + part / 2, part / 2, part / 2);
    channel.wait();
    channel.flush();
  }
};

// The peer's buffer is written again before the peer has read it.
template <Fault F>
struct NoAcknowledgement {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const& channel, std::uint32_t* own) const {
    auto const block = thisBlock();
    for (unsigned round = 0; round < 2; ++round) {
      channel.putWithSignal(block, part, 0, part);
      channel.wait(block);
      own[2 * words + block.rank()] = own[words + block.rank()];  // <- still reading
      channel.flush(block);
      if constexpr (!planted<F>) {
        channel.signal(block);
        channel.wait(block);
      }
    }
  }
};

}  // namespace

TEST_CASE("data of a port channel read before the wait") {
  checkPort<MissingWait>({FindingKind::race, {"read too early"}});
}

TEST_CASE("the source of a put written again without a flush") {
  checkPort<MissingFlush>({FindingKind::race, {"source reused"}, "a copy that a proxy"});
}

TEST_CASE("a put without a signal") { checkPort<MissingSignal>({FindingKind::deadLock, {}, "port channel"}); }

TEST_CASE("a put that is not ordered after the writes of other threads") {
  checkPort<MissingSync>({FindingKind::race, {"written late"}});
}

TEST_CASE("two puts to one place with nothing between") {
  checkPort<PutsOverlap>({FindingKind::race, {}, "a copy that a proxy"});
}

TEST_CASE("a buffer that is put to again before it was read") {
  checkPort<NoAcknowledgement>({FindingKind::race, {"still reading"}});
}

TEST_CASE("a dead-lock report names the proxies") {
  auto const result = exploreRanks({.ranks = 2},
                                   [](Rank& rank) {
                                     PortPair const pair(rank);
                                     launch(rank.stream, {.blocks = 1, .threads = 32}, MissingSignal<Fault::planted>{},
                                            pair.channel.deviceHandle(), pair.own.data());
                                     rank.synchronize();
                                   },
                                   {.schedules = 3, .shrink = false});
  auto const text = sim::toText(result);
  INFO(text);
  CHECK(text.find("proxy 0") != std::string::npos);
  CHECK(text.find("triggers for proxy 0") != std::string::npos);
}
