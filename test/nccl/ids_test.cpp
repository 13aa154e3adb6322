// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ids that are made by a process which is not rank 0, or none of the ranks.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "nccl/ranks.hpp"

using namespace mscclpp_test;

namespace {

// Rank `rank` of two, in this process.
bool sumsRight(ncclUniqueId const& id, int rank) {
  mscclppNcclSimSetDevice(rank);
  ncclComm_t comm = nullptr;
  if (ncclCommInitRank(&comm, 2, id, rank) != ncclSuccess) return false;
  Stream const stream(simDevice(rank));
  Data<float> data(simDevice(rank), 1000, static_cast<float>(rank + 1));
  bool const started =
      ncclAllReduce(data.data(), data.data(), 1000, ncclFloat32, ncclSum, comm, stream.native()) == ncclSuccess;
  stream.synchronize();
  return started && data.are(3) && ncclCommDestroy(comm) == ncclSuccess;
}

struct Pipe {
  Pipe() { REQUIRE(::pipe(ends) == 0); }
  ~Pipe() {
    for (int const end : ends) ::close(end);
  }
  bool give(ncclUniqueId const& id) const { return ::write(ends[1], &id, sizeof id) == sizeof id; }
  ncclUniqueId take() const {
    ncclUniqueId id{};
    if (::read(ends[0], &id, sizeof id) != sizeof id) id = {};
    return id;
  }
  int ends[2]{};
};

int statusOf(pid_t child) {
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// This process has no threads when it forks.
template <class Body>
pid_t inChild(Body body) {
  auto const child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  return child;
}

}  // namespace

TEST_CASE("rank 1 makes it, in a process of its own") {
  Pipe const ids;
  auto const zero = inChild([&] { return sumsRight(ids.take(), 0); });
  auto const one = inChild([&] {
    ncclUniqueId id{};
    return ncclGetUniqueId(&id) == ncclSuccess && ids.give(id) && sumsRight(id, 1);
  });
  CHECK(statusOf(zero) == 0);
  CHECK(statusOf(one) == 0);
}

TEST_CASE("a process makes it that is none of the ranks, and has ended before they meet") {
  Pipe const ids;
  auto const maker = inChild([&] {
    ncclUniqueId id{};
    return ncclGetUniqueId(&id) == ncclSuccess && ids.give(id);
  });
  REQUIRE(statusOf(maker) == 0);
  auto const id = ids.take();
  auto const zero = inChild([&] { return sumsRight(id, 0); });
  auto const one = inChild([&] { return sumsRight(id, 1); });
  CHECK(statusOf(zero) == 0);
  CHECK(statusOf(one) == 0);
}

TEST_CASE("many ids are live at once, whatever else is in their bytes, and those that nobody uses harm nothing") {
  std::vector<ncclUniqueId> ids(20);
  for (auto& id : ids) {
    std::memset(id.internal, 0x5a, sizeof id.internal);
    CHECK_NCCL(ncclGetUniqueId(&id));
  }
  for (std::size_t const used : {std::size_t{7}, std::size_t{0}, std::size_t{19}}) {
    onThreads(2, [&](int rank) { CHECK(sumsRight(ids[used], rank)); });
  }
}
