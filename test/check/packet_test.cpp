// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Planted faults of packets: data that is not where its flag is, and slots written again too early.
#include "check/harness.hpp"
#include "mscclpp/algorithms/transport/packet_transport.hpp"
#include "mscclpp/device/packet_channel.hpp"

using namespace check_test;

namespace {

// Lines of 128 bytes over a link that delivers 16 bytes at a time. The collectives refuse such a team; these packets
// are sent without one.
template <Fault F>
struct LinesOverTornLink {
  using Packet = std::conditional_t<planted<F>, LL128, LL16>;

  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto const lane = thisWarp().rank();
    auto* const outbox = p.memory[p.peer()] + lane * Packet::slotBytes;
    auto const* const inbox = p.memory[p.rank] + lane * Packet::slotBytes;
    Payload<Packet::words> payload{};
    payload.word[0] = 40 + lane;
    Packet::store(outbox, payload, 1, true);                                                          // <- line store
    payload = awaitPacket<Packet>(nullptr, inbox, 1, {layout::WaitKind::packet, p.peer(), lane, 1});  // <- line load
    expect(payload.word[0] == 40 + lane, "a torn line");
  }
};

// Of a 16-byte packet, only the first half's flag is looked at.
template <Fault F>
struct OneFlagOfTwo {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto const at = thisBlock().rank() * LL16::slotBytes;
    LL16::store(p.memory[p.peer()] + at, Payload<2>{{5, 6}}, 1, true);
    Words4 raw{};
    poll(nullptr, {layout::WaitKind::packet, p.peer(), thisBlock().rank(), 1}, [&](std::uint64_t& seen) {
      raw = LL16::load(p.memory[p.rank] + at);
      seen = raw.w[1];
      return raw.w[1] == 1 && (planted<F> || raw.w[3] == 1);
    });
    expect(raw.w[0] == 5 && raw.w[2] == 6, "half a packet");
  }
};

// A value in two packets; the second one's arrival says nothing of the first.
template <Fault F>
struct SecondPacketOnly {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto* const outbox = p.memory[p.peer()];
    auto const* const inbox = p.memory[p.rank];
    LL8::store(outbox, Payload<1>{{5}}, 1, true);
    LL8::store(outbox + 8, Payload<1>{{6}}, 1, true);
    auto const second = receive(inbox + 8);
    auto const first = planted<F> ? LL8::load(inbox).w[0] : receive(inbox);
    expect(first == 5 && second == 6, "half a value");
  }

 private:
  MSCCLPP_DEVICE static std::uint32_t receive(std::byte const* slot) {
    return awaitPacket<LL8>(nullptr, slot, 1, {layout::WaitKind::packet, -1, 0, 1}).word[0];
  }
};

// A packet carries its own data and orders no other.
template <Fault F>
struct DataBesidePacket {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto* const outbox = p.memory[p.peer()];
    if (p.rank == 0) {
      *p.data(1, 16) = 7;  // <- data beside a packet
      if constexpr (!planted<F>) fence<Order::acquireRelease, Scope::system>();
      LL8::store(outbox, Payload<1>{{16}}, 1, true);
    } else {
      auto const where = awaitPacket<LL8>(nullptr, p.memory[1], 1, {layout::WaitKind::packet, 0, 0, 1});
      if constexpr (!planted<F>) fence<Order::acquireRelease, Scope::system>();
      expect(*p.data(1, where.word[0]) == 7, "stale data");  // <- use beside a packet
    }
  }
};

// Packets go into memory that is also read as plain words, one block of threads later.
template <Fault F>
struct UnpackedByOthers {
  void operator()(Rank& rank) const {
    ChannelPair const pair(rank);
    launch(rank.stream, {.blocks = 1, .threads = 32}, Kernel{}, pair.channel.deviceHandle(), pair.own.data());
    rank.synchronize();
  }
  struct Kernel {
    MSCCLPP_DEVICE void operator()(DeviceHandle<MemoryChannel> const& channel, std::uint32_t const* own) const {
      channel.putPackets(thisBlock(), 0, 512, 256, 1);
      channel.unpackPackets(thisBlock(), 0, 768, 256, 1);  // <- unpack
      if constexpr (!planted<F>) thisBlock().sync();
      auto const other = thisBlock().size() - 1 - thisBlock().rank();
      expect(own[192 + other] == 0, "not unpacked");  // <- unpacked use
    }
  };
};

// The ranks 0 and 2 have nothing for each other, and leave each other out: then a rank may be two rounds ahead.
template <Fault F>
struct SilentPair {
  void operator()(Rank& rank) const {
    Team const team(rank.communicator, Tr::requirement(1, 32, 3));
    launch(rank.stream, {.blocks = 1, .threads = 32}, Kernel{}, team.deviceHandle());
    rank.synchronize();
  }

  using Tr = PacketTransport<LL16>;
  struct Kernel {
    MSCCLPP_DEVICE void operator()(DeviceTeam const& team) const {
      auto const blocks = thisGrid();
      Tr::Session<GridGroup> session(team, blocks, 3);
      session.open();
      for (std::uint32_t round = 1; round <= 4; ++round) {
        session.beginRound();
        auto const thread = blocks.block().rank();
        auto const meets = [&](int peer) { return !planted<F> || team.rank == 1 || peer == 1; };
        for (int peer = 0; peer < team.size; ++peer) {
          if (peer == team.rank) continue;
          session.put(team.workspace(peer), static_cast<unsigned>(team.rank), thread, Payload<2>{{round, thread}},
                      meets(peer));
        }
        if (round == 4) session.commit();
        session.exchange(0);
        for (int peer = 0; peer < team.size; ++peer) {
          if (peer == team.rank) continue;
          Source const sources[1] = {{peer, static_cast<unsigned>(peer), thread, meets(peer)}};
          Payload<2> values[1];
          session.receive(sources, values);
          expect(!meets(peer) || values[0].word[0] == round, "another round's packet");
        }
        if (round != 4) session.endRound();
      }
    }
  };
};

}  // namespace

TEST_CASE("LL128 over a link that tears lines") {
  checkKernel<LinesOverTornLink>({FindingKind::tornLine}, {.machine = {.linesArriveWhole = false}});
}

TEST_CASE("half of a packet taken for the whole") {
  checkKernel<OneFlagOfTwo>({FindingKind::kernelFailure, {}, "half a packet"});
}

TEST_CASE("two packets, and only the second is waited for") {
  checkKernel<SecondPacketOnly>({FindingKind::kernelFailure, {}, "half a value"}, {.threads = 1});
}

TEST_CASE("data beside a packet, with no fence") {
  checkKernel<DataBesidePacket>({FindingKind::race, {"data beside a packet", "use beside a packet"}}, {.threads = 1});
}

TEST_CASE("a session leaves a peer out of its rounds") {
  checkProgram<SilentPair>({FindingKind::hostFailure, {}, "received nothing from rank"}, {.ranks = 3});
}

TEST_CASE("unpacked data read by other threads without a barrier") {
  checkProgram<UnpackedByOthers>({FindingKind::race, {"unpack", "unpacked use"}});
}
