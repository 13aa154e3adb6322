// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL's communicators: made, split, ended; memory; what is refused.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "nccl/ranks.hpp"

using namespace mscclpp_test;

namespace {

constexpr std::size_t count = 1000;

ncclConfig_t configuration() { return {sizeof(ncclConfig_t), 0xcafebeef, 22809, INT_MIN, INT_MIN, INT_MIN, INT_MIN}; }

ncclResult_t state(ncclComm_t comm) {
  auto result = ncclInternalError;
  CHECK_NCCL(ncclCommGetAsyncError(comm, &result));
  return result;
}

void waitUntilMade(ncclComm_t comm) {
  while (state(comm) == ncclInProgress) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(state(comm) == ncclSuccess);
}

void sumOnce(NcclRank const& rank, ncclComm_t comm, float expected) {
  Data<float> data(rank.device, count, static_cast<float>(rank.rank + 1));
  CHECK_NCCL(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, comm, rank.native()));
  rank.stream.synchronize();
  CHECK(data.are(expected));
}

// What this process holds: files, threads, and mapped files, which simulated memory is.
struct Held {
  std::ptrdiff_t files = 0, threads = 0;
  std::size_t mapped = 0;

  static Held now() {
    auto const entries = [](char const* folder) {
      auto const all = std::filesystem::directory_iterator(folder);
      return std::distance(begin(all), end(all));
    };
    Held held{entries("/proc/self/fd"), entries("/proc/self/task")};
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      unsigned long first = 0, end = 0;
      if (line.find(" rw-s ") != line.npos && std::sscanf(line.c_str(), "%lx-%lx", &first, &end) == 2) {
        held.mapped += end - first;
      }
    }
    return held;
  }
  bool isWithin(Held const& other) const {
    return files <= other.files && threads <= other.threads && mapped <= other.mapped;
  }
};

// Memory of a communicator goes beside the program.
void checkComesTo(Held const& before) {
  auto const end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!Held::now().isWithin(before) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  auto const after = Held::now();
  CHECK(after.files <= before.files);
  CHECK(after.threads <= before.threads);
  CHECK(after.mapped <= before.mapped);
}

}  // namespace

TEST_CASE("a communicator knows its numbers") {
  int version = 0;
  CHECK_NCCL(ncclGetVersion(&version));
  CHECK(version == 22809);
  forEachNcclRank(3, [](NcclRank& rank) {
    int number = -1;
    CHECK_NCCL(ncclCommCount(rank.comm, &number));
    CHECK(number == 3);
    CHECK_NCCL(ncclCommUserRank(rank.comm, &number));
    CHECK(number == rank.rank);
    mscclppNcclSimSetDevice(7);  // the device is that of the communicator's making
    CHECK_NCCL(ncclCommCuDevice(rank.comm, &number));
    CHECK(number == rank.rank);
    sumOnce(rank, rank.comm, 6);
    CHECK(state(rank.comm) == ncclSuccess);
  });
}

TEST_CASE("splitting: by colour and key, without those that have no colour") {
  forEachNcclRank(4, [](NcclRank& rank) {
    ncclComm_t part = nullptr;
    // Ranks 3, 1 and 0, in that order.
    CHECK_NCCL(ncclCommSplit(rank.comm, rank.rank == 2 ? -1 : 5, -rank.rank, &part, nullptr));
    CHECK((part == nullptr) == (rank.rank == 2));
    if (part != nullptr) {
      int number = -1;
      CHECK_NCCL(ncclCommUserRank(part, &number));
      CHECK(number == (rank.rank == 3 ? 0 : rank.rank == 1 ? 1 : 2));
      sumOnce(rank, part, 7);
    }
    sumOnce(rank, rank.comm, 10);
    if (part != nullptr) CHECK_NCCL(ncclCommDestroy(part));

    // Equal keys: by rank. Two at once, in a group.
    ncclComm_t halves = nullptr;
    ncclComm_t all = nullptr;
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclCommSplit(rank.comm, rank.rank / 2, 0, &halves, nullptr));
    CHECK_NCCL(ncclCommSplit(rank.comm, 0, 0, &all, nullptr));
    CHECK_NCCL(ncclGroupEnd());
    sumOnce(rank, halves, rank.rank < 2 ? 3 : 7);
    sumOnce(rank, all, 10);
    CHECK_NCCL(ncclCommDestroy(halves));
    CHECK_NCCL(ncclCommDestroy(all));
    CHECK(ncclCommSplit(rank.comm, -2, 0, &all, nullptr) == ncclInvalidArgument);
  });
}

TEST_CASE("shrinking: those that are excluded do not call") {
  forEachNcclRank(3, [](NcclRank& rank) {
    if (rank.rank == 1) return;
    ncclComm_t rest = nullptr;
    int excluded = 1;
    CHECK_NCCL(ncclCommShrink(rank.comm, &excluded, 1, &rest, nullptr, 0));
    sumOnce(rank, rest, 4);
    CHECK_NCCL(ncclCommDestroy(rest));
    excluded = 9;
    CHECK(ncclCommShrink(rank.comm, &excluded, 1, &rest, nullptr, 0) == ncclInvalidArgument);
    CHECK(rest == nullptr);
  });
}

TEST_CASE("communicators that nobody waits for") {
  ncclUniqueId id{};
  CHECK_NCCL(ncclGetUniqueId(&id));
  // One thread makes both, which would wait for each other for ever otherwise.
  auto config = configuration();
  config.blocking = 0;
  std::vector<ncclComm_t> comms(2);
  for (int rank = 0; rank < 2; ++rank) {
    mscclppNcclSimSetDevice(rank);
    auto const result = ncclCommInitRankConfig(&comms[static_cast<std::size_t>(rank)], 2, id, rank, &config);
    CHECK(result == ncclInProgress);
    CHECK(comms[static_cast<std::size_t>(rank)] != nullptr);
  }
  for (auto* const comm : comms) waitUntilMade(comm);
  for (auto* const comm : comms) CHECK_NCCL(ncclCommDestroy(comm));
  mscclppNcclSimSetDevice(0);

  SUBCASE("and one whose peer does not come") {
    CHECK_NCCL(ncclGetUniqueId(&id));
    ncclComm_t alone = nullptr;
    CHECK(ncclCommInitRankConfig(&alone, 2, id, 0, &config) == ncclInProgress);
    CHECK(state(alone) == ncclInProgress);
    int number = 0;
    CHECK(ncclCommCount(alone, &number) == ncclInvalidUsage);
    CHECK_NCCL(ncclCommAbort(alone));
  }
}

TEST_CASE("why a communicator could not be made is told by itself, on any thread") {
  ncclUniqueId id{};
  std::memset(id.internal, 7, sizeof id.internal);
  auto config = configuration();
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
  while (state(comm) == ncclInProgress) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(state(comm) == ncclInvalidUsage);
  CHECK(std::string(ncclGetLastError(comm)).find("unique id: the bytes do not begin") != std::string::npos);
  CHECK_NCCL(ncclCommAbort(comm));
}

TEST_CASE("abort ends kernels that wait, from another thread") {
  forEachNcclRank(2, [](NcclRank& rank) {
    ncclComm_t other = nullptr;
    CHECK_NCCL(ncclCommSplit(rank.comm, 0, rank.rank, &other, nullptr));
    sumOnce(rank, other, 3);
    if (rank.rank == 0) {
      Data<float> data(rank.device, count, 1);
      CHECK_NCCL(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, other, rank.native()));
      std::thread([&] { CHECK_NCCL(ncclCommAbort(other)); }).join();
      rank.stream.synchronize(std::chrono::seconds(5));
      CHECK(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, other, rank.native()) ==
            ncclInvalidArgument);
      CHECK(lastError().find("destroyed or aborted") != std::string::npos);
    } else {
      CHECK_NCCL(ncclCommAbort(other));
    }
    sumOnce(rank, rank.comm, 3);
  });
}

TEST_CASE("the end of a communicator") {
  CHECK_NCCL(ncclCommDestroy(nullptr));
  CHECK_NCCL(ncclCommAbort(nullptr));
  forEachNcclRank(2, [](NcclRank& rank) {
    ncclComm_t part = nullptr;
    CHECK_NCCL(ncclCommSplit(rank.comm, 0, rank.rank, &part, nullptr));
    sumOnce(rank, part, 3);
    CHECK_NCCL(ncclCommFinalize(part));
    CHECK(ncclCommFinalize(part) == ncclInvalidArgument);
    float nothing = 0;
    CHECK(ncclAllReduce(&nothing, &nothing, 1, ncclFloat32, ncclSum, part, rank.native()) == ncclInvalidUsage);
    CHECK_NCCL(ncclCommDestroy(part));
    CHECK(ncclCommDestroy(part) == ncclInvalidArgument);
    int number = 0;
    CHECK(ncclCommCount(part, &number) == ncclInvalidArgument);
  });
}

TEST_CASE("500 communicators made, split and ended leave nothing, and one that is not used takes little") {
  auto const rounds = [](int count, bool used) {
    for (int i = 0; i < count; ++i) {
      forEachNcclRank(2, [&](NcclRank const& rank) {
        ncclComm_t part = nullptr;
        CHECK_NCCL(ncclCommSplit(rank.comm, 0, rank.rank, &part, nullptr));
        if (used) sumOnce(rank, part, 3);
        CHECK_NCCL(ncclCommDestroy(part));
      });
    }
  };
  rounds(1, true);  // what a process makes once
  auto const before = Held::now();
  rounds(10, true);
  checkComesTo(before);
  rounds(240, false);
  checkComesTo(before);

  for (int const ranks : {2, 3, 4, 7, 8}) {
    CAPTURE(ranks);
    std::atomic<int> made = 0;
    std::atomic<bool> looked = false;
    Held unused;
    forEachNcclRank(ranks, [&](NcclRank const& rank) {
      ++made;
      if (rank.rank == 0) {
        while (made != ranks) std::this_thread::yield();
        unused = Held::now();
        looked = true;
      }
      while (!looked) std::this_thread::yield();
    });
    CHECK(unused.mapped <= before.mapped + static_cast<std::size_t>(ranks) * (std::size_t{8} << 20));
  }
}

TEST_CASE("a forked process is told that its communicators are another's") {
  forEachNcclRank(1, [](NcclRank const& rank) {
    int ranks = 0;
    CHECK_NCCL(ncclCommCount(rank.comm, &ranks));
    auto const child = ::fork();
    if (child == 0) ::_exit(ncclCommCount(rank.comm, &ranks));
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == ncclInvalidUsage);
    CHECK_NCCL(ncclCommCount(rank.comm, &ranks));
  });
}

TEST_CASE("memory: allocated, registered, in windows") {
  forEachNcclRank(2, [](NcclRank& rank) {
    void* memory = nullptr;
    CHECK_NCCL(ncclMemAlloc(&memory, count * sizeof(float)));
    REQUIRE(memory != nullptr);
    ncclWindow_t window = nullptr;
    CHECK_NCCL(ncclCommWindowRegister(rank.comm, memory, count * sizeof(float), &window, 1));
    CHECK(window != nullptr);
    auto* const data = static_cast<float*>(memory);
    copyToDevice(rank.device, data, std::span<float const>(std::vector<float>(count, 2)));
    CHECK_NCCL(ncclAllReduce(data, data, count, ncclFloat32, ncclSum, rank.comm, rank.native()));
    rank.stream.synchronize();
    std::vector<float> result(count);
    copyToHost(rank.device, std::span<float>(result), data);
    CHECK(result.back() == 4);
    CHECK_NCCL(ncclCommWindowDeregister(rank.comm, window));
    CHECK(ncclCommWindowDeregister(rank.comm, window) == ncclInvalidArgument);
    void* handle = nullptr;
    CHECK_NCCL(ncclCommRegister(rank.comm, memory, 16, &handle));
    CHECK(handle != nullptr);
    CHECK_NCCL(ncclCommDeregister(rank.comm, handle));
    CHECK(ncclMemFree(data + 1) == ncclInvalidArgument);
    std::thread([&] { CHECK_NCCL(ncclMemFree(memory)); }).join();
    CHECK_NCCL(ncclMemFree(nullptr));
  });
}

TEST_CASE("what cannot be right is refused, in words") {
  CHECK(std::string(ncclGetErrorString(ncclInvalidUsage)).starts_with("invalid usage"));
  CHECK(ncclGetErrorString(4711) != nullptr);
  int number = 0;
  CHECK(ncclCommCount(nullptr, &number) == ncclInvalidArgument);
  CHECK(lastError().find("ncclCommCount: the communicator is a null pointer") != std::string::npos);
  std::vector<char> garbage(4096, 'x');
  CHECK(ncclCommCount(reinterpret_cast<ncclComm_t>(garbage.data()), &number) == ncclInvalidArgument);

  ncclUniqueId id{};
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRank(&comm, 2, id, 2) == ncclInvalidArgument);
  std::memset(id.internal, 7, sizeof id.internal);
  CHECK(ncclCommInitRank(&comm, 2, id, 0) == ncclInvalidUsage);
  CHECK(comm == nullptr);
  CHECK_NCCL(ncclGetUniqueId(&id));
  auto config = configuration();
  config.magic = 1;
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument);
  config = configuration();
  config.minCTAs = 4;
  config.maxCTAs = 2;
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument);
  config = configuration();
  config.size = 16;  // of a caller that knows no more
  CHECK_NCCL(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  CHECK_NCCL(ncclCommDestroy(comm));
  struct Later {  // of a caller that knows more
    ncclConfig_t known;
    int unknown[20];
  } later{configuration(), {7, 7, 7}};
  later.known.size = sizeof later;
  CHECK_NCCL(ncclCommInitRankConfig(&comm, 1, id, 0, &later.known));
  CHECK_NCCL(ncclCommDestroy(comm));
  CHECK(ncclGetLastError(nullptr) != nullptr);

  forEachNcclRank(2, [](NcclRank& rank) {
    Data<float> data(rank.device, count, 1);
    auto* const at = data.data();
    CHECK(ncclAllReduce(at, at, 1, ncclFloat32, 99, rank.comm, rank.native()) == ncclInvalidArgument);
    CHECK(ncclAllReduce(at, at, 1, -1, ncclSum, rank.comm, rank.native()) == ncclInvalidArgument);
    CHECK(ncclAllReduce(at, nullptr, 1, ncclFloat32, ncclSum, rank.comm, rank.native()) == ncclInvalidArgument);
    CHECK(ncclBroadcast(at, at, 1, ncclFloat32, 2, rank.comm, rank.native()) == ncclInvalidArgument);
    CHECK(ncclAllReduce(at, at + 1, 2, ncclFloat32, ncclSum, rank.comm, rank.native()) == ncclInvalidUsage);
    CHECK(lastError().find("overlap") != std::string::npos);
    sumOnce(rank, rank.comm, 3);  // none of it has done harm
  });
}

TEST_CASE("abort waits for no other communicator's work") {
  std::atomic<bool> aborted{false};
  forEachNcclRank(2, [&](NcclRank& rank) {
    ncclComm_t other = nullptr;
    CHECK_NCCL(ncclCommSplit(rank.comm, 0, rank.rank, &other, nullptr));
    sumOnce(rank, rank.comm, 3);
    sumOnce(rank, other, 3);
    Data<float> data(rank.device, count, 1);
    if (rank.rank == 1) {
      CHECK_NCCL(ncclCommAbort(other));
      auto const limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (!aborted && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
      CHECK(aborted);
    }
    // Rank 0's kernel waits until rank 1's is there.
    CHECK_NCCL(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, rank.comm, rank.native()));
    if (rank.rank == 0) {
      CHECK_NCCL(ncclCommAbort(other));
      aborted = true;
    }
    rank.stream.synchronize();
    CHECK(data.are(2));
  });
}
