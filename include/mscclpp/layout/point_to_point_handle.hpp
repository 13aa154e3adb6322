// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The symmetric memory through which ranks send messages to each other, as kernels receive it: what each rank holds for
// every peer, and where it is mapped here.
//
// For each pair of ranks, each direction and each lane there is a ring of slots in the receiver's memory. A message is
// dealt out to lanes and cut into chunks; chunk n of a lane, counted from 1 over all messages, goes through slot
// n % slots. Counters are 64 bits, only grow, and live in device memory: kernels may be captured and replayed.
//
// Ranks of other nodes, whose memory is not mapped, are far: proxies put what the sender leaves in slots of an outbox
// into the receiver's inbox, and count both ways what has arrived and what was taken.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/base/config.hpp"
#include "mscclpp/layout/port_handle.hpp"
#include "mscclpp/layout/round_counter.hpp"
#include "mscclpp/layout/watch.hpp"
#include "mscclpp/layout/workspace.hpp"

namespace mscclpp::layout {

// What the host asks for. Small messages go as packets, others through plain memory.
struct PointToPointRequirement {
  std::uint32_t lanes = 64;              // blocks at either end that work on one message
  std::uint32_t slots = 2;               // chunks that may be on their way, per lane; a power of two
  std::uint64_t stageBytes = 128 << 10;  // most data in a chunk that goes through plain memory
  std::uint64_t packetBytes = 8 << 10;   // of data in a chunk of packets
  std::uint64_t packetLimit = 1 << 20;   // largest message that goes as packets
  // Slots of plain memory are made when a first message needs them (PointToPoint::handleFor), not with the rest.
  bool stagesLater = false;
  // With ranks of other nodes: blocks at either end, at most `lanes`, and most data in a chunk.
  std::uint32_t farLanes = 2;
  std::uint64_t farBytes = 512 << 10;

  friend constexpr bool operator==(PointToPointRequirement const&, PointToPointRequirement const&) = default;
};

// Blocks of a kernel of messages: one that sends, one that receives.
inline constexpr std::uint32_t leastMessageBlocks = 2;

// Bytes of a message in each of its lanes but the last, which may have fewer. Lanes take equal parts, as far as these
// are not too small to be worth a block.
MSCCLPP_HOST_DEVICE constexpr std::uint64_t messagePart(std::uint32_t lanes, std::uint64_t bytes) {
  constexpr std::uint64_t least = 1920;
  if (bytes <= least * lanes) return least;
  return roundUp<std::uint64_t>(ceilDiv<std::uint64_t>(bytes, lanes), 128);
}

// How many of the `lanes` a message takes; one without bytes is a chunk of the first.
MSCCLPP_HOST_DEVICE constexpr std::uint32_t messageLanes(std::uint32_t lanes, std::uint64_t bytes) {
  auto const part = messagePart(lanes, bytes);
  return bytes <= part ? 1 : static_cast<std::uint32_t>(ceilDiv(bytes, part));
}

// Bytes of each chunk of plain memory but the last, where a lane has `part` of the message and slots take `stageBytes`.
// Chunks of less than 128 KiB are not worth their signals; above that a part is 8 of them or more, so that what the
// receiver still has to copy behind the last one stays short.
MSCCLPP_HOST_DEVICE constexpr std::uint64_t messageChunk(std::uint64_t stageBytes, std::uint64_t part) {
  constexpr std::uint64_t least = 128 << 10;
  return minimum(stageBytes, maximum(least, roundUp<std::uint64_t>(ceilDiv<std::uint64_t>(part, 8), 128)));
}

// Ahead of the data of a far chunk: a word with the bytes of its message, and what keeps the data aligned.
inline constexpr std::uint64_t farHeaderBytes = 128;

// What lies where in a rank's memory; the same on every rank of a node.
struct PointToPointLayout {
  std::uint32_t ranks;
  std::uint32_t lanes;
  std::uint32_t slots;
  std::uint32_t lines;  // 1: packets are LL128, since every link delivers 128-byte lines whole; 0: LL16
  std::uint64_t packetLimit;
  std::uint64_t stageBytes;   // a multiple of 128
  std::uint64_t packetBytes;  // a multiple of 120 * 16, so that every packet format fills whole lines
  std::uint64_t packetSlot;   // bytes of memory for them
  std::uint64_t farBytes;     // a multiple of 128
  std::uint32_t farLanes;
  // Offsets from the start of a rank's memory, of arrays [ranks][lanes] of counters:
  std::uint64_t sent;     // RoundCounter: chunks that this rank has sent to a peer
  std::uint64_t taken;    // RoundCounter: chunks of a peer that this rank has taken
  std::uint64_t arrived;  // written by the peer: its chunks that are in this rank's stage
  std::uint64_t freed;    // written by the peer: this rank's chunks that it has taken
  // [peers of the node][lanes][slots], filled by the peer
  std::uint64_t headers;  // one LL16 packet: bytes of the message that begins with the chunk
  std::uint64_t packets;
  std::uint64_t total;   // of all of these
  std::uint64_t stages;  // of the slots of plain memory, as many, too: PointToPointHandle::stages

  // Of a rank's lane in arrays [ranks][lanes].
  MSCCLPP_HOST_DEVICE constexpr std::uint64_t index(int rank, unsigned lane) const {
    return static_cast<std::uint64_t>(rank) * lanes + lane;
  }

  // Of the rings of the node's rank at place `to`, the slot that takes a lane's chunk `count` from that at `from`.
  // Nothing comes from itself.
  MSCCLPP_HOST_DEVICE constexpr std::uint64_t slot(int to, int from, unsigned lane, std::uint64_t count) const {
    return index(from < to ? from : from - 1, lane) * slots + (count & (slots - 1));
  }

  // Of a chunk in its lane's outbox and inbox.
  MSCCLPP_HOST_DEVICE constexpr std::uint64_t farSlotBytes() const { return farHeaderBytes + farBytes; }
  MSCCLPP_HOST_DEVICE constexpr std::uint64_t farSlot(std::uint64_t count) const {
    return (count & (slots - 1)) * farSlotBytes();
  }
  // As messagePart() and messageLanes(), of a message with a far rank.
  MSCCLPP_HOST_DEVICE constexpr std::uint64_t farPart(std::uint64_t bytes) const {
    return maximum(farBytes, roundUp<std::uint64_t>(ceilDiv<std::uint64_t>(bytes, farLanes), 128));
  }

  // By the host, once, for so many ranks, of which `near` are on each node. Sizes are rounded up as noted; `lines`
  // stays 0 until it is known what the links do.
  static constexpr PointToPointLayout make(std::uint32_t ranks, std::uint32_t near,
                                           PointToPointRequirement const& need) {
    constexpr auto up = &WorkspaceLayout::alignUp;
    PointToPointLayout l{};
    l.ranks = ranks;
    l.lanes = need.lanes;
    l.slots = need.slots;
    l.packetLimit = need.packetLimit;
    l.stageBytes = up(need.stageBytes, 128);
    l.packetBytes = up(need.packetBytes, 1920);
    l.packetSlot = 2 * l.packetBytes;  // LL16 takes the most
    l.farBytes = up(need.farBytes, 128);
    l.farLanes = minimum(need.farLanes, need.lanes);
    auto const counters = up(8ull * ranks * l.lanes, 128);
    auto const rings = std::uint64_t{near - 1} * l.lanes * l.slots;
    auto const rounds = up(sizeof(RoundCounter) * ranks * l.lanes, 128);
    l.sent = 0;
    l.taken = l.sent + rounds;
    l.arrived = l.taken + rounds;
    l.freed = l.arrived + counters;
    l.headers = l.freed + counters;
    l.packets = up(l.headers + 16 * rings, 4096);
    l.total = l.packets + rings * l.packetSlot;
    l.stages = rings * l.stageBytes;
    return l;
  }
};

// One lane of the messages with a far rank, in both directions.
struct FarLane {
  PortChannelHandle data;       // from outbox to inbox; `inbound` counts that rank's chunks which have arrived
  BasePortChannelHandle taken;  // `inbound` counts this rank's chunks which that rank has taken
  std::byte* outbox;            // `slots` of them
  std::byte const* inbox;       // likewise
  std::uint64_t outboxOffset;   // where `outbox` lies in the memory that `data` puts from
  std::uint64_t inboxOffset;    // where that rank's inbox lies in the memory that it puts into
};

struct PointToPointHandle {
  std::int32_t rank;  // of this process among the ranks that exchange messages
  std::int32_t size;
  Watch* watch;  // of this rank
  PointToPointLayout layout;
  FarLane const* far;             // [far ranks][farLanes]
  std::byte* bases[maxTeamSize];  // by rank; [rank] is the own memory, entries of far ranks and from `size` on are null
  // Of slots of plain memory; null where those of that rank are not there yet, or not mapped.
  std::byte* stages[maxTeamSize];
  std::uint8_t places[maxTeamSize];  // of a rank among those of this node; of a far one among the far ones

  // Whether `peer`, a rank of these, is on another host, to which a proxy sends.
  MSCCLPP_HOST_DEVICE constexpr bool isFar(int peer) const { return bases[peer] == nullptr; }
  // Bytes of a message with `peer` in each of its lanes but the last.
  MSCCLPP_HOST_DEVICE constexpr std::uint64_t partOf(int peer, std::uint64_t bytes) const {
    return isFar(peer) ? layout.farPart(bytes) : messagePart(layout.lanes, bytes);
  }
};

// One message to, or from, each peer; a kernel gets it by value.
struct Messages {
  // A message, where it comes from and where it goes to.
  struct Send {
    void const* data;
    std::uint64_t bytes;
  };
  struct Recv {
    void* data;
    std::uint64_t bytes;
  };
  Send send[maxTeamSize];  // by peer
  Recv recv[maxTeamSize];
  // Which of them there are; a message may have no bytes.
  std::uint64_t sends[(maxTeamSize + 63) / 64];
  std::uint64_t recvs[(maxTeamSize + 63) / 64];

  // At most one of each with a peer, which is a rank of the links.
  MSCCLPP_HOST_DEVICE constexpr void addSend(int peer, void const* data, std::uint64_t bytes) {
    send[peer] = {data, bytes};
    sends[peer / 64] |= std::uint64_t{1} << (peer % 64);
  }
  MSCCLPP_HOST_DEVICE constexpr void addRecv(int peer, void* data, std::uint64_t bytes) {
    recv[peer] = {data, bytes};
    recvs[peer / 64] |= std::uint64_t{1} << (peer % 64);
  }
  MSCCLPP_HOST_DEVICE constexpr bool hasSend(int peer) const { return ((sends[peer / 64] >> (peer % 64)) & 1) != 0; }
  MSCCLPP_HOST_DEVICE constexpr bool hasRecv(int peer) const { return ((recvs[peer / 64] >> (peer % 64)) & 1) != 0; }
};
static_assert(sizeof(Messages) + sizeof(PointToPointHandle) <= 4096, "the parameters of a kernel");

}  // namespace mscclpp::layout
