// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Flags of packets come again after 2^31 rounds: what lies in a slot since then must not pass for new. Counters are set
// to just before, since nobody waits for as many.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "mscclpp/algorithms/collective/allreduce.hpp"
#include "mscclpp/algorithms/collective/send_recv.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/point_to_point.hpp"
#include "support/rounds.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

// So long that whoever takes old packets for this kernel's has done so.
MSCCLPP_DEVICE void comeLate(unsigned* word, bool late) {
  for (unsigned i = 0; late && i < 20'000; ++i) (void)load<Order::relaxed, Scope::device>(word);
}

template <class Collective>
struct LateKernel {
  MSCCLPP_DEVICE void operator()(DeviceTeam const& team, float* data, std::size_t count, unsigned* word,
                                 bool late) const {
    comeLate(word, late);
    Collective{team}(thisGrid(), View{data, count}, View{data, count});
  }
};

struct BarrierKernel {
  MSCCLPP_DEVICE void operator()(DeviceTeam const& team) const { teamBarrier(team, thisGrid()); }
};

struct RingKernel {
  MSCCLPP_DEVICE void operator()(DeviceTeam const& team, layout::WindowHandle const& window, std::size_t count) const {
    SymmetricView<float> const data(window, 0, count);
    AllReduce<RingSchedule, StagePieces<>, Sum>{team}(thisGrid(), View{data.at(team.rank), count}, data);
  }
};

constexpr int ranks = 3;
constexpr unsigned blocks = 3;
constexpr std::size_t large = 190;     // one round of all blocks
constexpr std::size_t longest = 4000;  // many rounds of one

// A team whose workspaces hold an old round of `Collective`, and what is to be done before the round that has its
// flags.
template <class Collective>
class Aged {
 public:
  explicit Aged(Rank& rank)
      : rank_(rank),
        team_(rank.communicator,
              {.blocks = blocks, .packetBytes = 1 << 14, .lineBytes = 1 << 14, .stageBytes = 1 << 14}),
        data_(rank.device, longest),
        word_(rank.device, 1) {
    setRounds(first - 1);
    CHECK(reduce(large, 1, false) == 1 * (0 + 1 + 2));
    setRounds(swept - 1);
  }

  static constexpr std::uint64_t first = 4;
  static constexpr std::uint64_t swept = layout::flagPeriod - layout::sweepPeriod;

  template <class Kernel, class... A>
  void run(unsigned grid, Kernel const& kernel, A... arguments) {
    rank_.meet();
    launch(rank_.stream, {.blocks = grid, .threads = 64}, kernel, team_.deviceHandle(), arguments...);
    rank_.synchronize();
  }

  // The value that all elements have then; -1 where they differ. Each rank gives `factor` times its number.
  float reduce(std::size_t count, int factor, bool late, unsigned grid = blocks) {
    copyToDevice(data_, std::span<float const>(std::vector<float>(longest, static_cast<float>(factor * rank_.rank))));
    run(grid, LateKernel<Collective>{}, data_.data(), count, word_.data(), late && rank_.rank == 1);
    auto const result = copyToHost(data_);
    for (std::size_t i = 0; i < count; ++i) {
      if (result[i] != result[0]) return -1;
    }
    return result[0];
  }

  void setRounds(std::uint64_t rounds) {
    auto const& handle = team_.deviceHandle();
    rank_.meet();
    auto* const own = handle.workspaces[handle.rank] + handle.layout.epochs;
    mscclpp_test::setRounds(rank_, reinterpret_cast<layout::RoundCounter*>(own), handle.layout.blocks, rounds);
    rank_.synchronize();
  }

 private:
  Rank& rank_;
  Team team_;
  GpuBuffer<float> data_;
  GpuBuffer<unsigned> word_;
};

template <class Collective>
void checkAged(std::function<void(Rank&, Aged<Collective>&)> const& meanwhile) {
  if (!canRun(ranks)) return;
  forEachRank(ranks, [&](Rank& rank) {
    Aged<Collective> aged(rank);
    meanwhile(rank, aged);
    aged.setRounds(aged.first + layout::flagPeriod - 1);
    CHECK(aged.reduce(large, 100, true) == 100 * (0 + 1 + 2));
  });
}

template <class Collective>
void checkAllKinds() {
  SUBCASE("small messages of the same kind, by fewer blocks") {
    checkAged<Collective>([](Rank&, Aged<Collective>& aged) {
      for (unsigned i = 0; i < 2; ++i) CHECK(aged.reduce(1, 10, false, 1 + i % 2) == 30);
    });
  }
  SUBCASE("barriers") {
    checkAged<Collective>([](Rank&, Aged<Collective>& aged) {
      for (unsigned i = 0; i < 2; ++i) aged.run(2, BarrierKernel{});
    });
  }
  SUBCASE("a message in many rounds, by one block") {
    checkAged<Collective>([](Rank&, Aged<Collective>& aged) {
      aged.setRounds(aged.swept - 3);
      CHECK(aged.reduce(longest, 10, false, 1) == 30);
    });
  }
  SUBCASE("the same without packets") {
    checkAged<Collective>([](Rank& rank, Aged<Collective>& aged) {
      GpuBuffer<float> const data(rank.device, longest);
      GpuBuffer<unsigned> const word(rank.device, 1);
      aged.run(1, LateKernel<AllReduce<OneShot, MemoryTransport<2>, Sum>>{}, data.data(), longest, word.data(), false);
    });
  }
  SUBCASE("a ring that passes them at once") {
    checkAged<Collective>([](Rank& rank, Aged<Collective>& aged) {
      GpuBuffer<float> const data(rank.device, longest);
      MemoryWindow const window(rank.communicator, data.data(), data.bytes());
      aged.run(2, RingKernel{}, window.deviceHandle(), longest);
    });
  }
}

}  // namespace

TEST_CASE("LL8") { checkAllKinds<AllReduce<OneShot, PacketTransport<LL8>, Sum>>(); }
TEST_CASE("LL16") { checkAllKinds<AllReduce<TwoShot, PacketTransport<LL16, 2>, Sum>>(); }
TEST_CASE("LL128") { checkAllKinds<AllReduce<OneShot, PacketTransport<LL128>, Sum>>(); }

namespace {

struct MessageKernel {
  MSCCLPP_DEVICE void operator()(layout::PointToPointHandle const& links, layout::Messages const& messages,
                                 unsigned* word, bool late) const {
    comeLate(word, late);
    SendRecv<LL128>{links}(thisGrid(), messages);
  }
};

}  // namespace

TEST_CASE("messages between two ranks") {
  if (!canRun(2)) return;
  forEachRank(2, [](Rank& rank) {
    PointToPoint const links(rank.communicator,
                             {.lanes = 1, .slots = 2, .stageBytes = 256, .packetBytes = 128, .packetLimit = 5000});
    auto const& handle = links.deviceHandle();
    constexpr std::size_t bytes = 1500;  // of one chunk
    GpuBuffer<std::uint8_t> data(rank.device, bytes);
    GpuBuffer<unsigned> const word(rank.device, 1);
    auto const setChunks = [&](std::uint64_t chunks) {
      auto* const own = handle.bases[rank.rank];
      rank.meet();
      for (auto const array : {handle.layout.sent, handle.layout.taken}) {
        setRounds(rank, reinterpret_cast<layout::RoundCounter*>(own + array), 2, chunks);
      }
      for (auto const array : {handle.layout.arrived, handle.layout.freed}) {
        setRounds(rank, reinterpret_cast<std::uint64_t*>(own + array), 2, chunks);
      }
      rank.synchronize();
    };
    // From rank 0 to rank 1; what has come there.
    auto const send = [&](std::size_t size, std::uint8_t value, bool late) {
      data.fill(rank.rank == 0 ? value : 0);
      layout::Messages messages{};
      if (rank.rank == 0) messages.addSend(1, data.data(), size);
      if (rank.rank == 1) messages.addRecv(0, data.data(), size);
      rank.meet();
      launch(rank.stream, {.blocks = 2, .threads = 64}, MessageKernel{}, handle, messages, word.data(),
             late && rank.rank == 0);
      rank.synchronize();
      auto const come = copyToHost(data);
      CHECK(std::count(come.begin(), come.end(), value) == static_cast<std::ptrdiff_t>(rank.rank == 0 ? bytes : size));
    };
    constexpr std::uint64_t first = 3;
    setChunks(first - 1);
    send(bytes, 1, false);
    setChunks(layout::flagPeriod - layout::sweepPeriod - 1);
    for (int chunk = 0; chunk < 2; ++chunk) send(1, 2, false);
    setChunks(first + layout::flagPeriod - 1);
    send(bytes, 3, true);
  });
}
