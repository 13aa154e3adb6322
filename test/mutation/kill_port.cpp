// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The queue to a proxy, and every operation of a port channel.
#include <vector>

#include "explored.hpp"
#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/host/port_channel.hpp"

using namespace mscclpp_test;

namespace {

constexpr unsigned threads = 32;
constexpr std::uint64_t bytes = threads * sizeof(std::uint32_t);

// Each thread pushes its numbers in order, and leaves what belongs to them in memory.
struct PushKernel {
  MSCCLPP_DEVICE void operator()(FifoDeviceHandle const& fifo, unsigned each, std::uint32_t* beside,
                                 unsigned* wrong) const {
    auto const thread = thisGrid().rank();
    for (unsigned i = 0; i < each; ++i) {
      beside[thread * each + i] = static_cast<std::uint32_t>(thread) + i;
      auto const position = fifo.push({thread, i});
      if (i + 2 < each) continue;
      fifo.sync(position);
      // Nobody else pushes behind a thread that is alone.
      auto const behind = position + (thisGrid().size() == 1 ? 1 : 100);
      if (!fifo.poll(position) || fifo.poll(behind)) fetchAdd<Order::relaxed, Scope::device>(wrong, 1u);
    }
  }
};

void pushAll(Rank& rank, std::uint32_t size, unsigned producers, unsigned each, unsigned blocks = 1) {
  GpuBuffer<std::uint32_t> const beside(rank.device, producers * each);
  GpuBuffer<unsigned> const wrong(rank.device, 1);
  std::vector<unsigned> next(producers, 0);
  unsigned taken = 0, bad = 0;
  Proxy proxy(rank.communicator,
              [&](layout::Trigger const& trigger, std::uint64_t position) {
                if (position != taken++ || trigger.fst >= producers || trigger.snd != next[trigger.fst]++) {
                  ++bad;
                } else if (beside.data()[trigger.fst * each + trigger.snd] != trigger.fst + trigger.snd) {
                  ++bad;
                }
                return ProxyAction::goOn;
              },
              {.fifoSize = size});
  proxy.start();
  launch(rank.stream, {.blocks = blocks, .threads = producers / blocks}, PushKernel{}, proxy.fifo().deviceHandle(),
         each, beside.data(), wrong.data());
  rank.synchronize();
  proxy.stop();
  CHECK(bad == 0);
  CHECK(taken == producers * each);
  CHECK(copyToHost(wrong)[0] == 0);
}

// Rounds in which each operation is used once, by one thread and by the block. What a flush has covered is overwritten.
struct RoundsKernel {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const& channel, std::uint32_t* own, unsigned rounds,
                                 unsigned* wrong) const {
    auto const block = thisBlock();
    auto const me = block.rank();
    for (unsigned round = 1; round <= rounds; ++round) {
      own[me] = round * 100 + me;
      switch (round % 6) {
        case 0:
          channel.put(block, bytes, 0, bytes);
          channel.signal(block);
          channel.wait(block);
          break;
        case 1:
          channel.putWithSignal(block, bytes, 0, bytes);
          channel.flush(block);
          own[me] = 0;
          channel.wait(block);
          break;
        case 2:
          channel.putWithSignalAndFlush(block, bytes, 0, bytes);
          own[me] = 0;
          channel.wait(block);
          break;
        case 3:
          // Each thread's own put; the block's flush covers them all.
          channel.put(bytes + me * sizeof *own, me * sizeof *own, sizeof *own);
          channel.flush(block);
          own[me] = 0;
          channel.signal(block);
          channel.wait(block);
          break;
        case 4:
          // One flush directly behind another; and the puts of the block are one.
          own[2 * threads + me] = own[me];
          if (channel.base.peer == 1) own[4 * threads + me] = round;
          channel.put(block, bytes, 0, bytes);
          if (me == 0) {
            if (channel.base.peer == 1) channel.put(4 * bytes, bytes);
            channel.signal();
            channel.putWithSignalAndFlush(3 * bytes, 2 * bytes, bytes / 2);
            channel.putWithSignalAndFlush(7 * bytes / 2, 5 * bytes / 2, bytes / 2);
            own[3 * threads - 1] = 0;
            channel.wait();
            channel.wait();
          }
          channel.wait(block);
          break;
        default:
          block.sync();
          if (me == 0) {
            channel.put(bytes, 0, bytes);
            channel.signal();
            channel.flush();
            poll(channel.base.fifo.watch, {layout::WaitKind::portSignal, 1, 0, 0},
                 [&](std::uint64_t&) { return channel.poll(); });
          }
          block.sync();
      }
      bool same = own[threads + me] == round * 100 + me;
      if (round % 6 == 4) same &= own[3 * threads + me] == round * 100 + me && own[4 * threads + me] == round;
      if (!same) fetchAdd<Order::relaxed, Scope::device>(wrong, 1u);
      channel.signal(block);
      channel.wait(block);
    }
    if (me == 0 && channel.poll()) ++*wrong;
  }
};

}  // namespace

TEST_CASE("every interleaving of a small queue") {
  struct Size {
    std::uint32_t slots;
    unsigned producers;
    unsigned each;
  };
  for (auto const& size : {Size{1, 2, 1}, Size{2, 1, 3}}) {
    auto const result = check_test::exploreRanks(
        {.ranks = 1}, [&](Rank& rank) { pushAll(rank, size.slots, size.producers, size.each); },
        {.strategy = sim::Strategy::exhaustive, .schedules = 20000, .stopAtFirst = true, .shrink = false});
    CHECK_MESSAGE(result.ok(), sim::toText(result));
  }
}

TEST_CASE("a queue of many threads") {
  everySchedule(1, [](Rank& rank) { pushAll(rank, 4, 8, 3, 2); });
}

TEST_CASE("rounds of a port channel") {
  everySchedule(2, [](Rank& rank) {
    GpuBuffer<std::uint32_t> const own(rank.device, 5 * threads);
    GpuBuffer<unsigned> const wrong(rank.device, 1);
    auto const mine = rank.communicator.registerMemory(own.data(), own.bytes());
    auto const all = rank.communicator.exchangeMemory(mine);
    int const peer = 1 - rank.rank;
    ProxyService service(rank.communicator, {.proxies = 1, .fifoSize = 2});
    auto const semaphore = service.buildAndAddSemaphore(rank.communicator.connect(peer));
    auto const target = service.addMemory(all[static_cast<std::size_t>(peer)]);
    auto const channel = service.portChannel(semaphore, target, service.addMemory(mine));
    service.startProxy();
    launch(rank.stream, {.blocks = 1, .threads = threads}, RoundsKernel{}, channel.deviceHandle(), own.data(), 6u,
           wrong.data());
    rank.synchronize();
    CHECK(copyToHost(wrong)[0] == 0);
  });
}
