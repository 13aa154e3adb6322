// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Processes whose plan folders differ: both are told, by name of the rank, before they could choose unlike.
#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "dsl/programs.hpp"
#include "mscclpp/dsl/plan_json.hpp"
#include "nccl/ranks.hpp"
#include "support/temporary_folder.hpp"

using namespace mscclpp_test;

namespace {

// Whether the communicator is refused for its plans, as rank `rank` of two.
bool isRefused(ncclUniqueId const& id, int rank) {
  mscclppNcclSimSetDevice(rank);
  ncclComm_t comm = nullptr;
  auto const code = ncclCommInitRank(&comm, 2, id, rank);
  return code == ncclInvalidUsage && lastError().find("has other plans in") != std::string::npos;
}

}  // namespace

TEST_CASE("ranks with other plans make no communicator") {
  TemporaryFolder const temporary;
  auto const& folder = temporary.path();
  std::filesystem::create_directories(folder / "mine" / "default");
  std::ofstream(folder / "mine" / "default" / "plan.json") << dsl::toJson<dsl_test::TwoShotPackets<2>>();
  int ids[2];
  REQUIRE(::pipe(ids) == 0);
  // Before this process has threads.
  auto const child = ::fork();
  if (child == 0) {
    ::setenv("MSCCLPP_CACHE_DIR", (folder / "theirs").c_str(), 1);
    ncclUniqueId id{};
    ::_exit(::read(ids[0], &id, sizeof id) == sizeof id && isRefused(id, 1) ? 0 : 1);
  }
  ::setenv("MSCCLPP_CACHE_DIR", (folder / "mine").c_str(), 1);
  ncclUniqueId id{};
  CHECK_NCCL(ncclGetUniqueId(&id));
  REQUIRE(::write(ids[1], &id, sizeof id) == sizeof id);
  CHECK_MESSAGE(isRefused(id, 0), lastError());
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
