// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What goes to NVIDIA's own library behind this one, for which another stands in.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>

#include "fake_nccl.hpp"
#include "nccl/fallback/real_nccl.hpp"
#include "nccl/ranks.hpp"
#include "nccl/result.hpp"

using namespace mscclpp_test;

namespace {

constexpr std::size_t count = 1000;

// Read at their first use.
int const set = ::setenv("MSCCLPP_NCCL_LIB_PATH", TEST_FAKE_NCCL, 1) +
                ::setenv("MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION", "allgather,send,reduce,alltoall,broadcast", 1);

// It is loaded here first, by a program whose own ncclGetVersion it then finds, as under PyTorch.
FakeCalls calls() {
  static void* const handle = ::dlopen(TEST_FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(handle != nullptr);
  return reinterpret_cast<FakeCalls (*)()>(::dlsym(handle, "fakeCalls"))();
}

}  // namespace

TEST_CASE("what is forced goes there, all else does not, and a communicator there is made when it is needed") {
  REQUIRE(set == 0);
  auto const before = calls();
  forEachNcclRank(2, [&](NcclRank& rank) {
    Data<float> in(rank.device, count, static_cast<float>(rank.rank + 1));
    Data<float> out(rank.device, 2 * count, 0);
    CHECK_NCCL(ncclAllReduce(in.data(), out.data(), count, ncclFloat32, ncclSum, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(out.values().front() == 3);
    CHECK(calls().made == before.made);

    CHECK_NCCL(ncclAllGather(in.data(), out.data(), count, ncclFloat32, rank.comm, rank.native()));
    CHECK(out.are(fakeResult));
    CHECK(calls().made > before.made);

    // Both ways in one group.
    out.set(std::vector<float>(2 * count, 0));
    CHECK_NCCL(ncclGroupStart());
    CHECK_NCCL(ncclAllReduce(in.data(), in.data(), count, ncclFloat32, ncclMax, rank.comm, rank.native()));
    CHECK_NCCL(ncclSend(in.data(), count, ncclFloat32, 1 - rank.rank, rank.comm, rank.native()));
    CHECK_NCCL(ncclRecv(out.data(), count, ncclFloat32, 1 - rank.rank, rank.comm, rank.native()));
    CHECK_NCCL(ncclGroupEnd());
    rank.stream.synchronize();
    CHECK(in.are(2));
    CHECK(out.values()[count - 1] == fakeResult);
    CHECK(out.values()[count] == 0);

    float scalar = 5;
    int op = 0;
    CHECK_NCCL(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, rank.comm));
    CHECK_NCCL(ncclReduce(in.data(), rank.rank == 0 ? out.data() : nullptr, count, ncclFloat32, op, 0, rank.comm,
                          rank.native()));
    CHECK(calls().factor == 5);

    ncclResult_t error = ncclInternalError;
    CHECK_NCCL(ncclCommGetAsyncError(rank.comm, &error));
    CHECK(error == ncclSuccess);
  });
  CHECK(calls().made == before.made + 2);
  CHECK(calls().destroyed == before.destroyed + 2);
}

TEST_CASE("what fails there is told in its words, and what it lacks in this library's") {
  forEachNcclRank(2, [](NcclRank& rank) {
    Data<float> data(rank.device, 2 * count, 1);
    CHECK(ncclBroadcast(data.data(), data.data(), count, ncclFloat32, 0, rank.comm, rank.native()) == ncclSystemError);
    CHECK(lastError().find("broadcast failed: the fake's words") != std::string::npos);
    Data<float> out(rank.device, 2 * count, 1);
    CHECK(ncclAlltoAll(data.data(), out.data(), count, ncclFloat32, rank.comm, rank.native()) == ncclInvalidUsage);
    CHECK(lastError().find("NCCL 22700 has no alltoall") != std::string::npos);
    CHECK_NCCL(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(data.values().front() == 2);
  });
}

TEST_CASE("abort reaches it") {
  auto const before = calls().aborted;
  forEachNcclRank(2, [](NcclRank& rank) {
    ncclComm_t part = nullptr;
    CHECK_NCCL(ncclCommSplit(rank.comm, 0, rank.rank, &part, nullptr));
    Data<float> in(rank.device, count, 1);
    Data<float> out(rank.device, 2 * count, 1);
    CHECK_NCCL(ncclAllGather(in.data(), out.data(), count, ncclFloat32, part, rank.native()));
    CHECK_NCCL(ncclCommAbort(part));
  });
  CHECK(calls().aborted == before + 2);
}

TEST_CASE("lists of what is forced") {
  using mscclpp::nccl::Forced;
  CHECK(Forced::parse("").bits() == 0);
  CHECK(Forced::parse("allreduce,recv").holds(Collective::sendRecv));
  CHECK_FALSE(Forced::parse("allreduce,recv").holds(Collective::allGather));
  CHECK(Forced::parse("all").holds(Collective::scatter));
  CHECK_THROWS_WITH_AS(Forced::parse("allreduce,allrduce"), doctest::Contains("there is no allrduce; name allreduce"),
                       mscclpp::nccl::Refusal);
}
