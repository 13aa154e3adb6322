// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs one collective on every rank as a kernel of its own, and compares every element of every buffer, and what lies
// around them, with what it must be.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "mscclpp/algorithms/kernels.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

namespace mscclpp_test {
inline namespace MSCCLPP_BACKEND {

struct CollectiveCase {
  int ranks = 4;
  std::vector<std::size_t> counts = {1000};  // of one rank's part
  unsigned blocks = 3;
  unsigned threads = 64;
  bool inPlace = false;
  bool overlap = false;
  std::size_t offset = 0;         // elements by which input and output are off from their allocation
  std::size_t outShift = 0;       // elements by which the output is off beyond that; up to 8
  std::uint64_t regionBytes = 0;  // of the workspace; 0: what the launch asks for
  int root = 0;
  std::uint64_t seed = 1;
};

// Pieces so short that small messages go in several.
struct ShortPieces : PeerMemory<4> {
  static constexpr unsigned piece = 128;
};

// What a collective makes of the inputs: how many parts of `count` elements its buffers have, and what a rank's output
// is. A rank that is given nothing (or that gives nothing) has an empty vector.
template <class T>
using Buffers = std::vector<std::vector<T>>;  // by rank

template <class Collective>
struct Meaning;

template <class T>
std::vector<T> concatenate(Buffers<T> const& parts) {
  std::vector<T> all;
  for (auto const& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}
template <class T>
std::vector<T> partOfBuffer(std::vector<T> const& buffer, int ranks, int part) {
  auto const count = static_cast<std::ptrdiff_t>(buffer.size() / static_cast<std::size_t>(ranks));
  return {buffer.begin() + part * count, buffer.begin() + (part + 1) * count};
}
template <class Op, class Acc, class T>
std::vector<T> reduced(Buffers<T> const& inputs) {
  using A = std::conditional_t<std::is_void_v<Acc>, DefaultAccumulator<T>, Acc>;
  std::vector<T> result;
  for (auto const total : reduceInRankOrder<A, Op>(inputs)) result.push_back(convertNumber<T>(total));
  return result;
}

template <class S, class Tr, class Op, int R, class A>
struct Meaning<AllReduce<S, Tr, Op, R, A>> {
  static constexpr bool wholeIn = false, wholeOut = false;
  template <class T>
  static std::vector<T> result(Buffers<T> const& in, int, int) {
    return reduced<Op, A>(in);
  }
};
// From rank `first` to its neighbours, in element i, rounded from rank to rank.
template <class Op, class A, class T>
T reducedInTurn(Buffers<T> const& in, std::size_t first, std::size_t i) {
  using Acc = std::conditional_t<std::is_void_v<A>, DefaultAccumulator<T>, A>;
  auto const ranks = in.size();
  auto total = convertNumber<Acc>(in[first % ranks][i]);
  for (std::size_t step = 1; step < ranks; ++step) {
    auto const own = convertNumber<Acc>(in[(first + step) % ranks][i]);
    total = Op{}(convertNumber<Acc>(convertNumber<T>(total)), own);
  }
  return convertNumber<T>(Op{}.finish(total, static_cast<int>(ranks)));
}
// Each share in the order of the ring, from its own rank on.
template <class Tr, class Op, int R, class A>
struct Meaning<AllReduce<RingSchedule, Tr, Op, R, A>> {
  static constexpr bool wholeIn = false, wholeOut = false;
  template <class T>
  static std::vector<T> result(Buffers<T> const& in, int, int) {
    auto const ranks = in.size();
    std::vector<T> out(in[0].size());
    for (std::size_t owner = 0; owner < ranks; ++owner) {
      auto const share = shareOf<T>(out.size(), static_cast<unsigned>(ranks), static_cast<unsigned>(owner));
      for (std::size_t i = share.first; i < share.first + share.count; ++i) out[i] = reducedInTurn<Op, A>(in, owner, i);
    }
    return out;
  }
};
template <class S, class Tr, int R>
struct Meaning<AllGather<S, Tr, R>> {
  static constexpr bool wholeIn = false, wholeOut = true;
  template <class T>
  static std::vector<T> result(Buffers<T> const& in, int, int) {
    return concatenate(in);
  }
};
template <class S, class Tr, class Op, int R, class A>
struct Meaning<ReduceScatter<S, Tr, Op, R, A>> {
  static constexpr bool wholeIn = true, wholeOut = false;
  template <class T>
  static std::vector<T> result(Buffers<T> const& in, int rank, int) {
    Buffers<T> parts;
    for (auto const& input : in) parts.push_back(partOfBuffer(input, static_cast<int>(in.size()), rank));
    return reduced<Op, A>(parts);
  }
};
template <class S, class Tr, int R>
struct Meaning<AllToAll<S, Tr, R>> {
  static constexpr bool wholeIn = true, wholeOut = true;
  template <class T>
  static std::vector<T> result(Buffers<T> const& in, int rank, int) {
    Buffers<T> parts;
    for (auto const& input : in) parts.push_back(partOfBuffer(input, static_cast<int>(in.size()), rank));
    return concatenate(parts);
  }
};
template <class S, class Tr, int R>
struct Meaning<Broadcast<S, Tr, R>> {
  static constexpr bool wholeIn = false, wholeOut = false;
  template <class T>
  static std::vector<T> result(Buffers<T> const& in, int, int root) {
    return in[static_cast<std::size_t>(root)];
  }
};
template <class S, class Tr, int R>
struct Meaning<Scatter<S, Tr, R>> {
  static constexpr bool wholeIn = true, wholeOut = false;
  template <class T>
  static std::vector<T> result(Buffers<T> const& in, int rank, int root) {
    return partOfBuffer(in[static_cast<std::size_t>(root)], static_cast<int>(in.size()), rank);
  }
};
template <class S, class Tr, int R>
struct Meaning<Gather<S, Tr, R>> {
  static constexpr bool wholeIn = false, wholeOut = true;
  template <class T>
  static std::vector<T> result(Buffers<T> const& in, int rank, int root) {
    return rank == root ? concatenate(in) : std::vector<T>();
  }
};
template <class S, class Tr, class Op, int R, class A>
struct Meaning<Reduce<S, Tr, Op, R, A>> {
  static constexpr bool wholeIn = false, wholeOut = false;
  template <class T>
  static std::vector<T> result(Buffers<T> const& in, int rank, int root) {
    return rank == root ? reduced<Op, A>(in) : std::vector<T>();
  }
};

// From the root's successor on.
template <class Tr, class Op, int R, class A>
struct Meaning<Reduce<ChainSchedule, Tr, Op, R, A>> {
  static constexpr bool wholeIn = false, wholeOut = false;
  template <class T>
  static std::vector<T> result(Buffers<T> const& in, int rank, int root) {
    std::vector<T> out(rank == root ? in[0].size() : 0);
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = reducedInTurn<Op, A>(in, static_cast<std::size_t>(root) + 1, i);
    }
    return out;
  }
};

template <class Collective>
inline constexpr bool isDirect = needsInWindow<Collective> || needsOutWindow<Collective>;

template <class Collective>
inline constexpr bool usesSwitch = Collective::requirement(1, 1, 1).multicast != 0;

template <class Collective>
inline constexpr std::size_t sharedBytesOf = 0;
template <template <class, class, int> class C, class S, class Tr, int R>
requires DirectTransport<Tr>
inline constexpr std::size_t sharedBytesOf<C<S, Tr, R>> = Tr::sharedBytes;

template <class Collective, class T>
void startCollective(Rank& rank, LaunchShape const& shape, T const* in, T* out, std::size_t count, int root,
                     Team const& team, layout::WindowHandle const& inWindow, layout::WindowHandle const& outWindow) {
  if constexpr (isDirect<Collective>) {
    launch(rank.stream, shape, DirectKernel<Collective, T>{}, in, out, count, root, team.deviceHandle(), inWindow,
           outWindow);
  } else {
    launch(rank.stream, shape, CollectiveKernel<Collective, T>{}, in, out, count, root, team.deviceHandle());
  }
}

template <class Collective>
layout::WorkspaceRequirement collectiveWorkspace(CollectiveCase const& test) {
  auto need = Collective::requirement(static_cast<std::uint32_t>(test.ranks), test.blocks, test.threads);
  for (auto* bytes : {&need.packetBytes, &need.lineBytes, &need.stageBytes}) {
    if (*bytes != 0 && test.regionBytes != 0) *bytes = test.regionBytes;
  }
  return need;
}

// The part of one rank.
template <class Collective, class T>
void checkCollectiveRank(Rank& rank, CollectiveCase const& test) {
  using M = Meaning<Collective>;
  auto const ranks = static_cast<std::size_t>(test.ranks);
  Team const team(rank.communicator, collectiveWorkspace<Collective>(test));
  // Everything is put into the stream before anything is awaited, and each call is made twice on the same buffers: what
  // comes before and behind it in the stream must not meet what peers still do to them.
  struct Call {
    GpuBuffer<T> in, out, firstIn;
    std::vector<GpuBuffer<T>> seen;  // the buffer with the output, behind each call
    std::vector<MemoryWindow> windows;
    std::size_t count, inAt, outAt;
    std::vector<T> expected;
  };
  std::vector<Call> calls;
  std::uint64_t number = 0;
  for (auto const count : test.counts) {
    ++number;
    auto const inCount = M::wholeIn ? count * ranks : count;
    auto const outCount = M::wholeOut ? count * ranks : count;
    // Where input and output have different sizes, the smaller is the own part of the larger.
    auto const larger = std::max(inCount, outCount);
    auto const total = larger + test.offset + test.outShift + 8;
    auto const buffer = [&] {
      return GpuBuffer<T>(rank.device, total, usesSwitch<Collective> ? MemoryKind::shareable : MemoryKind::standard);
    };
    Call call{buffer(), buffer(), buffer(), {}, {}, count, test.offset, test.offset + test.outShift, {}};
    auto const ownPart = inCount == outCount ? 0 : static_cast<std::size_t>(rank.rank) * count;
    if (test.inPlace) (outCount > inCount ? call.inAt : call.outAt) += ownPart;
    call.firstIn.fill(0x5a);
    call.out.fill(0x5a);
    Buffers<T> inputs;
    for (int r = 0; r < test.ranks; ++r) inputs.push_back(randomInput<T>(test.seed + 100 * number, r, inCount));
    copyToDevice(call.firstIn, std::span<T const>(inputs[static_cast<std::size_t>(rank.rank)]), call.inAt);
    // The whole buffer that the output lies in.
    call.expected = copyToHost(test.inPlace ? call.firstIn : call.out);
    auto const result = M::template result<T>(inputs, rank.rank, test.root);
    std::copy(result.begin(), result.end(), call.expected.begin() + static_cast<std::ptrdiff_t>(call.outAt));
    for (auto const* memory : {&call.in, &call.out}) {
      call.windows.emplace_back(
          rank.communicator, memory->data(), memory->bytes(), std::vector<int>{},
          usesSwitch<Collective> && isDirect<Collective> ? WindowUse::multicast : WindowUse::threads);
    }
    for (int again = 0; again < 2; ++again) call.seen.push_back(buffer());
    calls.push_back(std::move(call));
  }
  rank.meet();
  for (auto const& call : calls) {
    auto const& inWindow = call.windows[0].deviceHandle();
    auto const& outWindow = test.inPlace ? inWindow : call.windows[1].deviceHandle();
    auto const& target = test.inPlace ? call.in : call.out;
    auto const start = [&] {
      startCollective<Collective, T>(rank,
                                     {.blocks = test.blocks,
                                      .threads = test.threads,
                                      .dynamicShared = sharedBytesOf<Collective>,
                                      .overlapPrevious = test.overlap},
                                     call.in.data() + call.inAt, target.data() + call.outAt, call.count, test.root,
                                     team, inWindow, outWindow);
    };
    for (auto const& seen : call.seen) {
      rank.stream.copy(call.in.data(), call.firstIn.data(), call.in.bytes());
      start();
      rank.pace();
      // Only kernels that follow each other overlap.
      if (test.overlap && !test.inPlace) start();
      rank.stream.copy(seen.data(), target.data(), target.bytes());
      rank.pace();
    }
  }
  rank.synchronize();
  for (auto const& call : calls) {
    for (auto const& seen : call.seen) {
      // No CAPTURE here, and no copy in the check: ranks take turns, and doctest keeps one stack of messages for all.
      auto const different = countDifferent(copyToHost(seen), call.expected);
      CHECK_MESSAGE(different == 0, "rank ", rank.rank, ", count ", call.count);
    }
  }
}

template <class Collective, class T = std::uint8_t>
void checkCollective(CollectiveCase const& test) {
  if (!canRun(test.ranks)) return;
  forEachRank(test.ranks, [&](Rank& rank) { checkCollectiveRank<Collective, T>(rank, test); }, {.seed = test.seed});
}

// Several pieces of a block, the last ones short, empty for some blocks and shares.
template <class Collective, class T = std::uint8_t>
void checkPieces(std::vector<std::size_t> const& counts) {
  for (int ranks : {1, 2, 3, 8}) {
    checkCollective<Collective, T>(
        {.ranks = ranks, .counts = counts, .blocks = 2, .threads = 64, .overlap = true, .root = ranks / 2});
  }
}

inline std::vector<std::size_t> const raggedCounts{1, 0, 7, 8, 61, 479, 1000};
// For simulated ranks.
inline CollectiveCase const rack{.ranks = 72, .counts = {33}, .blocks = 1, .threads = 32, .root = 50};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp_test
