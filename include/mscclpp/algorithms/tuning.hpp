// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which all-reduce to use and how to launch it: names, compositions, and the choice by size and rank count.
//
// Constexpr and the same on host and device. The crossing sizes were measured on 4 H200 (bench/results/); elsewhere
// they are a starting point. All ranks must choose alike, so choose from values that all ranks share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "mscclpp/algorithms/collective/allreduce.hpp"
#include "mscclpp/algorithms/core/composition.hpp"

namespace mscclpp {

enum class AllReduceAlgorithm : std::uint8_t {
  oneShotLL8,
  oneShotLL16,
  oneShotLL128,
  oneShotMemory,
  twoShotLL8,
  twoShotLL16,
  twoShotLL128,
  twoShotMemory,
  twoShotMemoryWide,  // twice the payloads a thread, for very large messages
};

inline namespace MSCCLPP_BACKEND {

// In the order of AllReduceAlgorithm.
using AllReduceCompositions = CompositionList<Composition<"oneshot_ll8", OneShot, PacketTransport<LL8>>,
                                              Composition<"oneshot_ll16", OneShot, PacketTransport<LL16>>,
                                              Composition<"oneshot_ll128", OneShot, PacketTransport<LL128>>,
                                              Composition<"oneshot_memory", OneShot, MemoryTransport<2>>,
                                              Composition<"twoshot_ll8", TwoShot, PacketTransport<LL8>>,
                                              Composition<"twoshot_ll16", TwoShot, PacketTransport<LL16>>,
                                              Composition<"twoshot_ll128", TwoShot, PacketTransport<LL128>>,
                                              Composition<"twoshot_memory", TwoShot, MemoryTransport<4>>,
                                              Composition<"twoshot_memory_wide", TwoShot, MemoryTransport<8>>>;

template <AllReduceAlgorithm A>
using CompositionOf = AllReduceCompositions::At<static_cast<std::size_t>(A)>;

}  // namespace MSCCLPP_BACKEND

inline constexpr auto allReduceNames = AllReduceCompositions::names;
static_assert(allReduceNames[static_cast<std::size_t>(AllReduceAlgorithm::twoShotMemoryWide)] == "twoshot_memory_wide");

constexpr std::string_view name(AllReduceAlgorithm algorithm) {
  return allReduceNames[static_cast<std::size_t>(algorithm)];
}

constexpr std::optional<AllReduceAlgorithm> allReduceByName(std::string_view wanted) {
  auto const index = AllReduceCompositions::indexOf(wanted);
  return index ? std::optional(static_cast<AllReduceAlgorithm>(*index)) : std::nullopt;
}

constexpr bool needsWholeLines(AllReduceAlgorithm algorithm) {
  return algorithm == AllReduceAlgorithm::oneShotLL128 || algorithm == AllReduceAlgorithm::twoShotLL128;
}

inline namespace MSCCLPP_BACKEND {

template <AllReduceAlgorithm A, class Op, int Ranks = 0, class Acc = void>
using AllReduceOf =
    AllReduce<typename CompositionOf<A>::Schedule, typename CompositionOf<A>::Transport, Op, Ranks, Acc>;

template <AllReduceAlgorithm A>
using TransportOf = typename CompositionOf<A>::Transport;

// An element of `elementBytes` fits into one access of the algorithm's transport.
template <AllReduceAlgorithm A>
constexpr bool canCarry(std::size_t elementBytes) {
  return elementBytes <= TransportOf<A>::granule;
}

}  // namespace MSCCLPP_BACKEND

// Calls f.template operator()<A>() for the algorithm that is `algorithm`.
template <class F>
constexpr auto withAllReduce(AllReduceAlgorithm algorithm, F&& f) {
  using enum AllReduceAlgorithm;
  switch (algorithm) {
    case oneShotLL8:
      return f.template operator()<oneShotLL8>();
    case oneShotLL16:
      return f.template operator()<oneShotLL16>();
    case oneShotLL128:
      return f.template operator()<oneShotLL128>();
    case oneShotMemory:
      return f.template operator()<oneShotMemory>();
    case twoShotLL8:
      return f.template operator()<twoShotLL8>();
    case twoShotLL16:
      return f.template operator()<twoShotLL16>();
    case twoShotLL128:
      return f.template operator()<twoShotLL128>();
    case twoShotMemory:
      return f.template operator()<twoShotMemory>();
    case twoShotMemoryWide:
      break;
  }
  return f.template operator()<twoShotMemoryWide>();
}

struct AllReduceChoice {
  AllReduceAlgorithm algorithm;
  std::uint32_t blocks;
  std::uint32_t threads;

  friend constexpr bool operator==(AllReduceChoice const&, AllReduceChoice const&) = default;
};

// Largest grid that the default shapes use; size workspaces for it.
inline constexpr std::uint32_t maxAllReduceBlocks = 288;

// Blocks of 256 threads that are resident together on 132 multiprocessors.
inline constexpr std::uint32_t maxMemoryBlocks = 264;

// The launch shape for `bytes` of input: one payload a thread while the grid lasts, in blocks as small as that allows.
constexpr AllReduceChoice shapeAllReduce(AllReduceAlgorithm algorithm, std::uint32_t ranks, std::uint64_t bytes,
                                         std::uint32_t maxBlocks = maxAllReduceBlocks) {
  using enum AllReduceAlgorithm;
  bool const twoShot = algorithm >= twoShotLL8;
  // Bytes that one thread takes in a round.
  std::uint64_t perThread = 0;
  std::uint32_t threads = 128;
  switch (algorithm) {
    case oneShotLL8:
    case twoShotLL8:
      perThread = 4;
      break;
    case oneShotLL16:
    case twoShotLL16:
      perThread = 8;
      break;
    case oneShotLL128:
    case twoShotLL128:
      perThread = 15;
      break;
    case oneShotMemory:
      perThread = 32;
      threads = 256;
      break;
    case twoShotMemory:
      perThread = 64;
      threads = 256;
      break;
    case twoShotMemoryWide:
      perThread = 128;
      threads = 256;
      break;
  }
  // Unlike packets, waiting for a signal keeps a multiprocessor busy, so a second wave of blocks costs as much as the
  // first.
  bool const memory = algorithm == oneShotMemory || algorithm == twoShotMemory || algorithm == twoShotMemoryWide;
  if (memory) maxBlocks = std::min(maxBlocks, maxMemoryBlocks);
  auto const needed = std::max<std::uint64_t>(1, bytes / (twoShot ? ranks : 1) / perThread);
  if (algorithm == oneShotLL16 && needed <= 1024) threads = 64;
  while (threads < 256 && needed > std::uint64_t{threads} * maxBlocks) threads *= 2;
  auto const blocks = std::min<std::uint64_t>((needed + threads - 1) / threads, maxBlocks);
  return {algorithm, static_cast<std::uint32_t>(blocks), threads};
}

// The choice for an input of `bytes`. `wholeLines`: all links of the team deliver 128-byte lines whole.
constexpr AllReduceChoice chooseAllReduce(std::uint32_t ranks, std::uint64_t bytes, std::size_t elementBytes,
                                          bool wholeLines, std::uint32_t maxBlocks = maxAllReduceBlocks) {
  using enum AllReduceAlgorithm;
  constexpr std::uint64_t KiB = 1024;
  // What one-shot sends grows with the ranks, what two-shot sends does not. Measured with 3 peers.
  auto const scaled = [&](std::uint64_t withThreePeers) { return withThreePeers * 3 / std::max(1u, ranks - 1); };
  auto const pick = [&] {
    if (bytes > 96 * 1024 * KiB) return twoShotMemoryWide;
    if (!wholeLines) {
      if (bytes <= 512 && elementBytes <= 4) return oneShotLL8;
      if (bytes <= scaled(96 * KiB)) return oneShotLL16;
      return bytes <= 1024 * KiB ? twoShotLL16 : twoShotMemory;
    }
    if (bytes <= 2 * KiB) return oneShotLL16;
    if (bytes <= scaled(192 * KiB)) return oneShotLL128;
    return bytes <= 10 * 1024 * KiB ? twoShotLL128 : twoShotMemory;
  };
  return shapeAllReduce(pick(), ranks, bytes, maxBlocks);
}

}  // namespace mscclpp
