// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/communicator.hpp"

#include <doctest/doctest.h>

#include <optional>

#include "host/fake_runtime.hpp"
#include "host/ranks.hpp"
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/memory_channel.hpp"
#include "mscclpp/host/team.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

// Ranks as threads, each with a communicator on its own device.
std::vector<std::optional<Error>> runRanksWith(int ranks, std::function<void(Communicator&)> const& body,
                                               std::chrono::nanoseconds limit = 10s) {
  fake(0);
  auto const world = LocalBootstrap::create(ranks, limit);
  return runThreads(ranks, [&](int rank) {
    Communicator communicator(world[static_cast<std::size_t>(rank)], fake(rank));
    body(communicator);
    communicator.bootstrap()->barrier();
  });
}

void expect(bool condition, std::string const& what) {
  if (!condition) throw Error(ErrorCode::internalError, what);
}

// Stores by "kernels" of all members into everybody's workspace, then a look at the own one.
std::string exerciseTeam(Communicator& communicator, Team const& team) {
  auto const& handle = team.deviceHandle();
  for (int to = 0; to < handle.size; ++to) {
    auto* const slots = reinterpret_cast<std::uint64_t*>(handle.workspaces[to] + handle.layout.stage);
    slots[handle.rank] = static_cast<std::uint64_t>(100 * handle.rank + to);
  }
  communicator.bootstrap()->barrier();
  auto const* const mine = reinterpret_cast<std::uint64_t const*>(handle.workspaces[handle.rank] + handle.layout.stage);
  for (int from = 0; from < handle.size; ++from) {
    if (mine[from] != static_cast<std::uint64_t>(100 * from + handle.rank)) return "a peer's store did not arrive";
  }
  return "";
}

constexpr layout::WorkspaceRequirement smallWorkspace{
    .blocks = 4, .packetBytes = 1000, .lineBytes = 0, .stageBytes = 4096};

}  // namespace

// First, while this process has no threads.
TEST_CASE("processes share memory, semaphores and a team") {
  fake(0);
  UniqueId const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
  auto const texts = runProcesses(4, [&](int rank) -> std::string {
    auto const bootstrap = std::make_shared<TcpBootstrap>(rank, 4);
    bootstrap->initialize(id, 20s);
    Communicator communicator(bootstrap, fake(rank));
    Team const team(communicator, smallWorkspace);
    std::string const wrong = exerciseTeam(communicator, team);
    if (!wrong.empty()) return wrong;
    int const peer = rank ^ 1;
    auto const semaphore = communicator.buildSemaphore(peer);
    ++*semaphore.deviceHandle().remoteInbound;
    bootstrap->barrier();
    if (*semaphore.deviceHandle().inbound != 1) return "the signal did not arrive";
    if (*semaphore.deviceHandle().expected != 0) return "the other counter changed";
    GpuBuffer<int> const buffer(fake(rank), 16);
    auto const all = communicator.exchangeMemory(communicator.registerMemory(buffer.data(), buffer.bytes()));
    for (int other = 0; other < 4; ++other) {
      auto const& memory = all[static_cast<std::size_t>(other)];
      if (memory.rank() != other) return "memory of another rank";
      reinterpret_cast<int*>(memory.data())[rank] = rank + 1;
    }
    bootstrap->barrier();
    auto const values = copyToHost(buffer);
    for (int other = 0; other < 4; ++other) {
      if (values[static_cast<std::size_t>(other)] != other + 1) return "exchanged memory: a store did not arrive";
    }
    bootstrap->barrier();
    return "";
  });
  for (auto const& text : texts) CHECK(text == "");
}

TEST_CASE("nothing is left when all is destroyed") {
  auto const before = (fake(0), FakeRuntime::instance().liveBlocks());
  auto const errors = runRanksWith(
      3,
      [](Communicator& communicator) {
        Team const team(communicator, smallWorkspace);
        auto const semaphore =
            communicator.buildSemaphore((communicator.rank() + 1) % 3, communicator.rank() == 2 ? 2 : 0);
        communicator.bootstrap()->barrier();
      },
      300ms);
  // The semaphores do not match each other (a ring), so at least one rank must have timed out.
  CHECK(allErrors(errors) != "");
  CHECK(FakeRuntime::instance().liveBlocks() == before);
}

TEST_CASE("memory goes from rank to rank, by tag") {
  auto const errors = runRanksWith(2, [](Communicator& communicator) {
    int const peer = 1 - communicator.rank();
    GpuBuffer<int> const a(communicator.device(), 4);
    GpuBuffer<int> const b(communicator.device(), 8);
    auto const first = communicator.registerMemory(a.data(), a.bytes());
    auto const second = communicator.registerMemory(b.data(), b.bytes());
    communicator.sendMemory(first, peer, 1);
    communicator.sendMemory(second, peer, 2);
    expect(communicator.recvMemory(peer, 2).size() == 32, "tag 2");
    expect(communicator.recvMemory(peer, 1).size() == 16, "tag 1");
    auto const theirs = communicator.exchangeMemory(first)[static_cast<std::size_t>(peer)];
    auto const refused = errorOf([&] { communicator.sendMemory(theirs, peer); });
    expect(mentions(refused, "takes this rank's own memory"), textOf(refused));
    expect(mentions(errorOf([&] { communicator.sendMemory(first, 2); }), "names rank 2"), "rank 2");
    expect(mentions(errorOf([&] { communicator.recvMemory(peer, -1); }), "tag -1"), "tag -1");
    expect(mentions(errorOf([&] { communicator.buildSemaphore(communicator.rank()); }), "itself"), "self");
    communicator.bootstrap()->barrier();
  });
  CHECK(allErrors(errors) == "");
}

TEST_CASE("memory channels check what they are made of") {
  auto const errors = runRanksWith(2, [](Communicator& communicator) {
    int const peer = 1 - communicator.rank();
    auto const semaphore = communicator.buildSemaphore(peer);
    GpuBuffer<std::byte> const buffer(communicator.device(), 1024);
    GpuBuffer<std::byte> const packets(communicator.device(), 512);
    auto const own = communicator.registerMemory(buffer.data(), buffer.bytes());
    auto const odd = communicator.registerMemory(buffer.data() + 8, 64);
    auto const theirs = communicator.exchangeMemory(own)[static_cast<std::size_t>(peer)];
    MemoryChannel const channel(semaphore, theirs, own, packets.data() + 128);
    auto const handle = channel.deviceHandle();
    expect(handle.dst == theirs.data() && handle.dstBytes == 1024, "dst");
    expect(handle.src == own.data() && handle.srcBytes == 1024, "src");
    expect(handle.packetBuffer == packets.data() + 128 && handle.packetBytes == 384, "packets");
    expect(handle.semaphore.peer == peer && handle.semaphore.watch == communicator.watch(), "semaphore");
    expect(MemoryChannel(semaphore, theirs, own).deviceHandle().packetBuffer == nullptr, "no packets");
    expect(BaseMemoryChannel(semaphore).deviceHandle().inbound == handle.semaphore.inbound, "base");
    auto const refuses = [&](RegisteredMemory const& dst, RegisteredMemory const& src, void* packetBuffer,
                             std::string const& text) {
      auto const error = errorOf([&] { MemoryChannel(semaphore, dst, src, packetBuffer); });
      expect(error && error->code() == ErrorCode::invalidUsage && mentions(error, text), textOf(error));
    };
    refuses(own, own, nullptr, "its dst is memory of rank " + std::to_string(communicator.rank()));
    refuses({}, own, nullptr, "its dst is empty");
    refuses(theirs, theirs, nullptr, "its src is memory of rank " + std::to_string(peer));
    refuses(theirs, odd, nullptr, "not aligned to 16");
    refuses(theirs, own, packets.data() + 4, "the packet buffer");
    communicator.bootstrap()->barrier();
  });
  CHECK(allErrors(errors) == "");
}

TEST_CASE("teams over all ranks and over some, in another order") {
  auto const errors = runRanksWith(5, [](Communicator& communicator) {
    Team const everybody(communicator, smallWorkspace);
    expect(everybody.size() == 5 && everybody.rank() == communicator.rank(), "place");
    std::string const wrong = exerciseTeam(communicator, everybody);
    expect(wrong.empty(), wrong);
    std::vector<int> const some = communicator.rank() % 2 == 0 ? std::vector<int>{4, 0, 2} : std::vector<int>{3, 1};
    Team const team(communicator, smallWorkspace, some);
    expect(some[static_cast<std::size_t>(team.rank())] == communicator.rank(), "place in the subset");
    auto const& handle = team.deviceHandle();
    expect(handle.workspaces[team.size()] == nullptr, "entries past the size are null");
    expect(handle.layout.ranks == static_cast<std::uint32_t>(team.size()), "layout");
    expect(handle.watch == communicator.watch(), "watch");
    for (std::uint64_t i = 0; i < handle.layout.total; ++i) {
      expect(handle.workspaces[team.rank()][i] == std::byte{0}, "the workspace is not zero");
    }
    communicator.bootstrap()->barrier();
    std::string const wrongToo = exerciseTeam(communicator, team);
    expect(wrongToo.empty(), wrongToo);
  });
  CHECK(allErrors(errors) == "");
}

TEST_CASE("a team of one") {
  auto const errors = runRanksWith(1, [](Communicator& communicator) {
    Team const team(communicator, smallWorkspace);
    expect(team.size() == 1, "size");
  });
  CHECK(allErrors(errors) == "");
}

TEST_CASE("members that ask for different things are told on every rank") {
  auto errors = runRanksWith(3, [](Communicator& communicator) {
    auto need = smallWorkspace;
    if (communicator.rank() == 2) need.packetBytes = 2000;
    Team const team(communicator, need);
  });
  for (auto const& error : errors) {
    REQUIRE(error.has_value());
    CHECK(error->code() == ErrorCode::invalidUsage);
    CHECK_MESSAGE(mentions(error, "packetBytes"), error->what());
    CHECK_MESSAGE(mentions(error, "1000"), error->what());
    CHECK_MESSAGE(mentions(error, "2000"), error->what());
    CHECK_MESSAGE(mentions(error, "rank 2"), error->what());
  }
  errors = runRanksWith(2, [](Communicator& communicator) {
    Team const team(communicator, smallWorkspace,
                    communicator.rank() == 0 ? std::vector<int>{0, 1} : std::vector<int>{1, 0});
  });
  for (auto const& error : errors) CHECK_MESSAGE(mentions(error, "same order"), textOf(error));
}

TEST_CASE("a member that fails fails the others at once, with its reason") {
  auto& machine = (fake(0), FakeRuntime::instance());
  auto const start = std::chrono::steady_clock::now();
  machine.wishes.largestAllocation = 4096;
  auto const errors =
      runRanksWith(2, [](Communicator& communicator) { Team const team(communicator, smallWorkspace); });
  machine.wishes = {};
  CHECK(std::chrono::steady_clock::now() - start < 5s);
  for (auto const& error : errors) CHECK_MESSAGE(mentions(error, "has no room"), textOf(error));
}

TEST_CASE("impossible teams") {
  auto const errors = runRanksWith(2, [](Communicator& communicator) {
    auto const refuses = [&](layout::WorkspaceRequirement const& need, std::vector<int> ranks,
                             std::string const& text) {
      auto const error = errorOf([&] { Team(communicator, need, ranks); });
      expect(error && error->code() == ErrorCode::invalidUsage && mentions(error, text), textOf(error));
    };
    refuses(smallWorkspace, {0, 1, 0}, "names a rank twice");
    refuses(smallWorkspace, {0, 1, 2}, "names rank 2");
    refuses(smallWorkspace, {1 - communicator.rank()}, "does not hold the calling rank");
    refuses(smallWorkspace, std::vector<int>(73, 0), "73 ranks; a team holds at most 72");
    refuses({}, {}, "0 blocks");
  });
  CHECK(allErrors(errors) == "");
}

TEST_CASE("a member that does not come is named within the limit") {
  auto const errors = runRanksWith(
      2,
      [](Communicator& communicator) {
        if (communicator.rank() == 0) Team const team(communicator, smallWorkspace);
      },
      200ms);
  REQUIRE(errors[0].has_value());
  CHECK(errors[0]->code() == ErrorCode::timeout);
  CHECK_MESSAGE(mentions(errors[0], "of rank 1"), errors[0]->what());
}

TEST_CASE("reports become one error and are cleared; abort stays") {
  auto const errors = runRanksWith(1, [](Communicator& communicator) {
    layout::Watch& watch = *communicator.watch();
    expect(watch.rank == 0 && watch.limitNs == 10'000'000'000ull, "initial watch");
    communicator.setTimeLimit(250ms);
    expect(watch.limitNs == 250'000'000ull, "limit");
    expect(mentions(errorOf([&] { communicator.setTimeLimit(-1ns); }), "setTimeLimit"), "negative limit");
    communicator.checkReports();

    watch.reports[0] = {1, layout::WaitKind::packet, 0, 1, 3, 0, 17, 5, 4, 250'000'000ull};
    watch.reportCount = 1;
    watch.abort = 1;
    Stream const stream(communicator.device());
    auto error = errorOf([&] { communicator.synchronize(stream); });
    expect(error && error->code() == ErrorCode::timeout, textOf(error));
    expect(mentions(error, "packet slot 17 of rank 1"), textOf(error));
    expect(watch.abort == 0 && watch.reportCount == 0 && watch.reports[0].complete == 0, "not cleared");
    communicator.synchronize(stream);

    watch.reports[0] = {1, layout::WaitKind::misuse, 0, -1, 0, 0, 4, 8, 9, 0};
    watch.reportCount = 1;
    error = errorOf([&] { communicator.checkReports(); });
    expect(error && error->code() == ErrorCode::invalidUsage && mentions(error, "a grid of 9 blocks"), textOf(error));

    // A stream that fails as well: both are told.
    FakeRuntime::instance().wishes.streamsBusy = true;
    watch.reports[0] = {1, layout::WaitKind::packet, 0, 1, 3, 0, 17, 5, 4, 250'000'000ull};
    watch.reportCount = 1;
    error = errorOf([&] { communicator.synchronize(stream); });
    FakeRuntime::instance().wishes = {};
    expect(mentions(error, "fake stream is busy") && mentions(error, "packet slot 17"), textOf(error));
    errorOf([&] { communicator.checkReports(); });

    communicator.abort();
    expect(watch.abort == 1, "abort is not seen by kernels");
    for (int i = 0; i < 2; ++i) {
      error = errorOf([&] { communicator.checkReports(); });
      expect(error && error->code() == ErrorCode::aborted, textOf(error));
      expect(watch.abort == 1, "abort was cleared");
      // What its kernels have left tells no other cause.
      watch.reports[0] = {1, layout::WaitKind::packet, 0, 1, 3, 0, 17, 5, 4, 0};
      watch.reportCount = 1;
      error = errorOf([&] { communicator.synchronize(stream); });
      expect(error && error->code() == ErrorCode::aborted, textOf(error));
      expect(mentions(error, "abort()") && mentions(error, "packet slot 17"), textOf(error));
    }
  });
  CHECK(allErrors(errors) == "");
}

TEST_CASE("links, kinds and bootstraps") {
  auto& machine = (fake(0), FakeRuntime::instance());
  machine.wishes.splitLines = 1;
  auto const errors = runRanksWith(3, [](Communicator& communicator) {
    expect(communicator.reaches(2), "same host");
    expect(communicator.linesArriveWhole(0), "lines to rank 0");
    expect(!communicator.linesArriveWhole(1), "lines to rank 1");
    expect(!communicator.linesArriveWhole(), "lines at all");
    communicator.bootstrap()->barrier();
  });
  machine.wishes = {};
  CHECK(allErrors(errors) == "");
  CHECK(mentions(errorOf([] { Communicator(nullptr, fake(0)); }), "no bootstrap"));
}
