// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Planted faults of buffers that are used again, or read, while somebody else still works on them.
#include "check/harness.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/device/packet_channel.hpp"

using namespace check_test;

namespace {

// A pulling one-stage reduction: all write their input, meet, and read everybody's.
template <Fault F>
struct NoExitBarrier {
  void operator()(Rank& rank) const {
    SharedMemory const memory(rank);
    Team const team(rank.communicator, {.blocks = 1});
    launch(rank.stream, {.blocks = 1, .threads = 32}, Kernel{}, memory.peers(), team.deviceHandle());
    rank.synchronize();
  }

  struct Kernel {
    MSCCLPP_DEVICE void operator()(Peers const& p, DeviceTeam const& team) const {
      for (unsigned round = 1; round <= 2; ++round) {
        *p.data(p.rank, thisBlock().rank()) = round;  // <- input again
        teamBarrier(team, thisBlock());
        unsigned sum = 0;
        for (int r = 0; r < p.size; ++r) sum += *p.data(r, thisBlock().rank());  // <- peer reads input
        expect(sum == round * static_cast<unsigned>(p.size), "a wrong sum");
        if constexpr (!planted<F>) teamBarrier(team, thisBlock());
      }
    }
  };
};

// A pushing exchange, round after round. Two halves are enough: who writes a half again has heard in the round between
// that its reader is done.
template <Fault F>
struct OneStageHalf {
  void operator()(Rank& rank) const {
    SharedMemory const memory(rank);
    Team const team(rank.communicator, {.blocks = 1});
    launch(rank.stream, {.blocks = 1, .threads = 32}, Kernel{}, memory.peers(), team.deviceHandle());
    rank.synchronize();
  }

  struct Kernel {
    MSCCLPP_DEVICE void operator()(Peers const& p, DeviceTeam const& team) const {
      auto const block = thisBlock();
      for (unsigned epoch = 1; epoch <= 3; ++epoch) {
        unsigned const half = planted<F> ? 0 : epoch % 2 * block.size();
        *p.data(p.peer(), half + block.rank()) = epoch;  // <- slot again
        publishPhase(team, block, 0, epoch);
        awaitPhase(team, block, 0, epoch);
        expect(*p.data(p.rank, half + block.rank()) == epoch, "another round's data");  // <- slow reader
      }
    }
  };
};

template <Fault F, bool OneHalf, bool OneFlag>
struct PacketRounds {
  void operator()(Rank& rank) const { runOverChannel(rank, Kernel{}); }

  struct Kernel {
    MSCCLPP_DEVICE void operator()(DeviceHandle<MemoryChannel> const& channel) const {
      for (std::uint32_t round = 1; round <= 4; ++round) {
        std::uint64_t const slot = planted<F> && OneHalf ? 0 : round % 2 * 64;
        std::uint32_t const flag = planted<F> && OneFlag ? 1 : round;
        channel.putPackets(thisBlock(), slot, 512, 32, flag);
        channel.unpackPackets(thisBlock(), slot, 768, 32, flag);  // <- packet of which round
        thisBlock().sync();
      }
    }
  };
};
template <Fault F>
using OnePacketHalf = PacketRounds<F, true, false>;
template <Fault F>
using OnePacketFlag = PacketRounds<F, false, true>;

// What nobody took, as after a wait that was given up, stays in its slot until the next packet comes.
template <Fault F>
struct UntakenPacket {
  void operator()(Rank& rank) const { runOverChannel(rank, Kernel{}); }

  struct Kernel {
    MSCCLPP_DEVICE void operator()(DeviceHandle<MemoryChannel> const& channel) const {
      for (std::uint32_t round = 1; round <= 2; ++round) {
        std::uint32_t const flag = planted<F> ? 1 : round;
        channel.putPackets(thisBlock(), 0, 512, 32, flag);                     // <- packet of a round
        if (round == 2) channel.unpackPackets(thisBlock(), 0, 768, 32, flag);  // <- only reader
      }
    }
  };
};

}  // namespace

TEST_CASE("no exit barrier: the input is written again while a peer reads it") {
  checkProgram<NoExitBarrier>({FindingKind::race, {"input again", "peer reads input"}});
}

TEST_CASE("a stage that is not double-buffered is overwritten under a slow reader") {
  checkProgram<OneStageHalf>({FindingKind::race, {"slot again", "slow reader"}});
}

TEST_CASE("packets that are not double-buffered are lost") {
  checkProgram<OnePacketHalf>({FindingKind::deadLock, {}, "packet"});
}

TEST_CASE("a packet flag that is the same in every round") {
  checkProgram<OnePacketFlag>({FindingKind::repeatedEpoch, {"packet of which round"}});
}

TEST_CASE("a packet that nobody took has the flag of the next one") {
  checkProgram<UntakenPacket>({FindingKind::repeatedEpoch, {"packet of a round", "only reader"}});
}

namespace {

template <Fault F>
struct SharedSlot {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    unsigned const block = arch::blockIndex();
    unsigned const slot = planted<F> ? thisBlock().rank() : block * thisBlock().size() + thisBlock().rank();
    *p.data(p.peer(), slot) = block;  // <- slot of two blocks
    thisBlock().sync();
    if (thisBlock().rank() == 0) {
      reduceAdd<Order::release, Scope::system>(p.flag(p.peer(), block), 1);
      waitUntil<Order::acquire>(p.flag(p.rank, block), 1);
    }
    thisBlock().sync();
    expect(*p.data(p.rank, slot) == block, "another block's data");
  }
};

// Everybody puts its share into everybody's output, in place.
template <Fault F>
struct AllGatherMissesOne {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    for (int r = 0; r < p.size; ++r) {
      *p.data(r, static_cast<unsigned>(p.rank)) = 9;  // <- share
      store<Order::release, Scope::system>(p.flag(r, static_cast<unsigned>(p.rank)), 1);
    }
    int const awaited = planted<F> ? p.size - 1 : p.size;
    for (int r = 0; r < awaited; ++r) waitUntil<Order::acquire>(p.flag(p.rank, static_cast<unsigned>(r)), 1);
    for (int r = 0; r < p.size; ++r) {
      expect(*p.data(p.rank, static_cast<unsigned>(r)) == 9, "a share is missing");  // <- output use
    }
  }
};

// A ring of two slots from rank 0 to rank 1; the producer may be two ahead.
template <Fault F>
struct RingCredit {
  static constexpr unsigned slots = 2;
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    constexpr unsigned ahead = planted<F> ? slots + 1 : slots;
    for (unsigned i = 0; i < 6; ++i) {
      if (p.rank == 0) {
        if (i >= ahead) waitUntil<Order::acquire>(p.flag(0), i + 1 - ahead);
        *p.data(1, i % slots) = i;  // <- ring put
        store<Order::release, Scope::system>(p.flag(1), i + 1);
      } else {
        waitUntil<Order::acquire>(p.flag(1), i + 1);
        expect(*p.data(1, i % slots) == i, "another item");  // <- ring take
        store<Order::release, Scope::system>(p.flag(0), i + 1);
      }
    }
    if (p.rank == 0) waitUntil<Order::acquire>(p.flag(0), 6);
  }
};

}  // namespace

TEST_CASE("one scratch slot for two blocks") {
  checkKernel<SharedSlot>({FindingKind::race, {"slot of two blocks", "slot of two blocks"}}, {.blocks = 2});
}

TEST_CASE("an all-gather in place that waits for all peers but one") {
  checkKernel<AllGatherMissesOne>({FindingKind::race, {"share", "output use"}}, {.ranks = 3, .threads = 1});
}

TEST_CASE("a ring with one credit too many") {
  checkKernel<RingCredit>({FindingKind::race, {"ring put", "ring take"}}, {.threads = 1});
}

namespace {

// Rank 1 gets from rank 0's buffer. Rank 0's kernel may end before, and its host then fills the buffer.
template <Fault F>
struct HostFillsTooEarly {
  void operator()(Rank& rank) const {
    SharedMemory const memory(rank);
    if (rank.rank == 1) launch(rank.stream, {.blocks = 1, .threads = 32}, Get{}, memory.peers());
    rank.communicator.synchronize(rank.stream);
    if constexpr (!planted<F>) rank.communicator.bootstrap()->barrier();
    if (rank.rank == 0) memory.own().fill(1);  // <- host fills
    rank.communicator.bootstrap()->barrier();
  }

  struct Get {
    MSCCLPP_DEVICE void operator()(Peers const& p) const {
      expect(*p.data(0, thisBlock().rank()) == 0, "the next step's data");  // <- get under fill
    }
  };
};

// As above, with a kernel: the next one of rank 0's stream writes what rank 1 reads. Streams order one device only.
template <Fault F>
struct KernelLeavesTooEarly {
  void operator()(Rank& rank) const {
    SharedMemory const memory(rank);
    launch(rank.stream, {.blocks = 1, .threads = 1}, Exchange{}, memory.peers());
    if (rank.rank == 0) launch(rank.stream, {.blocks = 1, .threads = 1}, Next{}, memory.peers());
    rank.synchronize();
  }

  struct Exchange {
    MSCCLPP_DEVICE void operator()(Peers const& p) const {
      if (p.rank == 0) {
        *p.data(0) = 4;
        store<Order::release, Scope::system>(p.flag(1), 1);
        if constexpr (!planted<F>) waitUntil<Order::acquire>(p.flag(0), 1);
      } else {
        waitUntil<Order::acquire>(p.flag(1), 1);
        expect(*p.data(0) == 4, "the next kernel's data");  // <- get under kernel
        if constexpr (!planted<F>) store<Order::release, Scope::system>(p.flag(0), 1);
      }
    }
  };
  struct Next {
    MSCCLPP_DEVICE void operator()(Peers const& p) const {
      *p.data(0) = 5;  // <- next kernel writes
    }
  };
};

}  // namespace

TEST_CASE("the host fills a buffer that a peer still reads") {
  checkProgram<HostFillsTooEarly>({FindingKind::race, {"host fills", "get under fill"}});
}

TEST_CASE("a kernel ends before its peer has taken the data, and the next one overwrites it") {
  checkProgram<KernelLeavesTooEarly>({FindingKind::race, {"next kernel writes", "get under kernel"}});
}
