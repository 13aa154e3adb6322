// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives that the copy engines carry out, `copy_engine`: the host puts copies to the peers into the stream,
// between kernels in which the ranks meet. The links are used best, and few or no multiprocessors are busy; for
// messages of a hundred MiB and more.
//
// Copies go to one peer after the other, all ranks at the same distance: side by side they were slower (H200). What
// stays on the device goes on in a second stream meanwhile. What is reduced comes in chunks through the stage, which
// has room for three: one is reduced, one has come or is on its way, and the next may be started without a gap, while
// the ranks meet in the second stream.
#pragma once

#include <algorithm>
#include <string>

#include "collectives/kernels/copy_chunks.hpp"
#include "collectives/kernels/device/add_kernels.hpp"
#include "mscclpp/device/barrier.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

// ---- what is only moved
// --------------------------------------------------------------------------------------------------------------

struct MeetKernel {
  MSCCLPP_DEVICE void operator()(DeviceTeam const& team) const { teamBarrier(team, thisGrid()); }
};

inline void meet(KernelCall const& call, Stream const& stream) {
  launch(stream, {.blocks = 1, .threads = 32}, MeetKernel{}, DeviceTeam(call.team));
}

inline int peerAt(KernelCall const& call, int distance) { return (call.team.rank + distance) % call.team.size; }

// The output as `rank` has it, `bytes` from its begin.
inline std::byte* outputOf(KernelCall const& call, int rank, std::size_t bytes) {
  auto const& window = *call.outWindow;
  auto const offset = static_cast<std::byte*>(call.out) - window.bases[window.rank];
  return window.bases[rank] + offset + bytes;
}

// partFor(rank): what goes there, `call.count` bytes; it comes to lie `at` bytes into the output.
template <class PartFor>
void copyParts(KernelCall const& call, std::size_t at, PartFor&& partFor) {
  auto const& side = call.sideStreams[0];
  side.runAfter(call.stream);
  if (auto* const to = outputOf(call, call.team.rank, at); to != partFor(call.team.rank)) {
    side.copy(to, partFor(call.team.rank), call.count);
  }
  for (int distance = 1; distance < call.team.size; ++distance) {
    int const peer = peerAt(call, distance);
    call.stream.copy(outputOf(call, peer, at), partFor(peer), call.count);
  }
  call.stream.runAfter(side);
}

// `count` bytes for each rank, one behind the other.
inline auto dealtOut(KernelCall const& call) {
  return [&call](int rank) {
    return static_cast<std::byte const*>(call.in) + call.count * static_cast<std::size_t>(rank);
  };
}

inline std::size_t ownPart(KernelCall const& call) { return call.count * static_cast<std::size_t>(call.team.rank); }

inline void startAllGatherCopies(KernelCall const& call) {
  meet(call, call.stream);
  copyParts(call, ownPart(call), [&](int) { return static_cast<std::byte const*>(call.in); });
  meet(call, call.stream);
}

inline void startAllToAllCopies(KernelCall const& call) {
  meet(call, call.stream);
  copyParts(call, ownPart(call), dealtOut(call));
  meet(call, call.stream);
}

inline void startScatterCopies(KernelCall const& call) {
  meet(call, call.stream);
  if (call.team.rank == call.root) copyParts(call, 0, dealtOut(call));
  meet(call, call.stream);
}

// All copies end at the root, so there is nothing to order them by.
inline void startGatherCopies(KernelCall const& call) {
  auto* const to = outputOf(call, call.root, ownPart(call));
  meet(call, call.stream);
  if (to != call.in) call.stream.copy(to, call.in, call.count);
  meet(call, call.stream);
}

// From rank to rank, as ChainSchedule does, `chunk` bytes at a time. In each step all ranks copy at once, each what
// came to it in the step before the last, so that they meet during a copy and not between two.
inline void broadcastChunks(KernelCall const& call, std::size_t chunk) {
  auto const& side = call.sideStreams[0];
  int const place = (call.team.rank - call.root + call.team.size) % call.team.size;
  bool const sends = place < call.team.size - 1;
  auto const chunks = (call.count + chunk - 1) / chunk;
  auto const behind = 2 * static_cast<std::size_t>(place);
  auto const steps = chunks + 2 * static_cast<std::size_t>(std::max(call.team.size - 2, 0));
  auto* const own = outputOf(call, call.team.rank, 0);
  auto const* const from = place == 0 ? static_cast<std::byte const*>(call.in) : own;

  meet(call, call.stream);
  side.runAfter(call.stream);
  for (std::size_t step = 0; step < steps; ++step) {
    if (step > 0) {
      call.stream.runAfter(side);  // behind the meeting at the step before the last
      side.runAfter(call.stream);
      meet(call, side);
    }
    if (step < behind || step - behind >= chunks) continue;
    auto const at = (step - behind) * chunk;
    auto const bytes = std::min(chunk, call.count - at);
    if (sends) call.stream.copy(outputOf(call, peerAt(call, 1), at), from + at, bytes);
    if (place == 0 && own != from) side.copy(own + at, from + at, bytes);
  }
  call.stream.runAfter(side);
  meet(call, call.stream);
}

inline void startBroadcastCopies(KernelCall const& call) {
  broadcastChunks(call, relayedChunk(call.count, static_cast<std::size_t>(call.team.size)));
}

// ---- what is reduced
// -----------------------------------------------------------------------------------

// A rank's chunk lies in one row of the stage of whoever reduces it.
constexpr std::size_t slots = 3;  // of one row per rank

// Reduces `count` elements: this rank's at `own`, the others' in the rows of a slot of the stage.
template <class T, class Op, int Ranks>
struct ReduceRowsKernel {
  static constexpr unsigned maxThreads = 512;

  struct Plan {
    using Element = T;
    T const* own;
    std::byte const* rows;
    T* out;
    std::size_t count;
    std::size_t rowBytes;
    int rank;

    MSCCLPP_DEVICE View<T const> source(int ofRank) const {
      if (ofRank == rank) return {own, count};
      return {reinterpret_cast<T const*>(rows + static_cast<std::size_t>(ofRank) * rowBytes), count};
    }
    MSCCLPP_DEVICE T* target(int ofRank) const { return ofRank == rank ? out : nullptr; }
    MSCCLPP_DEVICE std::uint64_t firstElement() const { return 0; }
  };

  MSCCLPP_DEVICE void operator()(T const* own, std::byte const* rows, T* out, std::size_t count, std::size_t rowBytes,
                                 DeviceTeam const& team) const {
    using R = Reduction<T, DefaultAccumulator<T>, Op, Ranks>;
    requireTeamSize(team, Ranks);
    requireAligned<T>(team, own, out);
    PullSchedule::reduce<2, R, Ranks>(team, thisGrid(), Plan{own, rows, out, count, rowBytes, team.rank}, Identity{});
  }
};

// shareOf(rank): the elements of `in` that the rank reduces. The results of this rank's go to `results`; where
// `distribute`, on to everybody's output, at the same place as in the input.
template <class T, class Op, int Ranks, class ShareOf>
void reduceChunks(KernelCall const& call, ShareOf&& shareOf, T* results, bool distribute) {
  auto const& team = call.team;
  auto const& layout = team.layout;
  auto const& side = call.sideStreams[0];
  auto const* const in = static_cast<T const*>(call.in);
  auto const ranks = static_cast<std::size_t>(team.size);
  std::size_t longest = 0;
  for (int rank = 0; rank < team.size; ++rank) longest = std::max<std::size_t>(longest, shareOf(rank).count);

  std::size_t const stageBytes = std::size_t{2} * layout.stageSlice * layout.blocks;
  auto const slotBytes = stageBytes / slots / 128 * 128;
  auto const room = slotBytes / ranks / 128 * 128;
  auto const rowBytes = std::min(room, reducedChunk(longest * sizeof(T)));
  if (rowBytes < 128) {
    throw Error(ErrorCode::invalidUsage, "copy_engine: rank " + std::to_string(team.rank) +
                                             ": the team's workspace has a stage of " + std::to_string(stageBytes) +
                                             " bytes; make it with the requirement of this algorithm");
  }
  auto const chunk = rowBytes / sizeof(T);
  auto const chunks = (longest + chunk - 1) / chunk;
  if (chunks == 0) return;
  auto const piece = [&](int rank, std::size_t number) {
    auto const share = shareOf(rank);
    auto const first = std::min<std::size_t>(number * chunk, share.count);
    return Share{share.first + first, std::min<std::size_t>(chunk, share.count - first)};
  };
  auto const slotOf = [&](int rank, std::size_t number) {
    return team.workspaces[rank] + layout.stage + number % slots * slotBytes;
  };
  auto const bringResults = [&](std::size_t number) {
    auto const own = piece(team.rank, number);
    auto const* const from = results + (own.first - shareOf(team.rank).first);
    for (int distance = 1; distance < team.size; ++distance) {
      call.stream.copy(outputOf(call, peerAt(call, distance), own.first * sizeof(T)), from, own.count * sizeof(T));
    }
  };

  auto const bringContributions = [&](std::size_t number) {
    for (int distance = 1; distance < team.size; ++distance) {
      int const peer = peerAt(call, distance);
      auto const part = piece(peer, number);
      call.stream.copy(slotOf(peer, number) + static_cast<std::size_t>(team.rank) * rowBytes, in + part.first,
                       part.count * sizeof(T));
    }
  };
  // In the second stream: then the newest chunk has come everywhere, and the one before it is reduced everywhere.
  auto const meetAtChunk = [&] {
    side.runAfter(call.stream);
    meet(call, side);
  };
  auto const reduce = [&](std::size_t number) {
    auto const own = piece(team.rank, number);
    if (own.count == 0) return;
    launch(side, {.blocks = call.shape.blocks, .threads = call.shape.threads}, ReduceRowsKernel<T, Op, Ranks>{},
           in + own.first, slotOf(team.rank, number), results + (own.first - shareOf(team.rank).first), own.count,
           rowBytes, DeviceTeam(team));
  };

  meet(call, call.stream);  // everybody's stage and output are free
  bringContributions(0);
  meetAtChunk();
  for (std::size_t number = 0; number < chunks; ++number) {
    bool const more = number + 1 < chunks;
    if (more) bringContributions(number + 1);
    // What comes into this stream from now on, the chunk after that first, waits for the meeting at this one.
    call.stream.runAfter(side);
    if (distribute && number > 0) bringResults(number - 1);
    reduce(number);
    if (more) meetAtChunk();
  }
  call.stream.runAfter(side);
  if (distribute) bringResults(chunks - 1);
  meet(call, call.stream);
}

template <class T, class Op, int Ranks>
void startReduceScatterCopies(KernelCall const& call) {
  auto const count = call.count;
  reduceChunks<T, Op, Ranks>(
      call,
      [count](int rank) {
        return Share{static_cast<std::size_t>(rank) * count, count};
      },
      static_cast<T*>(call.out), false);
}

template <class T, class Op, int Ranks>
void startAllReduceCopies(KernelCall const& call) {
  auto const share = [&](int rank) {
    return shareOf<T>(call.count, static_cast<unsigned>(call.team.size), static_cast<unsigned>(rank));
  };
  reduceChunks<T, Op, Ranks>(call, share, static_cast<T*>(call.out) + share(call.team.rank).first, true);
}

// All at the root, whose link carries what everybody sends: for two ranks.
template <class T, class Op, int Ranks>
void startReduceCopies(KernelCall const& call) {
  auto const share = [&](int rank) { return Share{0, rank == call.root ? call.count : 0}; };
  reduceChunks<T, Op, Ranks>(call, share, static_cast<T*>(call.out), false);
}

// ---- entering
// --------------------------------------------------------------------------------------------------------

inline constexpr char copyEngineName[] = "copy_engine";

inline void addMoveCopies(KernelTable& table) {
  Kernel kernel;
  kernel.outputWindow = true;
  kernel.sideStreams = 1;
  kernel.requirement = [](std::uint32_t, std::uint32_t blocks, std::uint32_t) {
    return layout::WorkspaceRequirement{.blocks = blocks};
  };
  kernel.shape = [](std::uint32_t, std::uint64_t, std::uint32_t) { return LaunchShape{.blocks = 1, .threads = 32}; };
  auto const add = [&](Collective collective, void (*start)(KernelCall const&)) {
    kernel.start = start;
    // Peers would write what is still to be read.
    kernel.inPlace = traitsOf(collective).in.extent != Extent::partPerRank;
    table.add({kernelDevice, collective, copyEngineName, DataType::uint8, ReduceOp::none, 0}, kernel);
  };
  add(Collective::allGather, &startAllGatherCopies);
  add(Collective::allToAll, &startAllToAllCopies);
  add(Collective::scatter, &startScatterCopies);
  add(Collective::gather, &startGatherCopies);
  add(Collective::broadcast, &startBroadcastCopies);
}

inline layout::WorkspaceRequirement rowsRequirement(std::uint32_t ranks, std::uint32_t blocks, std::uint32_t) {
  // Over as many blocks as workspaces have anyway.
  blocks = std::max(blocks, largestGrid);
  return {.blocks = blocks, .stageBytes = (slots * longestCopy * ranks / 2 + blocks - 1) / blocks};
}

inline LaunchShape rowsShape(std::uint32_t ranks, std::uint64_t bytes, std::uint32_t maxBlocks) {
  return shapeFor<PullSchedule, PeerMemory<2>>((bytes + ranks - 1) / ranks, maxBlocks);
}

template <class T, class Op, int Ranks = 0>
void addReductionsAndCopies(KernelTable& table) {
  addReductions<T, Op, Ranks>(table);
  Kernel kernel;
  kernel.sideStreams = 1;
  kernel.requirement = &rowsRequirement;
  kernel.shape = &rowsShape;
  kernel.start = &startReduceScatterCopies<T, Op, Ranks>;
  table.add({kernelDevice, Collective::reduceScatter, copyEngineName, dataTypeOf<T>(), reduceOpOf<Op>(), Ranks},
            kernel);
  kernel.start = &startReduceCopies<T, Op, Ranks>;
  table.add({kernelDevice, Collective::reduce, copyEngineName, dataTypeOf<T>(), reduceOpOf<Op>(), Ranks}, kernel);
  kernel.start = &startAllReduceCopies<T, Op, Ranks>;
  kernel.outputWindow = true;
  table.add({kernelDevice, Collective::allReduce, copyEngineName, dataTypeOf<T>(), reduceOpOf<Op>(), Ranks}, kernel);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
