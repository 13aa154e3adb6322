// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Port channels between ranks: put, signal, wait, flush, by one thread and by groups; refusals; waits that nobody ends;
// proxies with handlers of one's own, and what becomes of errors.
#include "mscclpp/device/port_channel.hpp"

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

bool contains(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

// Two ranks, each with a buffer to put from and an inbox that the other puts to.
struct Pair {
  GpuBuffer<std::uint8_t> local;
  GpuBuffer<std::uint8_t> inbox;
  ProxyService service;
  PortChannel channel;  // memory 0 is the peer's inbox, memory 1 the own buffer

  Pair(Rank& rank, std::size_t bytes, std::size_t inboxBytes, ProxyService::Options const& options = {})
      : local(rank.device, bytes),
        inbox(rank.device, inboxBytes),
        service(rank.communicator, options),
        channel(connect(rank)) {}

 private:
  PortChannel connect(Rank& rank) {
    auto& communicator = rank.communicator;
    auto const peer = 1 - rank.rank;
    auto const all = communicator.exchangeMemory(communicator.registerMemory(inbox.data(), inbox.bytes()));
    auto const semaphore = service.buildAndAddSemaphore(communicator.connect(peer));
    auto const target = service.addMemory(all[static_cast<std::size_t>(peer)]);
    auto const source = service.addMemory(communicator.registerMemory(local.data(), local.bytes()));
    return service.portChannel(semaphore, target, source);
  }
};

// What `act` throws, in words; empty: nothing.
template <class Act>
std::string errorOf(Act&& act, ErrorCode code) {
  try {
    act();
  } catch (Error const& error) {
    CHECK_MESSAGE(error.code() == code, error.what());
    return error.what();
  }
  return {};
}

enum class Form { thread, group, separate };

struct PutKernel {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const& channel, int form, std::uint64_t dstOffset,
                                 std::uint64_t srcOffset, std::uint64_t bytes) const {
    auto const block = thisBlock();
    if (form == static_cast<int>(Form::group)) {
      channel.putWithSignal(block, dstOffset, srcOffset, bytes);
      channel.wait(block);
      channel.flush(block);
      return;
    }
    if (block.rank() == 0) {
      if (form == static_cast<int>(Form::thread)) {
        channel.putWithSignalAndFlush(dstOffset, srcOffset, bytes);
        channel.wait();
      } else {
        channel.put(dstOffset, srcOffset, bytes / 2);
        channel.put(dstOffset + bytes / 2, srcOffset + bytes / 2, bytes - bytes / 2);
        channel.signal();
        while (!channel.poll()) {
        }
        channel.flush();
      }
    }
    block.sync();
  }
};

}  // namespace

TEST_CASE("put, signal, wait: the data is there") {
  if (!canRun(2)) return;
  constexpr std::size_t bytes = 1000;
  for (auto const form : {Form::thread, Form::group, Form::separate}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      forEachRank(2,
                  [&](Rank& rank) {
                    Pair pair(rank, bytes, bytes, {.proxies = 1, .fifoSize = 2});
                    auto const mine = randomInput<std::uint8_t>(seed, rank.rank, bytes);
                    auto const theirs = randomInput<std::uint8_t>(seed, 1 - rank.rank, bytes);
                    copyToDevice(pair.local, std::span<std::uint8_t const>(mine));
                    pair.service.startProxy();
                    rank.meet();
                    launch(rank.stream, {.blocks = 1, .threads = 64}, PutKernel{}, pair.channel.deviceHandle(),
                           static_cast<int>(form), 13u, 5u, 900u);
                    rank.synchronize();
                    pair.service.stopProxy();
                    std::vector<std::uint8_t> expected(bytes, 0);
                    std::copy_n(theirs.begin() + 5, 900, expected.begin() + 13);
                    CHECK(copyToHost(pair.inbox) == expected);
                  },
                  {.seed = seed});
    }
  }
}

namespace {

// Rounds in which the source is written again after each flush, and the target read after each wait.
struct RoundsKernel {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const& channel, std::uint32_t* local,
                                 std::uint32_t const* inbox, unsigned rounds, unsigned* wrong) const {
    auto const block = thisBlock();
    auto const words = block.size();
    for (unsigned round = 1; round <= rounds; ++round) {
      local[block.rank()] = round * 1000 + block.rank();
      auto const half = round % 2 * words * sizeof(std::uint32_t);
      channel.putWithSignal(block, half, 0, words * sizeof(std::uint32_t));
      channel.wait(block);
      if (inbox[round % 2 * words + block.rank()] != round * 1000 + block.rank()) atomicAddOne(wrong);
      channel.flush(block);
    }
  }
  MSCCLPP_DEVICE static void atomicAddOne(unsigned* word) { fetchAdd<Order::relaxed, Scope::device>(word, 1u); }
};

}  // namespace

TEST_CASE("rounds, past the end of the FIFO, with one proxy and with two") {
  if (!canRun(2)) return;
  for (int proxies : {1, 2}) {
    forEachRank(2, [&](Rank& rank) {
      constexpr unsigned threads = 64;
      Pair pair(rank, threads * 4, threads * 8, {.proxies = proxies, .fifoSize = 4});
      GpuBuffer<unsigned> wrong(rank.device, 1);
      pair.service.startProxy();
      rank.meet();
      for (int launches = 0; launches < 2; ++launches) {
        launch(rank.stream, {.blocks = 1, .threads = threads}, RoundsKernel{}, pair.channel.deviceHandle(),
               reinterpret_cast<std::uint32_t*>(pair.local.data()), reinterpret_cast<std::uint32_t*>(pair.inbox.data()),
               11u, wrong.data());
        rank.pace();
      }
      rank.synchronize();
      CHECK(copyToHost(wrong) == std::vector<unsigned>{0});
    });
  }
}

namespace {

struct AllPeersKernel {  // block b serves the b-th channel
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const* channels, std::uint64_t bytes, int rank) const {
    auto const channel = channels[arch::blockIndex()];
    auto const block = thisBlock();
    channel.putWithSignal(block, static_cast<std::uint64_t>(rank) * bytes, 0, bytes);
    channel.wait(block);
    channel.flush(block);
  }
};

}  // namespace

TEST_CASE("an all-gather: a channel to each peer, all through one service") {
  constexpr int ranks = 4;
  constexpr std::size_t bytes = 257;
  if (!canRun(ranks)) return;
  forEachRank(ranks, [&](Rank& rank) {
    GpuBuffer<std::uint8_t> const input(rank.device, bytes), output(rank.device, bytes * ranks);
    auto const mine = randomInput<std::uint8_t>(3, rank.rank, bytes);
    copyToDevice(input, std::span<std::uint8_t const>(mine));
    copyToDevice(output, std::span<std::uint8_t const>(mine), bytes * static_cast<std::size_t>(rank.rank));
    auto& communicator = rank.communicator;
    auto const all = communicator.exchangeMemory(communicator.registerMemory(output.data(), output.bytes()));
    ProxyService service(communicator, {.proxies = 2});
    auto const source = service.addMemory(communicator.registerMemory(input.data(), input.bytes()));
    std::vector<PortChannelDeviceHandle> handles;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == rank.rank) continue;
      auto const semaphore = service.buildAndAddSemaphore(communicator.connect(peer));
      auto const target = service.addMemory(all[static_cast<std::size_t>(peer)]);
      handles.emplace_back(service.portChannel(semaphore, target, source).deviceHandle());
    }
    GpuBuffer<PortChannelDeviceHandle> const channels(rank.device, handles.size());
    copyToDevice(channels, std::span<PortChannelDeviceHandle const>(handles));
    service.startProxy();
    rank.meet();
    launch(rank.stream, {.blocks = ranks - 1, .threads = 32}, AllPeersKernel{}, channels.data(), bytes, rank.rank);
    rank.synchronize();
    std::vector<std::uint8_t> expected;
    for (int peer = 0; peer < ranks; ++peer) {
      auto const theirs = randomInput<std::uint8_t>(3, peer, bytes);
      expected.insert(expected.end(), theirs.begin(), theirs.end());
    }
    CHECK(copyToHost(output) == expected);
  });
}

// ---- what is refused
// ------------------------------------------------------------------------------------------------

TEST_CASE("a range outside the memories is refused, with numbers") {
  if (!canRun(2)) return;
  forEachRank(2, [&](Rank& rank) {
    Pair pair(rank, 1000, 500);
    pair.service.startProxy();
    // Nothing, at the very end, is no range outside.
    launch(rank.stream, {.blocks = 1, .threads = 1}, PutKernel{}, pair.channel.deviceHandle(),
           static_cast<int>(Form::thread), 500u, 1000u, 0u);
    rank.communicator.synchronize(rank.stream);
    auto const refused = [&](std::uint64_t dstOffset, std::uint64_t srcOffset, std::uint64_t bytes) {
      launch(rank.stream, {.blocks = 1, .threads = 1}, PutKernel{}, pair.channel.deviceHandle(),
             static_cast<int>(Form::thread), dstOffset, srcOffset, bytes);
      auto const text = errorOf([&] { rank.communicator.synchronize(rank.stream); }, ErrorCode::invalidUsage);
      INFO(text);
      CHECK(contains(text, "rank " + std::to_string(1 - rank.rank)));
      return text;
    };
    CHECK(contains(refused(100, 0, 401), "up to byte 501 of a buffer"));
    CHECK(contains(refused(0, 900, 101), "up to byte 1001 of this rank's buffer"));
    CHECK(contains(refused(~std::uint64_t{0} - 4, 0, 8), "a buffer of rank"));
    CHECK(contains(refused(0, ~std::uint64_t{0} - 4, 8), "this rank's buffer"));
    rank.communicator.bootstrap()->barrier();
  });
}

namespace {

struct BaseKernel {
  MSCCLPP_DEVICE void operator()(BasePortChannelDeviceHandle const& channel, std::uint32_t dst, std::uint32_t src,
                                 std::uint64_t offset, std::uint64_t bytes) const {
    channel.putWithSignalAndFlush(dst, offset, src, 0, bytes);
  }
};

}  // namespace

TEST_CASE("fields that a trigger cannot carry are refused by the kernel, ids that nobody gave out by the proxy") {
  if (!canRun(2)) return;
  forEachRank(2, [&](Rank& rank) {
    auto const refused = [&](std::uint32_t dst, std::uint32_t src, std::uint64_t offset, std::uint64_t bytes) {
      Pair pair(rank, 64, 64);
      pair.service.startProxy();
      launch(rank.stream, {.blocks = 1, .threads = 1}, BaseKernel{}, pair.service.basePortChannel(0).deviceHandle(),
             dst, src, offset, bytes);
      auto const text = errorOf([&] { rank.communicator.synchronize(rank.stream); }, ErrorCode::invalidUsage);
      rank.communicator.bootstrap()->barrier();
      return text;
    };
    CHECK(refused(0, 1, 0, 64).empty());
    CHECK(contains(refused(0, 1, 0, std::uint64_t{1} << 32), "4294967296 bytes for the port channel to rank"));
    CHECK(contains(refused(0, 1, std::uint64_t{1} << 40, 1), "a trigger carries at most 4294967295"));
    CHECK(contains(refused(512, 1, 0, 1), "memory id 512"));
    CHECK(contains(refused(512, 0, 0, 1), "511"));
    CHECK(contains(refused(0, 1000, 0, 1), "memory id 1000"));
  });
  // Each failure of a proxy is the end of its communicator's channels.
  auto const failure = [&](std::uint32_t dst, std::uint32_t src, std::uint64_t offset, std::uint64_t bytes) {
    std::string mine;
    forEachRank(2, [&](Rank& rank) {
      Pair pair(rank, 64, 64);
      pair.service.startProxy();
      if (rank.rank == 0) {
        launch(rank.stream, {.blocks = 1, .threads = 1}, BaseKernel{}, pair.service.basePortChannel(0).deviceHandle(),
               dst, src, offset, bytes);
        mine = errorOf([&] { rank.communicator.synchronize(rank.stream); }, ErrorCode::invalidUsage);
      }
      rank.communicator.bootstrap()->barrier();
    });
    INFO(mine);
    CHECK(contains(mine, "rank 0: proxy 0 has failed at trigger 0: putWithSignalAndFlush to rank 1 on channel 0"));
    return mine;
  };
  CHECK(contains(failure(7, 1, 0, 1), "memory 7 as its target, but there are 2"));
  CHECK(contains(failure(1, 1, 0, 1), "the target is memory of rank 0"));
  CHECK(contains(failure(0, 0, 0, 1), "the source is memory of rank 1"));
  CHECK(contains(failure(0, 1, 60, 5), "bytes 60 to 65 of target memory of rank 1, which has 64"));
  CHECK(contains(failure(0, 1, 0, 0xffffffffu), "bytes 0 to 4294967295 of target memory of rank 1, which has 64"));
}

TEST_CASE("host calls that cannot work say why") {
  if (!canRun(2)) return;
  forEachRank(2, [&](Rank& rank) {
    auto& communicator = rank.communicator;
    Pair pair(rank, 64, 64);
    auto const refused = [&](auto&& act) { return errorOf(act, ErrorCode::invalidUsage); };
    CHECK(contains(refused([&] { pair.service.portChannel(3, 0, 1); }), "no semaphore 3 in this service, which has 1"));
    CHECK(contains(refused([&] { pair.service.portChannel(0, 1, 0); }), "the target is memory of rank"));
    CHECK(contains(refused([&] { pair.service.portChannel(0, 5, 1); }), "memory 5 as its target"));
    CHECK(contains(refused([&] { pair.service.addMemory({}); }), "empty RegisteredMemory"));
    CHECK(contains(refused([&] { pair.service.nextMemoryId(511); }), "a trigger can name 512"));
    CHECK(contains(refused([&] { communicator.connect(rank.rank); }), "names this rank itself"));
    CHECK(contains(refused([&] { communicator.connect(2); }), "ranks are 0 to 1"));
    CHECK(contains(refused([&] { ProxyService(communicator, {.proxies = 0}); }), "at least 1"));
    CHECK(contains(refused([&] { Fifo(rank.device, 3); }), "a power of two"));
    CHECK(contains(refused([&] { Fifo(rank.device, 1u << 21); }), "1048576"));
    CHECK(contains(refused([&] { Proxy(communicator, {}); }), "needs a handler"));
    pair.service.startProxy();
    CHECK(contains(refused([&] { pair.service.startProxy(); }), "started already"));
    CHECK(contains(refused([&] { pair.service.progress(); }), "a thread of its own"));
    CHECK(contains(refused([&] { pair.service.progress(2); }), "progress of proxy 2"));
    pair.service.stopProxy();
    pair.service.stopProxy();
    pair.service.startProxy();
    communicator.bootstrap()->barrier();
  });
}

// ---- what goes wrong
// ------------------------------------------------------------------------------------------------

namespace {

struct FifoKernel {
  MSCCLPP_DEVICE void operator()(FifoDeviceHandle const& fifo, unsigned each) const {
    auto const thread = thisBlock().rank();
    std::uint64_t last = 0;
    for (unsigned i = 0; i < each; ++i) last = fifo.push({thread, i});
    fifo.sync(last);
  }
};

}  // namespace

TEST_CASE("triggers of one's own reach the handler, each thread's in order") {
  if (!canRun(1)) return;
  forEachRank(1, [&](Rank& rank) {
    constexpr unsigned threads = 96, each = 5;
    std::vector<unsigned> next(threads, 0);
    unsigned disorder = 0;
    Proxy proxy(rank.communicator,
                [&](layout::Trigger const& trigger, std::uint64_t) {
                  if (trigger.fst >= threads || trigger.snd != next[trigger.fst]++) ++disorder;
                  return ProxyAction::goOn;
                },
                {.fifoSize = 16});
    proxy.start();
    launch(rank.stream, {.blocks = 1, .threads = threads}, FifoKernel{}, proxy.fifo().deviceHandle(), each);
    rank.synchronize();
    proxy.stop();
    CHECK(disorder == 0);
    CHECK(next == std::vector<unsigned>(threads, each));
  });
}

TEST_CASE("what a handler throws ends the kernel's waits and is told with rank and trigger") {
  if (!canRun(1)) return;
  forEachRank(1, [&](Rank& rank) {
    Proxy proxy(rank.communicator,
                [](layout::Trigger const& trigger, std::uint64_t) -> ProxyAction {
                  if (trigger.snd == 2) throw std::runtime_error("no such thing");
                  return ProxyAction::goOn;
                },
                {.fifoSize = 4, .id = 5});
    proxy.start();
    launch(rank.stream, {.blocks = 1, .threads = 1}, FifoKernel{}, proxy.fifo().deviceHandle(), 20u);
    auto const text = errorOf([&] { rank.communicator.synchronize(rank.stream); }, ErrorCode::internalError);
    INFO(text);
    CHECK(contains(text, "rank 0: proxy 5 has failed at trigger 2: its handler threw: no such thing"));
    CHECK(contains(errorOf([&] { rank.communicator.checkReports(); }, ErrorCode::internalError), "proxy 5"));
    proxy.stop();
    CHECK(contains(errorOf([&] { proxy.start(); }, ErrorCode::invalidUsage), "make a new one"));
  });
}

TEST_CASE("a handler may end its proxy") {
  if (!canRun(1)) return;
  forEachRank(1, [&](Rank& rank) {
    unsigned taken = 0;
    Proxy proxy(rank.communicator, [&](layout::Trigger const&, std::uint64_t) {
      return ++taken == 3 ? ProxyAction::stop : ProxyAction::goOn;
    });
    proxy.start();
    launch(rank.stream, {.blocks = 1, .threads = 1}, FifoKernel{}, proxy.fifo().deviceHandle(), 3u);
    rank.synchronize();
    proxy.stop();
    CHECK(taken == 3);
  });
}

namespace {

struct WaitKernel {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const& channel) const { channel.wait(thisBlock()); }
};

}  // namespace

TEST_CASE("the kernels of a peer whose proxy fails leave their waits, and name it") {
  if (!canRun(2)) return;
  forEachRank(2, [&](Rank& rank) {
    Pair pair(rank, 64, 64);
    pair.service.startProxy();
    if (rank.rank == 0) {
      launch(rank.stream, {.blocks = 1, .threads = 1}, BaseKernel{}, pair.service.basePortChannel(0).deviceHandle(), 9u,
             1u, 0u, 1u);
      auto const text = errorOf([&] { rank.communicator.synchronize(rank.stream); }, ErrorCode::invalidUsage);
      CHECK(contains(text, "memory 9"));
    } else {
      launch(rank.stream, {.blocks = 1, .threads = 32}, WaitKernel{}, pair.channel.deviceHandle());
      auto const text = errorOf([&] { rank.communicator.synchronize(rank.stream); }, ErrorCode::remoteError);
      INFO(text);
      CHECK(contains(text, "waited on port channel 0 for signal 1 of rank 0, whose proxy or connection"));
    }
    rank.communicator.bootstrap()->barrier();
  });
}
