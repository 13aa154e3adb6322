// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Communicators that grow, are revoked, or suspended; their memory and properties.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "nccl/ranks.hpp"

using namespace mscclpp_test;

namespace {

constexpr std::size_t count = 1000;

float sum(Device device, Stream const& stream, ncclComm_t comm, float mine) {
  Data<float> data(device, count, mine);
  CHECK_NCCL(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, comm, stream.native()));
  stream.synchronize();
  return data.values().front();
}
float sum(NcclRank const& rank, ncclComm_t comm, float mine) { return sum(rank.device, rank.stream, comm, mine); }

std::uint64_t memory(ncclComm_t comm, int which) {
  std::uint64_t bytes = 0;
  CHECK_NCCL(ncclCommMemStats(comm, which, &bytes));
  return bytes;
}

bool says(char const* words) { return lastError().find(words) != std::string::npos; }

}  // namespace

TEST_CASE("growing: ranks that are there keep their numbers, and any of them may make the id") {
  constexpr int old = 2, all = 4;
  ncclUniqueId first{};
  CHECK_NCCL(ncclGetUniqueId(&first));
  ncclUniqueId growth{};
  std::atomic<bool> made{false};
  onThreads(all, [&](int rank) {
    Stream const stream(simDevice(rank));
    ncclComm_t before = nullptr;
    ncclComm_t grown = nullptr;
    if (rank < old) {
      CHECK_NCCL(ncclCommInitRank(&before, old, first, rank));
      if (rank == 1) {
        CHECK_NCCL(ncclCommGetUniqueId(before, &growth));
        ncclUniqueId second{};
        CHECK(ncclCommGetUniqueId(before, &second) == ncclInvalidUsage);
        CHECK(says("has not been used"));
        made = true;
      }
      CHECK_NCCL(ncclCommGrow(before, all, rank == 1 ? &growth : nullptr, -1, &grown, nullptr));
    } else {
      while (!made) std::this_thread::yield();
      CHECK_NCCL(ncclCommGrow(nullptr, all, &growth, rank, &grown, nullptr));
    }
    int number = -1;
    CHECK_NCCL(ncclCommUserRank(grown, &number));
    CHECK(number == rank);
    CHECK(sum(simDevice(rank), stream, grown, static_cast<float>(rank + 1)) == 10);
    if (before != nullptr) {
      CHECK(sum(simDevice(rank), stream, before, 1) == 2);
      CHECK_NCCL(ncclCommDestroy(before));
    }
    CHECK_NCCL(ncclCommDestroy(grown));
  });
}

TEST_CASE("growing wrongly is refused by all ranks alike") {
  forEachNcclRank(2, [](NcclRank& rank) {
    ncclComm_t grown = nullptr;
    CHECK(ncclCommGrow(rank.comm, 2, nullptr, -1, &grown, nullptr) == ncclInvalidArgument);
    CHECK(says("to grow from 2 ranks to 2"));
    CHECK(ncclCommGrow(rank.comm, 3, nullptr, rank.rank, &grown, nullptr) == ncclInvalidArgument);
    CHECK(ncclCommGrow(nullptr, 3, nullptr, 2, &grown, nullptr) == ncclInvalidArgument);
    CHECK(ncclCommGrow(rank.comm, 3, nullptr, -1, &grown, nullptr) == ncclInvalidArgument);
    CHECK(says("none of the ranks that are there gives an id"));
    ncclUniqueId foreign{};
    CHECK_NCCL(ncclGetUniqueId(&foreign));
    CHECK(ncclCommGrow(rank.comm, 3, rank.rank == 0 ? &foreign : nullptr, -1, &grown, nullptr) == ncclInvalidArgument);
    CHECK(says("the id that rank 0 gives is not from its ncclCommGetUniqueId"));
    CHECK(ncclCommGrow(rank.comm, 3 + rank.rank, nullptr, -1, &grown, nullptr) == ncclInvalidArgument);
    CHECK(says("rank"));
    CHECK(grown == nullptr);
    CHECK(sum(rank, rank.comm, 1) == 2);
  });
}

TEST_CASE("revoked: kernels leave, and the communicator can still be split, shrunk and destroyed") {
  forEachNcclRank(3, [](NcclRank& rank) {
    ncclComm_t other = nullptr;
    CHECK_NCCL(ncclCommSplit(rank.comm, 0, rank.rank, &other, nullptr));
    CHECK(sum(rank, other, 1) == 3);
    Data<float> data(rank.device, count, 1);
    auto const reduce = [&](ncclComm_t comm) {
      return ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, comm, rank.native());
    };
    if (rank.rank != 1) CHECK_NCCL(reduce(other));  // waits for rank 1 in vain
    CHECK(ncclCommRevoke(other, 1) == ncclInvalidArgument);
    std::thread([&] { CHECK_NCCL(ncclCommRevoke(other, 0)); }).join();
    rank.stream.synchronize(std::chrono::seconds(5));
    auto state = ncclInternalError;
    CHECK_NCCL(ncclCommGetAsyncError(other, &state));
    CHECK(state == ncclSuccess);
    CHECK(reduce(other) == ncclInvalidUsage);
    CHECK(says("has been revoked; split, shrink or destroy it"));
    CHECK(ncclCommFinalize(other) == ncclInvalidUsage);

    ncclComm_t again = nullptr;
    CHECK_NCCL(ncclCommSplit(other, 0, rank.rank, &again, nullptr));
    CHECK(sum(rank, again, 1) == 3);
    CHECK_NCCL(ncclCommDestroy(again));
    if (rank.rank != 1) {
      int excluded = 1;
      CHECK_NCCL(ncclCommShrink(other, &excluded, 1, &again, nullptr, 0));
      CHECK(sum(rank, again, 1) == 2);
      CHECK_NCCL(ncclCommDestroy(again));
    }
    CHECK_NCCL(ncclCommDestroy(other));
    CHECK(sum(rank, rank.comm, 1) == 3);
  });
}

TEST_CASE("suspended: memory goes, and comes again") {
  forEachNcclRank(2, [](NcclRank& rank) {
    auto const suspendable = memory(rank.comm, ncclStatGpuMemSuspend);
    CHECK(suspendable > 0);
    CHECK(sum(rank, rank.comm, 1) == 2);
    CHECK(memory(rank.comm, ncclStatGpuMemSuspend) > suspendable);  // a workspace
    CHECK(memory(rank.comm, ncclStatGpuMemSuspended) == 0);
    auto const rest = memory(rank.comm, ncclStatGpuMemPersist);
    CHECK(memory(rank.comm, ncclStatGpuMemTotal) == rest + memory(rank.comm, ncclStatGpuMemSuspend));
    CHECK(ncclCommResume(rank.comm) == ncclInvalidUsage);
    CHECK(ncclCommSuspend(rank.comm, 2) == ncclInvalidArgument);
    for (int turn = 0; turn < 2; ++turn) {
      CHECK_NCCL(ncclCommSuspend(rank.comm, 1));
      CHECK(memory(rank.comm, ncclStatGpuMemSuspended) == 1);
      CHECK(memory(rank.comm, ncclStatGpuMemTotal) == rest);
      CHECK(ncclCommSuspend(rank.comm, 1) == ncclInvalidUsage);
      Data<float> data(rank.device, count, 1);
      CHECK(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, rank.comm, rank.native()) ==
            ncclInvalidUsage);
      CHECK(says("suspended; call ncclCommResume on all ranks"));
      CHECK_NCCL(ncclCommResume(rank.comm));
      CHECK(sum(rank, rank.comm, 1) == 2);
      CHECK_NCCL(ncclGroupStart());
      CHECK_NCCL(ncclSend(data.data(), count, ncclFloat32, 1 - rank.rank, rank.comm, rank.native()));
      CHECK_NCCL(ncclRecv(data.data(), count, ncclFloat32, 1 - rank.rank, rank.comm, rank.native()));
      CHECK_NCCL(ncclGroupEnd());
      rank.stream.synchronize();
    }
    std::uint64_t none = 0;
    CHECK(ncclCommMemStats(rank.comm, 4, &none) == ncclInvalidArgument);
    CHECK(ncclCommMemStats(rank.comm, 0, nullptr) == ncclInvalidArgument);
  });
}

TEST_CASE("properties, as much as the caller's version has of them") {
  forEachNcclRank(2, [](NcclRank& rank) {
    ncclCommProperties_t found{};
    found.size = sizeof found;
    found.magic = 0xcafebeef;
    found.version = 23007;
    CHECK_NCCL(ncclCommQueryProperties(rank.comm, &found));
    CHECK(found.rank == rank.rank);
    CHECK(found.nRanks == 2);
    CHECK(found.cudaDev == rank.rank);
    CHECK_FALSE(found.deviceApiSupport);
    CHECK(found.hostRmaSupport);
    CHECK(found.nLsaTeams == 1);
    CHECK(found.version == 23007);
    found = {};
    found.size = offsetof(ncclCommProperties_t, nLsaTeams);
    found.magic = 0xcafebeef;
    found.nLsaTeams = 77;
    CHECK_NCCL(ncclCommQueryProperties(rank.comm, &found));
    CHECK(found.nRanks == 2);
    CHECK(found.nLsaTeams == 77);
    found.magic = 0;
    CHECK(ncclCommQueryProperties(rank.comm, &found) == ncclInvalidUsage);
  });
}

TEST_CASE("how long a group would take, by the model of costs") {
  forEachNcclRank(2, [](NcclRank& rank) {
    Data<float> data(rank.device, count, 1);
    auto const simulated = [&](std::size_t elements) {
      ncclSimInfo_t info{sizeof(ncclSimInfo_t), 0x74685283, 22809, -1};
      CHECK_NCCL(ncclGroupStart());
      CHECK_NCCL(ncclAllReduce(data.data(), data.data(), elements, ncclFloat32, ncclSum, rank.comm, rank.native()));
      CHECK_NCCL(ncclGroupSimulateEnd(&info));
      return info.estimatedTime;
    };
    auto const little = simulated(count);
    CHECK(little > 1);
    CHECK(little < 100);
    CHECK(simulated(100'000'000) > 100 * little);
    rank.stream.synchronize();
    CHECK(data.are(1));  // nothing has been started
    CHECK(sum(rank, rank.comm, 1) == 2);

    ncclSimInfo_t info{sizeof(ncclSimInfo_t), 0x74685283, 22809, -1};
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclSend(data.data(), count, ncclFloat32, 1 - rank.rank, rank.comm, rank.native()));
    CHECK_NCCL(ncclRecv(data.data(), count, ncclFloat32, 1 - rank.rank, rank.comm, rank.native()));
    CHECK_NCCL(ncclGroupSimulateEnd(&info));
    CHECK(info.estimatedTime > 0);
    CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidUsage);
    info.magic = 1;
    CHECK_NCCL(ncclGroupStart());
    CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);  // it has ended
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclSignal(0, 0, 0, 0, rank.comm, rank.native()));
    CHECK(ncclGroupSimulateEnd(nullptr) == ncclInvalidUsage);
  });
}
