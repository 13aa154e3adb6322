// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "doctor/links.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_channel.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"

namespace mscclpp::doctor {
namespace {

constexpr unsigned warm = 16;  // rounds ahead of the measured ones

struct PingPong {
  MSCCLPP_DEVICE void operator()(BaseMemoryChannelDeviceHandle const& channel, bool first, unsigned rounds,
                                 std::uint64_t* ns) const {
    std::uint64_t begin = 0;
    for (unsigned round = 0; round < rounds + warm; ++round) {
      if (round == warm) begin = arch::nanoseconds();
      if (first) channel.signal();
      channel.wait();
      if (!first) channel.signal();
    }
    *ns = arch::nanoseconds() - begin;
  }
};

}  // namespace

template <DeviceKind machine>
void probeLinks(Communicator const& communicator, std::function<double()> const& nanoseconds, Reaches const& reaches,
                Links& links) {
  constexpr bool simulated = machine == DeviceKind::sim;
  constexpr std::size_t much = std::size_t{simulated ? 2 : 64} << 20, little = much / 8;
  constexpr unsigned rounds = simulated ? 10 : 1000;
  constexpr int copies = simulated ? 1 : 8, repeats = simulated ? 1 : 5;
  int const self = communicator.rank();
  auto const index = static_cast<std::size_t>(self);
  auto const device = communicator.device();
  GpuBuffer<std::byte> const buffer(device, much);
  GpuBuffer<std::uint64_t> const ns(device, 1);
  Stream const stream(device);
  auto const own = communicator.registerMemory(buffer.data(), buffer.bytes());

  auto const timeOf = [&](std::byte* to, std::size_t bytes) {
    double least = 0;
    for (int repeat = 0; repeat <= repeats; ++repeat) {  // the first does not count
      auto const begin = nanoseconds();
      for (int copy = 0; copy < copies; ++copy) stream.copy(to, buffer.data(), bytes);
      communicator.synchronize(stream);
      auto const time = nanoseconds() - begin;
      if (repeat > 0) least = repeat == 1 ? time : std::min(least, time);
    }
    return least;
  };
  // What more bytes take longer, so that what every copy takes is left out.
  auto const rateTo = [&](std::byte* to, std::size_t most) {
    auto const longer = timeOf(to, most) - timeOf(to, little);
    return longer <= 0 ? 0 : copies * static_cast<double>(most - little) / longer;
  };
  auto const roundTrip = [&](int peer) {
    BaseMemoryChannel const channel(communicator.buildSemaphore(peer));
    launch(stream, {.blocks = 1, .threads = 1}, PingPong{}, channel.deviceHandle(), self < peer, rounds, ns.data());
    communicator.synchronize(stream);
    return static_cast<double>(copyToHost(ns)[0]) / rounds / 1000;
  };

  links.copies[index][index] = rateTo(buffer.data() + much / 2, much / 2);
  // A pair at a time, so that nobody shares a link.
  for (int low = 0; low < communicator.size(); ++low) {
    for (int high = low + 1; high < communicator.size(); ++high) {
      communicator.bootstrap()->barrier();
      int const peer = self == low ? high : low;
      if ((self != low && self != high) || !communicator.reaches(peer) || !reaches(low, high)) continue;
      auto const there = static_cast<std::size_t>(peer);
      communicator.sendMemory(own, peer);
      auto const other = communicator.recvMemory(peer);
      for (int turn : {low, high}) {
        if (turn == self) links.copies[index][there] = rateTo(other.data(), much);
        communicator.bootstrap()->groupBarrier({low, high});
      }
      links.roundTrips[index][there] = roundTrip(peer);
    }
  }
  communicator.bootstrap()->barrier();
}

template void probeLinks<kernelDevice>(Communicator const&, std::function<double()> const&, Reaches const&, Links&);

}  // namespace mscclpp::doctor
