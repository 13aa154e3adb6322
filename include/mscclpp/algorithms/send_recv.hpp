// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Messages between pairs of ranks: each rank sends at most one message to each peer and receives at most one from each,
// and only the ranks of a message need to call. The group of calls of one kernel goes on together, so ranks may send to
// each other in any pattern, in messages of any size.
//
//   SendRecv<LL128>{links}(thisGrid(), messages);      // LL16 where links may tear lines: links.layout.lines is 0
//
// All threads of the blocks call. Of the grid, layout.lanes blocks make a team that works on one distance between ranks
// after the other, so a grid of a multiple of layout.lanes blocks works on several; ranks may launch different grids.
// A block sends a chunk to the rank ahead of it and takes one from the rank behind it in turn: the n-th chunk that a
// rank waits for is sent before the sender waits for anything that needs more than n. Therefore no order of ranks can
// stand still that holds matching calls.
//
// A sender returns when its last chunks are in the receiver's memory, or will be; its data may be overwritten. Sender
// and receiver name the same bytes; who does not is told so by a report on the receiver's side. Small messages go as
// packets: one hop and no fence. Others are copied into the receiver's ring, and from there, by both sides at once.
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/device/bits.hpp"
#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/packet_channel.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/layout/point_to_point_handle.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

template <PacketFormat P>
class SendRecv {
  static_assert(std::same_as<P, LL16> || std::same_as<P, LL128>, "messages go as LL16 or LL128 packets");

 public:
  MSCCLPP_DEVICE explicit SendRecv(layout::PointToPointHandle const& links) : links_(links) {}

  template <BlockSet B>
  MSCCLPP_DEVICE void operator()(B const& blocks, layout::Messages const& messages) const {
    auto const& layout = links_.layout;
    require(blocks.blockCount() >= layout.lanes, links_.watch, -1, std::uint64_t(layout::Misuse::fewBlocks),
            layout.lanes, blocks.blockCount());
    // Old packets of one format must not pass for packets of the other.
    require(P::wholeWarp == (layout.lines != 0), links_.watch, -1, std::uint64_t(layout::Misuse::packetFormat),
            layout.lines, P::wholeWarp);
    require(!P::wholeWarp || blocks.block().size() % 32 == 0, links_.watch, -1,
            std::uint64_t(layout::Misuse::blockThreads), 32, blocks.block().size());
    waitForPreviousKernel();
    copyOwn(blocks, messages);
    auto const group = blocks.block();
    auto const lane = blocks.blockRank() % layout.lanes;
    auto const team = static_cast<int>(blocks.blockRank() / layout.lanes);
    auto const teams = static_cast<int>(blocks.blockCount() / layout.lanes);
    if (team >= teams) return;
    for (int distance = 1 + team; distance < links_.size; distance += teams) {
      int const ahead = (links_.rank + distance) % links_.size;
      int const behind = (links_.rank - distance + links_.size) % links_.size;
      Sender<decltype(group)> sender(links_, group, ahead, lane, messages);
      Receiver<decltype(group)> receiver(links_, group, behind, lane, messages);
      while (sender.more() || receiver.more()) {
        if (sender.more()) sender.next();
        if (receiver.more()) receiver.next();
      }
      sender.commit();
      receiver.commit();
    }
  }

 private:
  template <class B>
  MSCCLPP_DEVICE void copyOwn(B const& blocks, layout::Messages const& messages) const {
    int const own = links_.rank;
    bool const both = messages.hasSend(own) && messages.hasRecv(own);
    require(both || (!messages.hasSend(own) && !messages.hasRecv(own)), links_.watch, own,
            std::uint64_t(layout::Misuse::messageBytes), 0, 0);
    if (!both) return;
    auto const& in = messages.send[own];
    auto const& out = messages.recv[own];
    require(in.bytes == out.bytes, links_.watch, own, std::uint64_t(layout::Misuse::messageBytes), out.bytes, in.bytes);
    if (in.data != out.data) copy(blocks, out.data, in.data, in.bytes);
  }

  // The chunks of one message that are of one lane.
  class Chunks {
   public:
    Chunks() = default;
    MSCCLPP_DEVICE Chunks(layout::PointToPointLayout const& layout, std::uint64_t bytes, unsigned lane)
        : packets_(bytes <= layout.packetLimit), size_(packets_ ? layout.packetBytes : layout.stageBytes) {
      // Lanes take equal parts, as far as these are not too small to be worth a block.
      constexpr std::uint64_t least = 1920;
      auto const part = roundUp<std::uint64_t>(maximum(ceilDiv<std::uint64_t>(bytes, layout.lanes), least), 128);
      at_ = part * lane;
      end_ = minimum(bytes, part * (lane + 1));
      // A message without bytes is a chunk as well.
      more_ = at_ < end_ || lane == 0;
    }
    MSCCLPP_DEVICE bool packets() const { return packets_; }
    MSCCLPP_DEVICE bool more() const { return more_; }
    MSCCLPP_DEVICE std::uint64_t offset() const { return at_; }
    MSCCLPP_DEVICE std::uint64_t bytes() const { return minimum(size_, end_ - at_); }
    MSCCLPP_DEVICE void next() {
      at_ += bytes();
      more_ = at_ < end_;
    }

   private:
    bool packets_ = false;
    bool more_ = false;
    std::uint64_t size_ = 0;
    std::uint64_t at_ = 0;
    std::uint64_t end_ = 0;
  };

  // One end of a lane between this rank and a peer, with the message that it works on.
  template <class G>
  struct LaneEnd {
    layout::PointToPointHandle const& links;
    G const group;
    int const peer;
    unsigned const lane;
    std::uint64_t total = 0;  // bytes of the message, of all lanes
    Chunks chunks = {};
    std::uint64_t done = 0;  // chunks of the lane so far, of all messages
    bool first = true;

    // `counted`: where this rank keeps `done`.
    MSCCLPP_DEVICE void begin(std::uint64_t bytes, std::uint64_t counted) {
      total = bytes;
      chunks = Chunks(links.layout, bytes, lane);
      group.sync();
      done = load<Order::relaxed, Scope::device>(counter(links.rank, counted, peer));
    }
    MSCCLPP_DEVICE void commit(std::uint64_t counted) const {
      if (first || group.rank() != 0) return;
      store<Order::relaxed, Scope::device>(counter(links.rank, counted, peer), done);
    }
    MSCCLPP_DEVICE std::uint64_t* counter(int rank, std::uint64_t array, int of) const {
      return reinterpret_cast<std::uint64_t*>(links.bases[rank] + array) + links.layout.index(of, lane);
    }
    // Returns when the counter that the peer keeps here says at least so many.
    MSCCLPP_DEVICE void await(layout::WaitKind kind, std::uint64_t array, std::uint64_t count) const {
      auto const* const word = counter(links.rank, array, peer);
      poll(links.watch, {kind, peer, lane, count}, [&](std::uint64_t& seen) {
        seen = load<Order::acquire, Scope::system>(word);
        return seen >= count;
      });
    }
    MSCCLPP_DEVICE void tell(std::uint64_t array) const {
      store<Order::release, Scope::system>(counter(peer, array, links.rank), done);
    }
    // Slot of chunk `done` in the ring that `to` keeps for `from`.
    MSCCLPP_DEVICE std::byte* slot(int to, int from, std::uint64_t region, std::uint64_t bytes) const {
      auto const& layout = links.layout;
      return links.bases[to] + region + (layout.index(from, lane) * layout.slots + done % layout.slots) * bytes;
    }
  };

  template <class G>
  class Sender {
   public:
    MSCCLPP_DEVICE Sender(layout::PointToPointHandle const& links, G const& group, int peer, unsigned lane,
                          layout::Messages const& messages)
        : end_{links, group, peer, lane} {
      if (!messages.hasSend(peer)) return;
      data_ = static_cast<std::byte const*>(messages.send[peer].data);
      end_.begin(messages.send[peer].bytes, links.layout.sent);
    }

    MSCCLPP_DEVICE bool more() const { return end_.chunks.more(); }

    MSCCLPP_DEVICE void next() {
      auto const& [links, group, peer, lane, total, chunks, done, first] = end_;
      auto const& layout = links.layout;
      ++end_.done;
      if (group.rank() == 0 && done > layout.slots) {
        end_.await(layout::WaitKind::messageTaken, layout.freed, done - layout.slots);
      }
      group.sync();
      auto const flag = packetFlag(done);
      if (first && group.rank() == 0) {
        Payload<2> const header{{static_cast<std::uint32_t>(total), static_cast<std::uint32_t>(total >> 32)}};
        LL16::store(end_.slot(peer, links.rank, layout.headers, 16), header, flag, true);
      }
      end_.first = false;
      auto const* const from = data_ + chunks.offset();
      if (chunks.packets()) {
        auto* const to = end_.slot(peer, links.rank, layout.packets, layout.packetSlot);
        copyToPackets<P>(group, to, from, chunks.bytes(), flag);
      } else {
        copy(group, end_.slot(peer, links.rank, layout.stage, layout.stageBytes), from, chunks.bytes());
        group.sync();
        if (group.rank() == 0) end_.tell(layout.arrived);
      }
      end_.chunks.next();
    }

    MSCCLPP_DEVICE void commit() const { end_.commit(end_.links.layout.sent); }

   private:
    LaneEnd<G> end_;
    std::byte const* data_ = nullptr;
  };

  template <class G>
  class Receiver {
   public:
    MSCCLPP_DEVICE Receiver(layout::PointToPointHandle const& links, G const& group, int peer, unsigned lane,
                            layout::Messages const& messages)
        : end_{links, group, peer, lane} {
      if (!messages.hasRecv(peer)) return;
      data_ = static_cast<std::byte*>(messages.recv[peer].data);
      end_.begin(messages.recv[peer].bytes, links.layout.taken);
    }

    MSCCLPP_DEVICE bool more() const { return end_.chunks.more(); }

    MSCCLPP_DEVICE void next() {
      auto const& [links, group, peer, lane, total, chunks, done, first] = end_;
      auto const& layout = links.layout;
      ++end_.done;
      auto const flag = packetFlag(done);
      if (first && group.rank() == 0) checkHeader(flag);
      end_.first = false;
      auto* const to = data_ + chunks.offset();
      if (chunks.packets()) {
        auto const* const from = end_.slot(links.rank, peer, layout.packets, layout.packetSlot);
        copyFromPackets<P>(group, to, from, chunks.bytes(), flag, links.watch, peer);
      } else {
        if (group.rank() == 0) end_.await(layout::WaitKind::message, layout.arrived, done);
        group.sync();
        copy(group, to, end_.slot(links.rank, peer, layout.stage, layout.stageBytes), chunks.bytes());
      }
      group.sync();
      if (group.rank() == 0) end_.tell(layout.freed);
      end_.chunks.next();
    }

    MSCCLPP_DEVICE void commit() const { end_.commit(end_.links.layout.taken); }

   private:
    MSCCLPP_DEVICE void checkHeader(std::uint32_t flag) const {
      auto const& links = end_.links;
      Payload<2> header{};
      auto const* const from = end_.slot(links.rank, end_.peer, links.layout.headers, 16);
      poll(links.watch, {layout::WaitKind::message, end_.peer, end_.lane, end_.done}, [&](std::uint64_t& seen) {
        auto const raw = LL16::load(from);
        header = LL16::payloadOf(raw);
        seen = end_.done - 1;
        return !LL16::lacks(raw, flag);
      });
      auto const theirs = header.word[0] | std::uint64_t{header.word[1]} << 32;
      require(theirs == end_.total, links.watch, end_.peer, std::uint64_t(layout::Misuse::messageBytes), end_.total,
              theirs);
    }

    LaneEnd<G> end_;
    std::byte* data_ = nullptr;
  };

  layout::PointToPointHandle const& links_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
