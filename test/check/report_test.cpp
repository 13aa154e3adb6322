// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is said of a fault: once, and by the name of what was done wrong. And that large blocks get an answer without
// ifs.
#include "check/harness.hpp"
#include "mscclpp/device/barrier.hpp"

using namespace check_test;

namespace {

// Every thread of eight large blocks reads what thread 7 of block 3 has written, which the grid, or nothing, orders.
template <Fault F>
struct ManyReaders {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    auto const grid = thisGrid();
    if constexpr (!planted<F>) {
      if (grid.rank() == 3 * 256 + 7) store<Order::release, Scope::device>(p.flag(p.rank), 1);
      waitUntil<Order::acquire, Scope::device>(p.flag(p.rank), 1);
    } else {
      if (grid.rank() == 3 * 256 + 7) *p.flag(p.rank) = 1;  // <- plain write
    }
    for (unsigned i = 0; i < 4; ++i) expect(*p.flag(p.rank) <= 1, "another value");  // <- read by all
  }
};

struct CountUp {
  MSCCLPP_DEVICE void operator()(Peers const& p) const { *p.data(p.rank, thisGrid().rank()) += 1; }
};

// A buffer that two kernels use at the same time, on streams of their own.
void usesOneBufferTwice(Rank& rank) {
  SharedMemory const memory(rank);
  Stream const other(rank.device);
  launch(rank.stream, {.blocks = 2, .threads = 32}, CountUp{}, memory.peers());
  launch(other, {.blocks = 2, .threads = 32}, CountUp{}, memory.peers());
  rank.synchronize();
  rank.communicator.synchronize(other);
}

// Two collectives at once, on streams of their own, with one team.
void usesOneTeamTwice(Rank& rank) {
  Team const team(rank.communicator, {.blocks = 1});
  Stream const other(rank.device);
  auto const meet = [](DeviceTeam const& with) { teamBarrier(with, thisBlock()); };
  launch(rank.stream, {.blocks = 1, .threads = 32}, meet, team.deviceHandle());
  launch(other, {.blocks = 1, .threads = 32}, meet, team.deviceHandle());
  rank.synchronize();
  rank.communicator.synchronize(other);
}

struct WaitForEver {
  MSCCLPP_DEVICE void operator()(Peers const& p) const { waitUntil<Order::acquire>(p.flag(p.rank), 1); }
};

}  // namespace

TEST_CASE("thousands of readers of one word are all remembered") {
  checkKernel<ManyReaders>(
      {FindingKind::race, {"plain write", "read by all"}},
      {.ranks = 1, .blocks = 8, .threads = 256, .options = {.preemption = 0.01}, .silentSchedules = 2});
}

TEST_CASE("two kernels that use one buffer at once are named so") {
  auto const text = sim::toText(exploreRanks({1, {}}, usesOneBufferTwice, {.schedules = 30}));
  CHECK_MESSAGE(text.find("two kernels of one device that run at the same time") != std::string::npos, text);
}

TEST_CASE("two kernels that use one team at once are named so") {
  auto const text = sim::toText(exploreRanks({2, {}}, usesOneTeamTwice, {.schedules = 30}));
  CHECK_MESSAGE(text.find("each serves one kernel at a time") != std::string::npos, text);
  CHECK_MESSAGE(text.find("give each stream a team of its own") != std::string::npos, text);
}

TEST_CASE("ranks that wait at one place are told in one record") {
  auto const result = exploreRanks({30, {}},
                                   [](Rank& rank) {
                                     SharedMemory const memory(rank);
                                     launch(rank.stream, {.blocks = 1, .threads = 1}, WaitForEver{}, memory.peers());
                                     rank.synchronize();
                                   },
                                   {.schedules = 1, .shrink = false});
  auto const text = sim::toText(result);
  REQUIRE_MESSAGE(result.findings.size() == 1, text);
  CHECK(result.findings[0].kind == FindingKind::deadLock);
  CHECK_MESSAGE(result.findings[0].accesses.size() <= 3, text);
  CHECK_MESSAGE(text.find("; and 29 more here, of ranks 1-29") != std::string::npos, text);
  CHECK_MESSAGE(std::count(text.begin(), text.end(), '\n') < 60, text);
}
