// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What NCCL's interface says of a kernel that waits for a rank in vain.
#include <doctest/doctest.h>

#include <cstdlib>

#include "nccl/ranks.hpp"

using namespace mscclpp_test;

namespace {

constexpr std::size_t count = 1000;

// Read at its first use.
int const set = ::setenv("MSCCLPP_KERNEL_TIMEOUT", "0.5", 1);

}  // namespace

TEST_CASE("a kernel that gives up is an error of its communicator, with who was waited for") {
  REQUIRE(set == 0);
  forEachNcclRank(2, [](NcclRank& rank) {
    ncclComm_t other = nullptr;
    CHECK_NCCL(ncclCommSplit(rank.comm, 0, rank.rank, &other, nullptr));
    Data<float> data(rank.device, count, 1);
    auto const reduce = [&](ncclComm_t comm) {
      return ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, comm, rank.native());
    };
    CHECK_NCCL(reduce(other));
    rank.stream.synchronize();
    CHECK(data.are(2));
    if (rank.rank == 0) {
      CHECK_NCCL(reduce(other));
      rank.stream.synchronize();
      auto error = ncclSuccess;
      CHECK_NCCL(ncclCommGetAsyncError(other, &error));
      CHECK(error == ncclRemoteError);
      CHECK(std::string(ncclGetLastError(other)).find("of rank 1") != std::string::npos);
      CHECK(reduce(other) == ncclRemoteError);
    }
    // Rank 1's memory stays until rank 0, whose kernel writes there, has left too.
    CHECK_NCCL(ncclCommAbort(other));
    data.set(std::vector<float>(count, 1));
    CHECK_NCCL(reduce(rank.comm));
    rank.stream.synchronize();
    CHECK(data.are(2));
  });
}
