// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Messages between pairs of ranks: each rank sends at most one message to each peer and receives at most one from each,
// and only the ranks of a message need to call. The group of calls of one kernel goes on together, so ranks may send to
// each other in any pattern, in messages of any size.
//
//   SendRecv<LL128>{links}(thisGrid(), messages);      // LL16 where links may tear lines: links.layout.lines is 0
//
// All threads of the blocks call. Of the blocks, at least 2, half send and the others receive. Each lane of a message
// is the work of one block at either end: blocks beyond twice the lanes of all messages have nothing to do, and one
// that has several lanes works on one after the other. Ranks may launch different grids. All blocks of all ranks take
// lanes in the same order, nearest peer first, lowest lane first: of the lanes that are not finished, nobody who works
// on the first of them waits for another. Therefore nothing stands still that holds matching calls.
//
// A sender returns when its last chunks are in the receiver's memory, or will be; its data may be overwritten. What has
// come is known to the block that received it: in a kernel of several blocks that goes on with it, they meet first.
// Sender and receiver name the same bytes; who does not is told so by a report on the receiver's side. Small messages
// go as packets: one hop and no fence. Others are copied into the receiver's ring, and from there, by both sides at
// once. With ranks of other nodes all chunks go through memory of the sender, from which its proxy puts them into the
// receiver's. The receiver's proxy tells what was received, and a receiver returns when the sender's memory says so.
//
// What large messages cost: a chunk of c bytes takes a lane some 3 us beside its bytes, in which it stores nothing: the
// sender's fence, the signal, and with two slots the way of the other one back. The other lanes use the link meanwhile,
// so l lanes carry l c / (3 us + l c / 425 GB/s), as far as the link does. That is 192 GB/s with 32 lanes and chunks of
// 32 KiB, 229 with 44, 326 with 128, which measured 195, 229 and 330 on H100 and H200; 378 with 256, where a link of
// NVLink 4 takes 366. It is the bytes of all lanes' chunks that matter: 64 lanes of 128 KiB do as much (358 measured),
// with twice the blocks.
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/device/copy.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/packet_channel.hpp"
#include "mscclpp/device/packet_sweep.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/device/port_channel.hpp"
#include "mscclpp/device/round_counter.hpp"
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
    require(blocks.blockCount() >= layout::leastMessageBlocks, links_.watch, -1,
            std::uint64_t(layout::Misuse::fewBlocks), layout::leastMessageBlocks, blocks.blockCount());
    // Old packets of one format must not pass for packets of the other.
    require(P::wholeWarp == (links_.layout.lines != 0), links_.watch, -1, std::uint64_t(layout::Misuse::packetFormat),
            links_.layout.lines, P::wholeWarp);
    require(!P::wholeWarp || blocks.block().size() % 32 == 0, links_.watch, -1,
            std::uint64_t(layout::Misuse::blockThreads), 32, blocks.block().size());
    waitForPreviousKernel();
    copyOwn(blocks, messages);
    auto const group = blocks.block();
    using End = LaneEnd<decltype(blocks.block())>;
    unsigned const senders = blocks.blockCount() / 2;
    unsigned const block = blocks.blockRank();
    if (block < senders) {
      auto const wanted = [&](int peer) { return messages.hasSend(peer); };
      forEachLane(block, senders, 1, wanted, messages.send, [&](int peer, unsigned lane) {
        End const end{links_, group, peer, lane};
        if (links_.isFar(peer)) {
          sendFar(end, messages.send[peer]);
        } else {
          send(end, messages.send[peer]);
        }
      });
    } else {
      auto const wanted = [&](int peer) { return messages.hasRecv(peer); };
      forEachLane(block - senders, blocks.blockCount() - senders, -1, wanted, messages.recv,
                  [&](int peer, unsigned lane) {
                    End const end{links_, group, peer, lane};
                    if (links_.isFar(peer)) {
                      receiveFar(end, messages.recv[peer]);
                    } else {
                      receive(end, messages.recv[peer]);
                    }
                  });
    }
  }

 private:
  // Calls work(peer, lane) for each lane that is the share of `place` among so many, of the messages that are
  // wanted, from the nearest peer in that direction (1: ahead, -1: behind) on. Whose share a lane is depends on nothing
  // else, so it remains with its block from call to call.
  template <class Wanted, class Message, class Work>
  MSCCLPP_DEVICE void forEachLane(unsigned place, unsigned places, int direction, Wanted const& wanted,
                                  Message const (&of)[maxTeamSize], Work const& work) const {
    // Peers begin at different places, so that small messages to several do not meet in one.
    auto const shift = maximum(places / maximum(static_cast<unsigned>(links_.size - 1), 1u), 1u) % places;
    auto first = place;
    for (int distance = 1; distance < links_.size; ++distance) {
      int const peer = (links_.rank + direction * distance + links_.size) % links_.size;
      if (wanted(peer)) {
        auto const bytes = of[peer].bytes;
        auto const each = links_.partOf(peer, bytes);
        for (auto lane = first; lane == 0 || lane * each < bytes; lane += places) {
          work(peer, lane);
        }
      }
      first = first >= shift ? first - shift : first + places - shift;
    }
  }

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

  // What a message has in one lane, in chunks.
  struct Part {
    MSCCLPP_DEVICE Part(layout::PointToPointLayout const& layout, std::uint64_t bytes, unsigned lane)
        : packets(bytes <= layout.packetLimit) {
      auto const part = layout::messagePart(layout.lanes, bytes);
      chunk = packets ? layout.packetBytes : layout::messageChunk(layout.stageBytes, part);
      begin = part * lane;
      end = minimum(bytes, begin + part);
    }
    bool packets;
    std::uint64_t chunk;  // bytes of each but the last
    std::uint64_t begin;
    std::uint64_t end;
  };
  // The same of a message with a far rank, whose chunks are all alike.
  struct FarPart {
    std::uint64_t begin, end;

    MSCCLPP_DEVICE FarPart(layout::PointToPointLayout const& layout, std::uint64_t bytes, unsigned lane)
        : begin(layout.farPart(bytes) * lane), end(minimum(bytes, begin + layout.farPart(bytes))) {}
  };

  // One end of a lane between this rank and a peer.
  template <class G>
  struct LaneEnd {
    layout::PointToPointHandle const& links;
    G const group;
    int const peer;
    unsigned const lane;

    // Of the array that `rank` keeps for its peer `of`.
    template <class Counter = std::uint64_t>
    MSCCLPP_DEVICE Counter* counter(int rank, std::uint64_t array, int of) const {
      return reinterpret_cast<Counter*>(links.bases[rank] + array) + links.layout.index(of, lane);
    }
    // How many chunks of the lane there have been in all calls; only this end's block reads and writes it.
    MSCCLPP_DEVICE std::uint64_t recall(std::uint64_t array) const {
      group.sync();
      auto const count = loadRounds(counter<layout::RoundCounter>(links.rank, array, peer));
      requireTogether(links.watch, count.astray);
      return count.rounds;
    }
    MSCCLPP_DEVICE void keep(std::uint64_t array, std::uint64_t count) const {
      if (group.rank() == 0) storeRounds(counter<layout::RoundCounter>(links.rank, array, peer), count);
    }
    // By one thread: what the counter says that the peer keeps here.
    MSCCLPP_DEVICE std::uint64_t look(std::uint64_t array) const {
      return load<Order::acquire, Scope::system>(counter(links.rank, array, peer));
    }
    // The same, once it says at least so many.
    MSCCLPP_DEVICE std::uint64_t await(layout::WaitKind kind, std::uint64_t array, std::uint64_t count) const {
      std::uint64_t found = 0;
      poll(links.watch, {kind, peer, lane, count}, [&](std::uint64_t& seen) {
        seen = found = look(array);
        return seen >= count;
      });
      return found;
    }
    // On behalf of the group, of which each thread has done its part.
    MSCCLPP_DEVICE void tell(std::uint64_t array, std::uint64_t count) const {
      syncWhole(group);
      if (group.rank() == 0) store<Order::release, Scope::system>(counter(peer, array, links.rank), count);
    }
    // Of chunk `count`, in the ring that `to` keeps for `from`.
    MSCCLPP_DEVICE std::byte* slot(int to, int from, std::uint64_t region, std::uint64_t count,
                                   std::uint64_t bytes) const {
      return links.bases[to] + region + place(to, from, count) * bytes;
    }
    // The same of plain memory.
    MSCCLPP_DEVICE std::byte* stage(int to, int from, std::uint64_t count) const {
      return links.stages[to] + place(to, from, count) * links.layout.stageBytes;
    }
    MSCCLPP_DEVICE std::uint64_t place(int to, int from, std::uint64_t count) const {
      return links.layout.slot(links.places[to], links.places[from], lane, count);
    }
    // Where the peer is far.
    MSCCLPP_DEVICE layout::FarLane const& far() const {
      return links.far[links.places[peer] * links.layout.farLanes + lane];
    }
    // By one thread: until the peer's proxy has counted so many.
    MSCCLPP_DEVICE void awaitFar(layout::WaitKind kind, layout::BasePortChannelHandle const& channel,
                                 std::uint64_t count) const {
      std::uint64_t found = 0;
      poll(links.watch, {kind, peer, lane, count}, [&](std::uint64_t& seen) {
        seen = found = load<Order::acquire, Scope::system>(channel.inbound);
        return found >= count;
      });
      if (found >= layout::abandonedSignal) [[unlikely]]
        giveUp(links.watch, {layout::WaitKind::abandoned, peer, channel.semaphore, count}, found, 0);
    }
  };

  template <class G>
  MSCCLPP_DEVICE static void send(LaneEnd<G> const& end, layout::Messages::Send const& message) {
    auto const& [links, group, peer, lane] = end;
    auto const& layout = links.layout;
    Part const part(layout, message.bytes, lane);
    auto done = end.recall(layout.sent);
    // Both loads are on their way together.
    auto taken = group.rank() == 0 ? end.look(layout.freed) : 0;
    auto at = part.begin;
    do {
      ++done;
      if (group.rank() == 0 && taken + layout.slots < done) {
        taken = end.await(layout::WaitKind::messageTaken, layout.freed, done - layout.slots);
      }
      syncWhole(group);
      auto const flag = packetFlag(done);
      if (at == part.begin && group.rank() == 0) {
        Payload<2> const header{
            {static_cast<std::uint32_t>(message.bytes), static_cast<std::uint32_t>(message.bytes >> 32)}};
        LL16::store(end.slot(peer, links.rank, layout.headers, done, 16), header, flag, true);
      }
      auto const bytes = minimum(part.chunk, part.end - at);
      auto const* const from = static_cast<std::byte const*>(message.data) + at;
      if (part.packets) {
        copyToPackets<P>(group, end.slot(peer, links.rank, layout.packets, done, layout.packetSlot), from, bytes, flag);
      } else {
        copy(group, end.stage(peer, links.rank, done), from, bytes);
        end.tell(layout.arrived, done);
      }
      at += bytes;
    } while (at < part.end);
    end.keep(layout.sent, done);
  }

  template <class G>
  MSCCLPP_DEVICE static void receive(LaneEnd<G> const& end, layout::Messages::Recv const& message) {
    auto const& [links, group, peer, lane] = end;
    auto const& layout = links.layout;
    Part const part(layout, message.bytes, lane);
    auto done = end.recall(layout.taken);
    auto at = part.begin;
    do {
      ++done;
      auto const flag = packetFlag(done);
      if (at == part.begin && group.rank() == 0) checkHeader(end, message.bytes, done, flag);
      auto const bytes = minimum(part.chunk, part.end - at);
      auto* const to = static_cast<std::byte*>(message.data) + at;
      if (part.packets) {
        auto const* const from = end.slot(links.rank, peer, layout.packets, done, layout.packetSlot);
        copyFromPackets<P>(group, to, from, bytes, flag, links.watch, peer);
      } else {
        if (group.rank() == 0) end.await(layout::WaitKind::message, layout.arrived, done);
        syncWhole(group);
        copy(group, to, end.stage(links.rank, peer, done), bytes);
      }
      if (done >= layout::sweepPeriod && done % layout::sweepPeriod < layout.slots) clearSlot(end, done);
      end.tell(layout.freed, done);
      at += bytes;
    } while (at < part.end);
    end.keep(layout.taken, done);
  }

  template <class G>
  MSCCLPP_DEVICE static void sendFar(LaneEnd<G> const& end, layout::Messages::Send const& message) {
    auto const& [links, group, peer, lane] = end;
    auto const& layout = links.layout;
    auto const& far = end.far();
    FarPart const part(layout, message.bytes, lane);
    auto done = end.recall(layout.sent);
    auto at = part.begin;
    do {
      ++done;
      // What was taken has left the outbox, too.
      if (group.rank() == 0 && done > layout.slots) {
        end.awaitFar(layout::WaitKind::messageTaken, far.taken, done - layout.slots);
      }
      syncWhole(group);
      auto const slot = layout.farSlot(done);
      auto* const out = far.outbox + slot;
      auto const bytes = minimum(layout.farBytes, part.end - at);
      if (group.rank() == 0) *reinterpret_cast<std::uint64_t*>(out) = message.bytes;
      copy(group, out + layout::farHeaderBytes, static_cast<std::byte const*>(message.data) + at, bytes);
      PortChannelDeviceHandle(far.data).putWithSignal(group, far.inboxOffset + slot, far.outboxOffset + slot,
                                                      layout::farHeaderBytes + bytes);
      at += bytes;
    } while (at < part.end);
    end.keep(layout.sent, done);
  }

  template <class G>
  MSCCLPP_DEVICE static void receiveFar(LaneEnd<G> const& end, layout::Messages::Recv const& message) {
    auto const& [links, group, peer, lane] = end;
    auto const& layout = links.layout;
    auto const& far = end.far();
    BasePortChannelDeviceHandle const told(far.taken);
    FarPart const part(layout, message.bytes, lane);
    auto done = end.recall(layout.taken);
    auto at = part.begin;
    do {
      ++done;
      auto const* const in = far.inbox + layout.farSlot(done);
      if (group.rank() == 0) {
        end.awaitFar(layout::WaitKind::message, far.data.base, done);
        auto const bytes = *reinterpret_cast<std::uint64_t const*>(in);
        requireAlone(bytes == message.bytes, links.watch, peer, std::uint64_t(layout::Misuse::messageBytes),
                     message.bytes, bytes);
      }
      syncWhole(group);
      auto const bytes = minimum(layout.farBytes, part.end - at);
      copy(group, static_cast<std::byte*>(message.data) + at, in + layout::farHeaderBytes, bytes);
      told.signal(group);
      at += bytes;
    } while (at < part.end);
    // Nothing of this kernel is on its way to the sender any more when that destroys what it lies in.
    told.flush(group);
    end.keep(layout.taken, done);
  }

  // What old packets have left in the slot of a chunk that has been taken, before the sender may use it again: their
  // flags come again after layout::flagPeriod chunks.
  template <class G>
  MSCCLPP_DEVICE static void clearSlot(LaneEnd<G> const& end, std::uint64_t count) {
    auto const& layout = end.links.layout;
    syncWhole(end.group);
    auto const clear = [&](std::uint64_t region, std::uint64_t bytes) {
      clearSlots(end.group, end.slot(end.links.rank, end.peer, region, count, bytes), bytes);
    };
    clear(layout.headers, 16);
    clear(layout.packets, layout.packetSlot);
  }

  // By one thread: the message that begins with chunk `count` has the bytes that are expected.
  template <class G>
  MSCCLPP_DEVICE static void checkHeader(LaneEnd<G> const& end, std::uint64_t expected, std::uint64_t count,
                                         std::uint32_t flag) {
    auto const& links = end.links;
    Payload<2> header{};
    auto const* const from = end.slot(links.rank, end.peer, links.layout.headers, count, 16);
    poll(links.watch, {layout::WaitKind::message, end.peer, end.lane, count}, [&](std::uint64_t& seen) {
      auto const raw = LL16::load(from);
      header = LL16::payloadOf(raw);
      seen = count - 1;
      return !LL16::lacks(raw, flag);
    });
    auto const bytes = header.word[0] | std::uint64_t{header.word[1]} << 32;
    requireAlone(bytes == expected, links.watch, end.peer, std::uint64_t(layout::Misuse::messageBytes), expected,
                 bytes);
  }

  layout::PointToPointHandle const& links_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
