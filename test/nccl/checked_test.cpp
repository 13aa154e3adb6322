// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL's functions under many schedules, with the checker: compiled with its hooks, as the kernels of float32 here are.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "check/sweep.hpp"
#include "collectives/kernels/device/add_kernels.hpp"
#include "nccl/handle.hpp"
#include "nccl/ranks.hpp"

using namespace check_test;
using namespace mscclpp_test;

namespace {

constexpr std::size_t count = 100;

void prepare() {
  static bool const done = [] {
    collectives_impl::addReductions<float, Sum>(KernelTable::instance());
    collectives_impl::addMoves(KernelTable::instance());
    // Once in a process, so not within what is explored.
    for (int device = 0; device < 3; ++device) nccl::prepareKernels(simDevice(device));
    return true;
  }();
  (void)done;
}

// A communicator of the ranks of an exploration, whose host code has no threads: made and ended without NCCL's
// functions.
class Explored {
 public:
  explicit Explored(Rank& rank) : rank_(rank), handle_(rank.device) {
    handle_.made(std::make_shared<nccl::Comm>(rank.communicator.shrink(members(rank.size))));
  }
  ~Explored() {
    auto comm = handle_.take();
    rank_.stream.synchronize();
    comm->meetLast();
  }
  NcclRank asRank() { return {rank_.rank, rank_.size, handle_.name(), rank_.device, rank_.stream}; }

 private:
  static std::vector<int> members(int size) {
    std::vector<int> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  Rank& rank_;
  nccl::Handle handle_;
};

void explored(int ranks, std::function<void(NcclRank&)> const& body) {
  prepare();
  sweep(ranks, [&](Rank& rank, std::uint64_t) {
    Explored communicator(rank);
    auto self = communicator.asRank();
    body(self);
    self.stream.synchronize();
  });
}

void require(bool right, char const* what) {
  if (!right) throw std::runtime_error(std::string(what) + ": " + lastError());
}

}  // namespace

TEST_CASE("collectives, one after the other and in a group") {
  explored(3, [](NcclRank& rank) {
    Data<float> one(rank.device, count, static_cast<float>(rank.rank + 1));
    Data<float> const all(rank.device, 3 * count, 0);
    require(ncclAllReduce(one.data(), one.data(), count, ncclFloat32, ncclSum, rank.comm, rank.native()) == ncclSuccess,
            "all-reduce");
    require(ncclGroupStart() == ncclSuccess, "group");
    require(ncclAllGather(one.data(), all.data(), count, ncclFloat32, rank.comm, rank.native()) == ncclSuccess,
            "all-gather");
    require(
        ncclReduceScatter(all.data(), one.data(), count, ncclFloat32, ncclSum, rank.comm, rank.native()) == ncclSuccess,
        "reduce-scatter");
    require(ncclGroupEnd() == ncclSuccess, "the group's end");
    rank.stream.synchronize();
    require(one.are(18), "sums of sums");
  });
}

TEST_CASE("a communicator's calls in streams that do not correspond between ranks") {
  explored(3, [](NcclRank& rank) {
    Stream const second(rank.device);
    Data<float> const data(rank.device, count, 1);
    for (int call = 0; call < 3; ++call) {
      auto const& stream = (call + rank.rank) % 2 == 0 ? second : rank.stream;
      require(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, rank.comm, stream.native()) ==
                  ncclSuccess,
              "all-reduce");
    }
    second.synchronize();
    rank.stream.synchronize();
    require(data.are(27), "sums");
  });
}

TEST_CASE("messages, and sums with a factor") {
  explored(3, [](NcclRank& rank) {
    Data<float> const out(rank.device, count, static_cast<float>(rank.rank + 1));
    Data<float> const in(rank.device, count, 0);
    int const next = (rank.rank + 1) % 3, last = (rank.rank + 2) % 3;
    require(ncclGroupStart() == ncclSuccess, "group");
    require(ncclSend(out.data(), count, ncclFloat32, next, rank.comm, rank.native()) == ncclSuccess, "send");
    require(ncclRecv(in.data(), count, ncclFloat32, last, rank.comm, rank.native()) == ncclSuccess, "receive");
    require(ncclGroupEnd() == ncclSuccess, "the group's end");
    float scalar = 2;
    int twice = 0;
    require(ncclRedOpCreatePreMulSum(&twice, &scalar, ncclFloat32, ncclScalarHostImmediate, rank.comm) == ncclSuccess,
            "factor");
    require(ncclAllReduce(in.data(), out.data(), count, ncclFloat32, twice, rank.comm, rank.native()) == ncclSuccess,
            "all-reduce");
    rank.stream.synchronize();
    require(in.are(static_cast<float>(last + 1)), "messages");
    require(out.are(12), "sums");
  });
}

TEST_CASE("large messages, whose memory comes with the first, in either order of the ranks' calls") {
  explored(2, [](NcclRank& rank) {
    constexpr std::size_t large = (1 << 18) + 1;
    Data<float> const out(rank.device, large, static_cast<float>(rank.rank + 1));
    Data<float> const in(rank.device, large, 0);
    int const peer = 1 - rank.rank;
    require(ncclSend(out.data(), large, ncclFloat32, peer, rank.comm, rank.native()) == ncclSuccess, "send");
    require(ncclRecv(in.data(), large, ncclFloat32, peer, rank.comm, rank.native()) == ncclSuccess, "receive");
    rank.stream.synchronize();
    require(in.are(static_cast<float>(peer + 1)), "messages");
  });
}

namespace {

// Each rank puts a number of its own into the next one's window, and sums what it has been put.
float sumOfPuts(NcclRank& rank, bool waits) {
  Data<float> const out(rank.device, count, static_cast<float>(rank.rank + 1));
  Data<float> const in(rank.device, count, 0);
  int const next = (rank.rank + 1) % 3, last = (rank.rank + 2) % 3;
  ncclWindow_t window = nullptr;
  require(ncclCommWindowRegister(rank.comm, in.data(), count * sizeof(float), &window, 1) == ncclSuccess, "window");
  require(
      ncclPutSignal(out.data(), count, ncclFloat32, next, window, 0, 0, 0, 0, rank.comm, rank.native()) == ncclSuccess,
      "put");
  ncclWaitSignalDesc_t wait{1, last, 0, 0};
  if (waits) require(ncclWaitSignal(1, &wait, rank.comm, rank.native()) == ncclSuccess, "wait");
  require(ncclAllReduce(in.data(), out.data(), count, ncclFloat32, ncclSum, rank.comm, rank.native()) == ncclSuccess,
          "all-reduce");
  rank.stream.synchronize();
  require(ncclCommWindowDeregister(rank.comm, window) == ncclSuccess, "window");
  return out.values().back();
}

}  // namespace

TEST_CASE("puts with signals: what a wait has seen has come") {
  explored(3, [](NcclRank& rank) { require(sumOfPuts(rank, true) == 6, "sums"); });
}

TEST_CASE("a put that nobody waits for is found") {
  prepare();
  auto const result = exploreRanks({3, {}},
                                   [](Rank& rank) {
                                     Explored communicator(rank);
                                     auto self = communicator.asRank();
                                     (void)sumOfPuts(self, false);
                                   },
                                   {.schedules = 50});
  CHECK(std::ranges::any_of(result.findings, [](auto const& one) { return one.kind == sim::FindingKind::race; }));
}
