// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs that use what the library ships as it is meant to be used, as host code of one rank. The checker must say
// nothing about them, and their results must be right. They differ with `variant`: shapes, counts, alignment.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "mscclpp/algorithms/catalogue.hpp"
#include "mscclpp/algorithms/collective/allreduce.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/host/memory_channel.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

namespace check_test {

using namespace mscclpp;
using mscclpp_test::countDifferent;
using mscclpp_test::randomInput;
using mscclpp_test::Rank;
using mscclpp_test::reduceInRankOrder;

// ---- all-reduce -----------------------------------------------------------------------------------------------------

struct Call {
  std::size_t count;
  std::size_t offset;  // elements by which input and output are off from their allocation
  bool inPlace;
  unsigned blocks;
};

struct CallSequence {
  std::vector<Call> calls;
  unsigned threads;
  bool overlap;
  std::uint64_t regionBytes;  // of the workspace, per block
};

// Ragged counts and offsets, in place or not, grids that differ, launches that overlap; a small workspace, so that some
// take several rounds.
inline CallSequence callSequence(std::uint64_t variant, unsigned threads = 0) {
  std::mt19937_64 engine(variant * 7919 + 13);
  auto const below = [&](unsigned limit) { return static_cast<unsigned>(engine() % limit); };
  CallSequence sequence{{}, threads != 0 ? threads : below(3) == 0 ? 48 : 32, below(2) == 0, 4096};
  std::size_t const counts[] = {1, 7, 30, 61, 120, 0, 333};
  for (unsigned call = 0; call < 3; ++call) {
    sequence.calls.push_back({counts[below(7)] + below(3), below(3) == 0 ? 1u : 0u, below(3) == 0, 1 + below(2)});
  }
  return sequence;
}

// All calls are launched before any is awaited.
template <class Collective, class T>
void allReduceCalls(Rank& rank, CallSequence const& sequence) {
  auto need = Collective::requirement(static_cast<std::uint32_t>(rank.size), 2, sequence.threads);
  for (auto* bytes : {&need.packetBytes, &need.lineBytes, &need.stageBytes}) {
    if (*bytes != 0) *bytes = sequence.regionBytes * static_cast<std::uint64_t>(rank.size) / 2;
  }
  Team const team(rank.communicator, need);
  struct Buffers {
    GpuBuffer<T> in, out;
  };
  std::vector<Buffers> buffers;
  for (auto const& call : sequence.calls) {
    auto const total = call.count + call.offset + 1;
    buffers.push_back({GpuBuffer<T>(rank.device, total), GpuBuffer<T>(rank.device, total)});
    copyToDevice(buffers.back().in, std::span<T const>(randomInput<T>(buffers.size(), rank.rank, call.count)),
                 call.offset);
  }
  for (std::size_t i = 0; i < sequence.calls.size(); ++i) {
    auto const& call = sequence.calls[i];
    auto* const in = buffers[i].in.data() + call.offset;
    auto* const out = call.inPlace ? in : buffers[i].out.data() + call.offset;
    launch(rank.stream, {.blocks = call.blocks, .threads = sequence.threads, .overlapPrevious = sequence.overlap},
           AllReduceKernel<Collective, T>{}, in, out, call.count, team.deviceHandle());
  }
  rank.synchronize();
  for (std::size_t i = 0; i < sequence.calls.size(); ++i) {
    auto const& call = sequence.calls[i];
    std::vector<std::vector<T>> inputs;
    for (int r = 0; r < rank.size; ++r) inputs.push_back(randomInput<T>(i + 1, r, call.count));
    std::vector<T> result(call.count);
    copyToHost(std::span<T>(result), call.inPlace ? buffers[i].in : buffers[i].out, call.offset);
    std::vector<T> expected;
    for (auto const total : reduceInRankOrder<DefaultAccumulator<T>, Sum>(inputs)) {
      expected.push_back(convertNumber<T>(total));
    }
    REQUIRE(countDifferent(result, expected) == 0);
  }
}

// Different collectives and barriers in one kernel.
struct ChainKernel {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, std::size_t count, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    AllReduce<OneShot, PacketTransport<LL16>, Sum>{team}(grid, View{in, count}, View{out, count});
    AllReduce<TwoShot, PacketTransport<LL128>, Max>{team}(grid, View{in, count}, View{out + count, count});
    teamBarrier(team, grid);
    AllReduce<TwoShot, MemoryTransport<2>, Min>{team}(grid, View{in, count}, View{out + 2 * count, count});
    AllReduce<OneShot, PacketTransport<LL8>, Avg>{team}(grid, View{in, count}, View{out + 3 * count, count});
    gridBarrier(team, grid);
    // Behind the barrier each thread may read what others of the grid have written.
    if (grid.rank() < count) out[4 * count + grid.rank()] = out[count - 1 - grid.rank()];
  }
};

inline void chain(Rank& rank, std::uint64_t variant) {
  constexpr unsigned blocks = 2;
  constexpr unsigned threads = 32;
  std::size_t const count = 64 - variant % 5;
  Team const team(rank.communicator, {.blocks = blocks, .packetBytes = 4096, .lineBytes = 8192, .stageBytes = 4096});
  GpuBuffer<float> const in(rank.device, count);
  GpuBuffer<float> const out(rank.device, 4 * count + blocks * threads);
  std::vector<std::vector<float>> inputs;
  for (int r = 0; r < rank.size; ++r) inputs.push_back(randomInput<float>(variant, r, count));
  copyToDevice(in, std::span<float const>(inputs[static_cast<std::size_t>(rank.rank)]));
  for (int call = 0; call < 2; ++call) {
    launch(rank.stream, {.blocks = blocks, .threads = threads}, ChainKernel{}, in.data(), out.data(), count,
           team.deviceHandle());
  }
  rank.synchronize();
  std::vector<float> expected = reduceInRankOrder<float, Sum>(inputs);
  std::vector<float> const mirrored(expected.rbegin(), expected.rend());
  for (auto const& part : {reduceInRankOrder<float, Max>(inputs), reduceInRankOrder<float, Min>(inputs),
                           reduceInRankOrder<float, Avg>(inputs), mirrored}) {
    expected.insert(expected.end(), part.begin(), part.end());
  }
  std::vector<float> result(expected.size());
  copyToHost(std::span<float>(result), out);
  REQUIRE(countDifferent(result, expected) == 0);
}

// ---- barriers -------------------------------------------------------------------------------------------------------

// Every rank writes a word of every peer's between team barriers, round after round, for the group that `blocks` is.
struct TeamBarrierKernel {
  MSCCLPP_DEVICE void operator()(std::uint32_t* const* words, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    for (std::uint32_t round = 1; round <= 3; ++round) {
      for (int r = 0; r < team.size; ++r) {
        words[r][static_cast<unsigned>(team.rank) * grid.size() + grid.rank()] = round;
      }
      teamBarrier(team, grid);
      auto const mirrored = grid.blockRank() * grid.block().size() + grid.block().size() - 1 - grid.block().rank();
      for (int r = 0; r < team.size; ++r) {
        if (words[team.rank][static_cast<unsigned>(r) * grid.size() + mirrored] != round) arch::trap("a stale word");
      }
      teamBarrier(team, grid);
    }
  }
};

// On the whole team, then at once on two that overlap.
inline void teamBarriers(Rank& rank) {
  constexpr unsigned blocks = 2;
  constexpr unsigned threads = 32;
  auto const words = static_cast<std::size_t>(rank.size) * blocks * threads;
  std::vector<int> all, odd, low;
  for (int r = 0; r < rank.size; ++r) {
    all.push_back(r);
    if (r % 2 == 1) odd.push_back(r);
    if (r < 2) low.push_back(r);
  }
  std::vector<Team> teams;
  std::vector<GpuBuffer<std::uint32_t>> memory;
  std::vector<GpuBuffer<std::uint32_t*>> tables;
  std::vector<std::vector<RegisteredMemory>> mapped;
  for (auto const& members : {all, odd, low}) {
    memory.emplace_back(rank.device, words);
    auto const& own = memory.back();
    mapped.push_back(rank.communicator.exchangeMemory(rank.communicator.registerMemory(own.data(), own.bytes())));
    if (std::find(members.begin(), members.end(), rank.rank) == members.end()) continue;
    teams.emplace_back(rank.communicator, layout::WorkspaceRequirement{.blocks = blocks}, members);
    std::vector<std::uint32_t*> table;
    for (int member : members) {
      table.push_back(reinterpret_cast<std::uint32_t*>(mapped.back()[static_cast<std::size_t>(member)].data()));
    }
    tables.emplace_back(rank.device, table.size());
    copyToDevice(tables.back(), std::span<std::uint32_t* const>(table));
  }
  for (std::size_t i = 0; i < teams.size(); ++i) {
    launch(rank.stream, {.blocks = blocks, .threads = threads}, TeamBarrierKernel{}, tables[i].data(),
           teams[i].deviceHandle());
  }
  rank.synchronize();
}

struct GridBarrierKernel {
  MSCCLPP_DEVICE void operator()(std::uint32_t* words, DeviceTeam const& team) const {
    auto const grid = thisGrid();
    for (std::uint32_t round = 1; round <= 3; ++round) {
      words[grid.rank()] = round;
      gridBarrier(team, grid);
      if (words[grid.size() - 1 - grid.rank()] != round) arch::trap("a stale word");
      gridBarrier(team, grid);
    }
  }
};

inline void gridBarriers(Rank& rank) {
  Team const team(rank.communicator, {.blocks = 3});
  GpuBuffer<std::uint32_t> const words(rank.device, 3 * 48);
  for (unsigned blocks : {3u, 1u, 2u}) {
    launch(rank.stream, {.blocks = blocks, .threads = 48}, GridBarrierKernel{}, words.data(), team.deviceHandle());
  }
  rank.synchronize();
}

// ---- channels -------------------------------------------------------------------------------------------------------

// Both ranks put to each other, check what has come, get the other's source, and check that.
struct ChannelKernel {
  std::uint64_t bytes;
  std::uint64_t skew;

  MSCCLPP_DEVICE static std::byte message(unsigned round, int sender, std::uint64_t i) {
    return static_cast<std::byte>(17 * round + 5 * static_cast<unsigned>(sender) + i);
  }

  template <class G>
  MSCCLPP_DEVICE void exchange(G const& group, DeviceHandle<MemoryChannel> const& channel, int rank,
                               unsigned round) const {
    auto const expect = [&](std::uint64_t at) {
      for (auto i = group.rank(); i < bytes; i += group.size()) {
        if (channel.src[at + i] != message(round, 1 - rank, i)) arch::trap("wrong data");
      }
    };
    auto const meet = [&] {
      group.sync();
      if (group.rank() == 0) {
        channel.signal();
        channel.wait();
      }
      group.sync();
    };
    for (auto i = group.rank(); i < bytes; i += group.size()) channel.src[skew + i] = message(round, rank, i);
    group.sync();
    channel.put(group, 512 + skew, skew, bytes);
    meet();
    expect(512 + skew);
    channel.get(group, skew, 256, bytes);
    group.sync();
    expect(256);
    meet();  // what the peer gets is not written again before it is done
  }

  MSCCLPP_DEVICE void operator()(DeviceHandle<MemoryChannel> const& channel, int rank) const {
    auto const thread = thisBlock().rank();
    exchange(thisBlock(), channel, rank, 1);
    if (thread < 32) exchange(thisWarp(), channel, rank, 2);
    thisBlock().sync();
    if (thread >= 32) exchange(warpsOfBlock(1, 1, 3), channel, rank, 3);
    thisBlock().sync();
    if (thread == 40) exchange(thisThread(), channel, rank, 4);
  }
};

template <class P>
struct PacketKernel {
  std::uint64_t bytes;
  std::uint64_t skew;

  MSCCLPP_DEVICE void operator()(DeviceHandle<MemoryChannel> const& channel, int rank) const {
    auto const block = thisBlock();
    auto* const source = channel.src + 4096;
    auto* const target = channel.src + 4608;
    for (std::uint32_t round = 1; round <= 4; ++round) {
      for (auto i = block.rank(); i < bytes; i += block.size()) {
        source[skew + i] = ChannelKernel::message(round, rank, i);
      }
      block.sync();
      std::uint64_t const half = round % 2 * 2048;
      channel.template putPackets<P>(block, half, 4096 + skew, bytes, round);
      channel.template unpackPackets<P>(block, half, 4608 + skew, bytes, round);
      block.sync();
      for (auto i = block.rank(); i < bytes; i += block.size()) {
        if (target[skew + i] != ChannelKernel::message(round, 1 - rank, i)) arch::trap("wrong data");
      }
      block.sync();
    }
  }
};

template <class Kernel>
void overChannel(Rank& rank, std::uint64_t variant) {
  GpuBuffer<std::byte> const own(rank.device, 8192);
  auto const mine = rank.communicator.registerMemory(own.data(), own.bytes());
  auto const all = rank.communicator.exchangeMemory(mine);
  int const peer = 1 - rank.rank;
  MemoryChannel const channel(rank.communicator.buildSemaphore(peer), all[static_cast<std::size_t>(peer)], mine,
                              own.data());
  std::uint64_t const sizes[] = {1, 8, 61, 120, 129, 200};
  Kernel const kernel{sizes[variant % 6], variant % 7};
  for (int call = 0; call < 2; ++call) {
    launch(rank.stream, {.blocks = 1, .threads = 64}, kernel, channel.deviceHandle(), rank.rank);
  }
  rank.synchronize();
}

// Signals alone, between all pairs: each counts its own.
struct SignalKernel {
  MSCCLPP_DEVICE void operator()(DeviceHandle<BaseMemoryChannel> const* channels, unsigned peers) const {
    auto const me = thisBlock().rank();
    if (me >= peers) return;
    auto const channel = channels[me];
    for (int round = 0; round < 3; ++round) {
      channel.signal();
      channel.wait();
      channel.relaxedSignal();
      channel.relaxedWait();
    }
    channel.signal();
    poll(channel.watch, {layout::WaitKind::semaphore, channel.peer, channel.id, 0},
         [&](std::uint64_t&) { return channel.poll(); });
  }
};

inline void signals(Rank& rank) {
  std::vector<BaseMemoryChannel> channels;
  std::vector<DeviceHandle<BaseMemoryChannel>> handles;
  for (int peer = 0; peer < rank.size; ++peer) {
    if (peer == rank.rank) continue;
    channels.emplace_back(rank.communicator.buildSemaphore(peer));
    handles.emplace_back(channels.back().deviceHandle());
  }
  GpuBuffer<DeviceHandle<BaseMemoryChannel>> const table(rank.device, handles.size());
  copyToDevice(table, std::span<DeviceHandle<BaseMemoryChannel> const>(handles));
  launch(rank.stream, {.blocks = 1, .threads = 32}, SignalKernel{}, table.data(),
         static_cast<unsigned>(handles.size()));
  rank.synchronize();
}

}  // namespace check_test
