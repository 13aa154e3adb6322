// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What if a rank is late, its launch fails, or its wait is ended? Two ranks swap rows by packets, four times, and go on
// after an error: once as if nothing had been, once with everything made anew. The checker chooses faults, finds the
// row that the first program takes for another call's, and nothing in the second. Simulated machine only.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <vector>

#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_channel.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"
#include "mscclpp/sim/explore.hpp"

using namespace mscclpp;

namespace {

constexpr unsigned count = 16;
constexpr unsigned rowBytes = count * sizeof(float);
constexpr unsigned packetBytes = 2 * rowBytes;  // LL16: a flag beside each word
constexpr int calls = 4;

// The flag of a call is how many calls have ended on this rank. So a rank that gave one up waits for the same flag
// again, which the peer may send with the row of the call that was given up.
struct SwapRows {
  MSCCLPP_DEVICE void operator()(DeviceHandle<MemoryChannel> const& channel, std::uint32_t* ended) const {
    auto const block = thisBlock();
    auto const flag = *ended + 1;
    auto const room = flag % 2 * packetBytes;
    channel.putPackets<LL16>(block, room, 0, rowBytes, flag);
    channel.unpackPackets<LL16>(block, room, rowBytes, rowBytes, flag);
    syncWhole(block);
    if (block.rank() == 0) *ended = flag;
  }
};

// What the ranks have in common.
class Link {
 public:
  explicit Link(Communicator const& communicator)
      : rows_(communicator.device(), 2 * count),
        packets_(communicator.device(), 2 * packetBytes),
        ended_(communicator.device(), 1),
        channel_(connect(communicator)) {}

  void start(Stream const& stream, float value) const {
    copyToDevice(rows_, std::vector<float>(count, value));
    launch(stream, {.blocks = 1, .threads = 32}, SwapRows{}, channel_.deviceHandle(), ended_.data());
  }
  bool has(float value) const {
    auto const rows = copyToHost(rows_);
    return std::all_of(rows.begin() + count, rows.end(), [value](float x) { return x == value; });
  }

 private:
  MemoryChannel connect(Communicator const& communicator) const {
    int const peer = 1 - communicator.rank();
    auto const rows = communicator.registerMemory(rows_.data(), rows_.bytes());
    auto const all = communicator.exchangeMemory(communicator.registerMemory(packets_.data(), packets_.bytes()));
    return {communicator.buildSemaphore(peer), all[static_cast<std::size_t>(peer)], rows, packets_.data()};
  }

  GpuBuffer<float> rows_;
  GpuBuffer<std::byte> packets_;
  GpuBuffer<std::uint32_t> ended_;
  MemoryChannel channel_;
};

float valueOf(int rank, int call) { return static_cast<float>(10 * call + rank); }

void swapRows(sim::RankContext& rank, bool makesAnew) {
  Communicator const communicator(rank.bootstrap(), Device{DeviceKind::sim, rank.device()});
  Stream const stream(communicator.device());
  std::optional<Link> link;
  link.emplace(communicator);
  for (int call = 0; call < calls;) {
    try {
      for (; call < calls; ++call) {
        link->start(stream, valueOf(rank.rank(), call));
        communicator.synchronize(stream);  // throws what the kernel has reported
        // No error, so the result counts. This is no Error of the library, hence a finding.
        if (!link->has(valueOf(1 - rank.rank(), call))) throw std::runtime_error("another call's row");
      }
    } catch (Error const&) {
      stream.synchronize();
      ++call;  // without a result
    }
    if (!makesAnew) continue;
    // The ranks meet, also where one has seen no error, and go on with the first call that none has given up.
    for (auto const& progress : communicator.rejoin({static_cast<std::byte>(call)})) {
      call = std::max(call, static_cast<int>(progress[0]));
    }
    link.emplace(communicator);
  }
  communicator.bootstrap()->barrier();  // nobody's memory goes while a kernel of the peer may use it
}

}  // namespace

int main() {
  auto const explore = [](bool makesAnew) {
    return sim::explore({.ranks = 2}, [makesAnew](sim::RankContext& rank) { swapRows(rank, makesAnew); },
                        {.schedules = 200, .stopAtFirst = true, .faults = 1});
  };
  auto const careless = explore(false);
  auto const careful = explore(true);
  std::printf("goes on as if nothing had been: %s\n", sim::toText(careless).c_str());
  std::printf("makes everything anew: %s", sim::toText(careful).c_str());
  return !careless.ok() && careful.ok() ? 0 : 1;
}
