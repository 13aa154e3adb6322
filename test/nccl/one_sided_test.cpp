// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL's one-sided operations: puts into windows of other ranks, signals, and waits for them.
#include <doctest/doctest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "nccl/ranks.hpp"

using namespace mscclpp_test;

namespace {

constexpr int ranks = 3;
constexpr std::size_t count = 1000;

// Memory of NCCL's, in a symmetric window.
struct Shared {
  Shared(NcclRank const& owner, std::size_t floats) : rank(owner) {
    CHECK_NCCL(ncclMemAlloc(&memory, floats * sizeof(float)));
    CHECK_NCCL(ncclCommWindowRegister(rank.comm, memory, floats * sizeof(float), &window, 1));
  }
  ~Shared() {
    rank.stream.synchronize();
    CHECK_NCCL(ncclCommWindowDeregister(rank.comm, window));
    CHECK_NCCL(ncclMemFree(memory));
  }
  std::vector<float> values(std::size_t floats) const {
    std::vector<float> result(floats);
    copyToHost(rank.device, std::span<float>(result), static_cast<float const*>(memory));
    return result;
  }

  NcclRank const& rank;
  void* memory = nullptr;
  ncclWindow_t window = nullptr;
};

}  // namespace

TEST_CASE("an all-to-all of puts, in a group with its waits") {
  forEachNcclRank(ranks, [](NcclRank& rank) {
    Data<float> const out(rank.device, std::vector<float>(count * ranks, static_cast<float>(rank.rank + 1)));
    Shared const in(rank, count * ranks);
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<ncclWaitSignalDesc_t> waits;
      CHECK_NCCL(ncclGroupStart());
      for (int peer = 0; peer < ranks; ++peer) waits.push_back({1, peer, 0, 0});
      // A wait that were begun ahead of the puts would never end.
      CHECK_NCCL(ncclWaitSignal(ranks, waits.data(), rank.comm, rank.native()));
      for (int peer = 0; peer < ranks; ++peer) {
        auto const part = static_cast<std::size_t>(peer) * count;
        auto const place = static_cast<std::size_t>(rank.rank) * count * sizeof(float);
        CHECK_NCCL(ncclPutSignal(out.data() + part, count, ncclFloat32, peer, in.window, place, 0, 0, 0, rank.comm,
                                 rank.native()));
      }
      CHECK_NCCL(ncclGroupEnd());
      rank.stream.synchronize();
      auto const got = in.values(count * ranks);
      for (int peer = 0; peer < ranks; ++peer) CHECK(got[static_cast<std::size_t>(peer + 1) * count - 1] == peer + 1);
      // Nobody puts again before all have looked.
      Data<float> data(rank.device, 1, 1);
      CHECK_NCCL(ncclAllReduce(data.data(), data.data(), 1, ncclFloat32, ncclSum, rank.comm, rank.native()));
      rank.stream.synchronize();
    }
  });
}

TEST_CASE("signals are counted for each rank, index and context") {
  forEachNcclRank(2, [](NcclRank& rank) {
    int const peer = 1 - rank.rank;
    Stream const second(rank.device);
    if (rank.rank == 0) {
      for (int i = 0; i < 3; ++i) CHECK_NCCL(ncclSignal(peer, 1, 2, 0, rank.comm, rank.native()));
      ncclWaitSignalDesc_t wait{1, peer, 0, 0};
      CHECK_NCCL(ncclWaitSignal(1, &wait, rank.comm, rank.native()));
      rank.stream.synchronize();
    } else {
      ncclWaitSignalDesc_t other{1, peer, 2, 1};
      ncclWaitSignalDesc_t three{3, peer, 1, 2};
      CHECK_NCCL(ncclWaitSignal(1, &three, rank.comm, rank.native()));
      rank.stream.synchronize();
      CHECK_NCCL(ncclWaitSignal(1, &other, rank.comm, second.native()));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      CHECK_FALSE(second.idle());                                            // those of index 1 are none of index 2
      CHECK_NCCL(ncclSignal(rank.rank, 2, 1, 0, rank.comm, rank.native()));  // nor are those of another rank
      rank.stream.synchronize();
      CHECK_FALSE(second.idle());
      CHECK_NCCL(ncclSignal(peer, 0, 0, 0, rank.comm, rank.native()));  // now the other rank sends the last
      rank.stream.synchronize();
    }
    if (rank.rank == 0) CHECK_NCCL(ncclSignal(peer, 2, 1, 0, rank.comm, rank.native()));
    rank.stream.synchronize();
    second.synchronize();
  });
}

TEST_CASE("abort ends a wait for a signal") {
  forEachNcclRank(2, [](NcclRank& rank) {
    ncclComm_t other = nullptr;
    CHECK_NCCL(ncclCommSplit(rank.comm, 0, rank.rank, &other, nullptr));
    ncclWaitSignalDesc_t wait{1, 1 - rank.rank, 0, 0};
    CHECK_NCCL(ncclWaitSignal(1, &wait, other, rank.native()));
    CHECK_NCCL(ncclCommAbort(other));
    rank.stream.synchronize(std::chrono::seconds(5));
  });
}

TEST_CASE("one-sided operations that cannot be right are refused, in words") {
  forEachNcclRank(2, [](NcclRank& rank) {
    Data<float> const data(rank.device, count, 1);
    Shared const shared(rank, count);
    ncclWindow_t local = nullptr;
    CHECK_NCCL(ncclCommWindowRegister(rank.comm, data.data(), count * sizeof(float), &local, 0));
    auto const put = [&](int peer, ncclWindow_t window, std::size_t offset, int signal, unsigned flags) {
      return ncclPutSignal(data.data(), count, ncclFloat32, peer, window, offset, signal, 0, flags, rank.comm,
                           rank.native());
    };
    CHECK(put(2, shared.window, 0, 0, 0) == ncclInvalidArgument);
    CHECK(lastError().find("peer 2; there are ranks 0 to 1") != std::string::npos);
    CHECK(put(0, shared.window, 4, 0, 0) == ncclInvalidArgument);
    CHECK(lastError().find("4000 bytes from byte 4 on into a window of 4000") != std::string::npos);
    CHECK(put(0, shared.window, ~std::size_t{0}, 0, 0) == ncclInvalidArgument);
    CHECK(put(0, shared.window, 0, 8, 0) == ncclInvalidArgument);
    CHECK(lastError().find("signal 8 of context 0; there are 0 to 7") != std::string::npos);
    CHECK(put(0, shared.window, 0, 0, 1) == ncclInvalidArgument);
    CHECK(put(0, local, 0, 0, 0) == ncclInvalidArgument);
    CHECK(lastError().find("NCCL_WIN_COLL_SYMMETRIC") != std::string::npos);
    CHECK(put(0, nullptr, 0, 0, 0) == ncclInvalidArgument);
    CHECK(ncclPutSignal(nullptr, 1, ncclFloat32, 0, shared.window, 0, 0, 0, 0, rank.comm, rank.native()) ==
          ncclInvalidArgument);
    ncclWaitSignalDesc_t none{0, 0, 0, 0};
    CHECK(ncclWaitSignal(1, &none, rank.comm, rank.native()) == ncclInvalidArgument);
    CHECK(ncclWaitSignal(1, nullptr, rank.comm, rank.native()) == ncclInvalidArgument);
    CHECK(ncclSignal(-1, 0, 0, 0, rank.comm, rank.native()) == ncclInvalidArgument);
    // A group with one of them starts nothing.
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclSignal(1 - rank.rank, 0, 0, 0, rank.comm, rank.native()));
    CHECK(put(2, shared.window, 0, 0, 0) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK_NCCL(ncclCommWindowDeregister(rank.comm, local));
  });
}

TEST_CASE("a window knows its memory, and that of the other ranks") {
  forEachNcclRank(2, [](NcclRank& rank) {
    Shared const shared(rank, count);
    void* other = nullptr;
    CHECK_NCCL(ncclGetPeerDevicePointer(shared.window, 4, 1 - rank.rank, &other));
    copyToDevice(rank.device, static_cast<float*>(other), std::span<float const>(std::vector<float>(1, 7)));
    Data<float> const data(rank.device, 1, 1);  // when both have written
    CHECK_NCCL(ncclAllReduce(data.data(), data.data(), 1, ncclFloat32, ncclSum, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(shared.values(2) == std::vector<float>{0, 7});
    void* own = nullptr;
    CHECK_NCCL(ncclGetLsaDevicePointer(shared.window, 0, rank.rank, &own));
    CHECK(own == shared.memory);
    CHECK(ncclGetPeerDevicePointer(nullptr, 0, 0, &other) == ncclInvalidArgument);
    CHECK(ncclGetPeerDevicePointer(shared.window, 0, 2, &other) == ncclInvalidArgument);
    CHECK(ncclGetPeerDevicePointer(shared.window, count * sizeof(float), 0, &other) == ncclInvalidArgument);
    ncclWindow_t local = nullptr;
    CHECK_NCCL(ncclCommWindowRegister(rank.comm, data.data(), sizeof(float), &local, 0));
    CHECK(ncclGetLsaDevicePointer(local, 0, 0, &other) == ncclInvalidArgument);
    CHECK_NCCL(ncclCommWindowDeregister(rank.comm, local));
    void* place = nullptr;
    CHECK_NCCL(ncclWinGetUserPtr(rank.comm, shared.window, &place));
    CHECK(place == shared.memory);
    CHECK(ncclWinGetUserPtr(rank.comm, nullptr, &place) == ncclInvalidArgument);
    CHECK(ncclWinGetUserPtr(rank.comm, shared.window, nullptr) == ncclInvalidArgument);
  });
}
