// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every wait of a kernel looks at when it takes long, and where it writes when it gives up.
//
// One `Watch` per communicator and rank, in memory that host and device both see. The host sets `limitNs` and may set
// `abort`; a kernel whose wait passes the limit, or that sees `abort`, writes a `WaitReport` and leaves. A kernel that
// gives up sets `abort`, so that every other waiter of the same rank leaves too, and marks the counters of rounds of
// all ranks (round_counter.hpp), so that later kernels refuse. Fields are accessed with relaxed system-scope atomics
// (`reportCount` by additions of this device alone), `WaitReport::complete` with release/acquire.
#pragma once

#include <cstdint>

#include "mscclpp/layout/round_counter.hpp"

namespace mscclpp::layout {

// What is waited for, and so what the values of a report count.
enum class WaitKind : std::uint32_t {
  none = 0,
  semaphore = 1,       // channel signal from `peer`; values are counts
  packet = 2,          // packet of `peer`; values are flags, `channel` is the slot
  teamSignal = 3,      // stage of a collective published by `peer`; values are epochs, `channel` is the phase
  gridBarrier = 4,     // blocks of this grid; values are generations
  teamBarrier = 5,     // all ranks of a team; values are epochs
  proxy = 6,           // host proxy; values are FIFO positions
  misuse = 7,          // not a wait: a launch that the kernel refuses; `expected` is the limit, `seen` what it got
  bulkBarrier = 8,     // phase of a BulkBarrier of this block; values are parities, `channel` is its shared address
  message = 9,         // chunk of a message of `peer`; values are numbers of chunks, `channel` is the lane
  messageTaken = 10,   // room for a chunk in the ring of `peer`, which has to take earlier ones; likewise
  switchBarrier = 11,  // all ranks of a switch channel; values are counts
  portSignal = 12,     // signal of `peer`'s proxy; values are counts, `channel` is the semaphore in the proxy service
  portFlush = 13,  // this rank's proxy shall complete what channel `channel` to `peer` has posted; values are positions
  hostProxy = 14,  // a proxy of the simulated machine, for work; values are positions, `channel` is its number
  abandoned = 15,  // not a wait: `peer` has given up semaphore `channel`; `expected` is the count waited for
  programPacket =
      16,          // of a program, whose steps may read it again; values are flags, `channel` is a slot of the chunk
  tileRound = 17,  // `peer` shall begin a round of tile flags; values are numbers of rounds
  tile = 18,       // arrivals at tile `channel` of this rank; values are counts
};

// What a kernel refused, as `channel` of a report of kind `misuse`.
enum class Misuse : std::uint64_t {
  remoteRange = 0,     // a put or get ends past the peer's buffer: `expected` bytes are there, `seen` is the end
  localRange = 1,      // the same for this rank's buffer
  packetRange = 2,     // the same for the packet buffer
  teamSize = 3,        // a collective compiled for `expected` ranks got a team of `seen`
  blockCount = 4,      // the workspace serves `expected` blocks, the launch has `seen`
  workspaceBytes = 5,  // the workspace's region holds `expected` bytes, `seen` is the least that is needed
  blockThreads = 6,    // the block has `seen` threads, `expected` is the least
  countMismatch = 7,   // the input has `expected` elements, the output `seen`
  alignment = 8,       // an address is `seen` bytes past a multiple of `expected`, the element's size
  tornLines = 9,       // LL128 on a team whose links do not deliver 128-byte lines whole
  windowRange = 10,    // a view of symmetric memory: its window has `expected` bytes, the view ends at `seen`
  windowTeam = 11,     // a window of `seen` ranks with a team of `expected`
  root = 12,           // `seen` is no rank of a team of `expected`
  unevenParts = 13,    // a buffer of `seen` elements does not hold `expected` parts of one count
  messageBytes = 14,   // a message of `seen` bytes from `peer`, where `expected` are to be received
  packetFormat = 15,   // messages by LL128 packets (`seen` is 1) or LL16, over links made for the other
  noMulticast = 16,    // a collective through the switch got a team or window without multicast addresses
  switchRange = 17,    // a switch channel's memory has `expected` bytes, the access ends at `seen`
  fewBlocks = 18,      // the grid has `seen` blocks, `expected` is the least
  triggerRange = 19,   // a size or offset of a port channel: `expected` is the largest that a trigger carries
  triggerMemory = 20,  // a memory id of a port channel: the same
  planBytes = 21,      // a message of `seen` bytes for a program or plan whose context serves `expected`
  astray = 22,         // a wait on what the kernel works with, or beside it, was given up before, here or on a peer
  spentFlags = 23,     // call `seen` of a program's context, of which the packets have flags for `expected`
  unheardPeer = 24,    // a block has received nothing from `peer` in round `seen`; simulated machine only
  sharedTeam = 25,     // another kernel that uses the team has not ended; simulated machine only
  rowColumns = 26,     // a row of `seen` elements, where those that work on it hold `expected`
  rowThreads = 27,     // blocks of `seen` threads with several warps a row, `expected` is the most
  tileBlocks = 28,     // tile flags serve `expected` blocks, the launch has `seen`
  tileRank = 29,       // `seen` is no rank of the `expected` that share tile flags
  tile = 30,           // `seen` is none of the `expected` tiles that have flags
  strewnParts = 31,    // `expected` and `seen` elements before the ranks' dimension, neither a multiple of the other
  expert = 32,         // `seen` is none of `expected` experts
  expertLimit = 33,    // `seen` tokens, experts of a token or elements, where ExpertLimits say `expected`
  expertRows = 34,     // rows of tokens for this rank's experts: room for `expected`, `seen` is the number of one
};

// In place of a count of signals of a port channel: its sender has failed and will signal no more.
inline constexpr std::uint64_t abandonedSignal = std::uint64_t{1} << 63;

// What a wait is for, in the terms of WaitReport.
struct WaitFor {
  WaitKind kind;
  std::int32_t peer;
  std::uint64_t channel;
  std::uint64_t expected;
};

struct WaitReport {
  std::uint32_t complete;  // 1 once the other fields are written
  WaitKind kind;
  std::int32_t rank;  // who waited
  std::int32_t peer;  // for whom; -1: nobody in particular
  std::uint32_t block;
  std::uint32_t thread;
  std::uint64_t channel;  // which one, by its kind's own numbering
  std::uint64_t expected;
  std::uint64_t seen;
  std::uint64_t waitedNs;
};

inline constexpr std::uint32_t maxWaitReports = 32;

inline constexpr std::uint32_t maxCounters = 4096;

struct Watch {
  std::uint32_t abort;         // non-zero: every waiter leaves as soon as it looks
  std::int32_t rank;           // rank that owns this watch
  std::uint64_t limitNs;       // longest single wait; 0: no limit
  std::uint32_t reportCount;   // reports begun; those past `maxWaitReports` are counted, not kept
  std::uint32_t countersUsed;  // entries of `counters` that may be in use
  WaitReport reports[maxWaitReports];
  RoundCounters counters[maxCounters];  // that kernels of this rank mark when they give up
};

}  // namespace mscclpp::layout
