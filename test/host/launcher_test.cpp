// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/launcher.hpp"

#include <doctest/doctest.h>

#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "host/bootstrap/rendezvous.hpp"
#include "host/bootstrap_checks.hpp"
#include "host/net/socket.hpp"
#include "host/ranks.hpp"
#include "mscclpp/host/log.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

using Variables = std::map<std::string, std::string>;

LaunchInfo detect(Variables const& variables) {
  return detectLaunch([&](std::string const& name) -> std::optional<std::string> {
    auto const found = variables.find(name);
    if (found == variables.end()) return {};
    return found->second;
  });
}

std::string uniqueKey(std::string const& name) { return name + std::to_string(::getpid()); }

}  // namespace

// First, while this process has no threads.
TEST_CASE("processes of one host meet by a torchrun-style environment, twice") {
  std::string const run = uniqueKey("run");
  auto const texts = runProcesses(4, [&](int rank) -> std::string {
    for (auto const& [name, value] : Variables{{"RANK", std::to_string(rank)},
                                               {"WORLD_SIZE", "4"},
                                               {"LOCAL_RANK", std::to_string(rank)},
                                               {"LOCAL_WORLD_SIZE", "4"},
                                               {"MASTER_ADDR", "127.0.0.1"},
                                               {"MASTER_PORT", "29500"},
                                               {"TORCHELASTIC_RUN_ID", run}}) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
    auto const first = bootstrapFromEnvironment(20s);
    auto const second = bootstrapFromEnvironment(20s);
    if (first->getRank() != rank || second->getNranks() != 4) return "wrong rank or size";
    std::string const wrong = exerciseBootstrap(*second);
    return wrong.empty() ? exerciseBootstrap(*first) : wrong;
  });
  for (auto const& text : texts) CHECK(text == "");
}

TEST_CASE("processes meet by an address") {
  std::string const address = [] {  // a port that is free, now
    FileHandle const listener = listenOn("test", resolve("127.0.0.1", 0).front());
    return localAddress(listener.get()).toString();
  }();
  auto const texts = runProcesses(3, [&](int rank) -> std::string {
    ::setenv("MSCCLPP_RANK", std::to_string(rank).c_str(), 1);
    ::setenv("MSCCLPP_WORLD_SIZE", "3", 1);
    ::setenv("MSCCLPP_COMM_ID", address.c_str(), 1);
    return exerciseBootstrap(*bootstrapFromEnvironment(20s));
  });
  for (auto const& text : texts) CHECK(text == "");
}

TEST_CASE("a process by itself is rank 0 of 1") {
  LaunchInfo const info = detect({});
  CHECK(info.launcher == "none");
  CHECK(info.rank == 0);
  CHECK(info.size == 1);
  auto const bootstrap = bootstrapFor(info, 0, 1s);
  CHECK(bootstrap->getNranks() == 1);
  bootstrap->barrier();
}

TEST_CASE("torchrun") {
  Variables variables{{"RANK", "3"},         {"WORLD_SIZE", "8"},      {"LOCAL_RANK", "1"},
                      {"MASTER_ADDR", "h0"}, {"MASTER_PORT", "29500"}, {"LOCAL_WORLD_SIZE", "2"}};
  LaunchInfo info = detect(variables);
  CHECK(info.launcher == "torchrun");
  CHECK(info.rank == 3);
  CHECK(info.size == 8);
  CHECK(info.localRank == 1);
  // MASTER_PORT itself is torchrun's.
  CHECK(info.address == "h0:29617");
  CHECK(info.rendezvousKey.empty());
  variables["MASTER_PORT"] = "65535";
  CHECK(detect(variables).address == "h0:65418");
  variables["MSCCLPP_MASTER_PORT"] = "7000";
  CHECK(detect(variables).address == "h0:7000");
  variables["MASTER_ADDR"] = "fe00::1";
  CHECK(detect(variables).address == "[fe00::1]:7000");

  variables["LOCAL_WORLD_SIZE"] = "8";
  info = detect(variables);
  CHECK(info.address.empty());
  CHECK_FALSE(info.rendezvousKey.empty());
  // Another run, and another attempt of the same run, meet elsewhere.
  variables["TORCHELASTIC_RUN_ID"] = "a";
  std::string const first = detect(variables).rendezvousKey;
  variables["TORCHELASTIC_RESTART_COUNT"] = "1";
  CHECK(first != info.rendezvousKey);
  CHECK(detect(variables).rendezvousKey != first);
  variables["MSCCLPP_COMM_ID"] = "eth0:10.0.0.1:99";
  CHECK(detect(variables).address == "eth0:10.0.0.1:99");
  CHECK(detect(variables).rendezvousKey.empty());
}

TEST_CASE("Open MPI") {
  Variables variables{{"OMPI_COMM_WORLD_RANK", "2"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                      {"PMIX_NAMESPACE", "123456"}};
  LaunchInfo const info = detect(variables);
  CHECK(info.launcher == "openmpi");
  CHECK(info.rank == 2);
  CHECK(info.localRank == 2);
  CHECK(info.rendezvousKey == "openmpi 123456");
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  auto const error = errorOf([&] { detect(variables); });
  CHECK_MESSAGE(mentions(error, "MSCCLPP_COMM_ID"), textOf(error));
  variables["MSCCLPP_MASTER_ADDR"] = "node7";
  CHECK(detect(variables).address == "node7:29720");
  variables["MSCCLPP_MASTER_PORT"] = "1234";
  CHECK(detect(variables).address == "node7:1234");
}

TEST_CASE("SLURM") {
  Variables variables{{"SLURM_PROCID", "5"},        {"SLURM_NTASKS", "8"},
                      {"SLURM_LOCALID", "1"},       {"SLURM_STEP_NODELIST", "node[01-04]"},
                      {"SLURM_JOB_ID", "77"},       {"SLURM_STEP_ID", "2"},
                      {"SLURM_STEP_NUM_NODES", "4"}};
  LaunchInfo info = detect(variables);
  CHECK(info.launcher == "slurm");
  CHECK(info.rank == 5);
  CHECK(info.localRank == 1);
  CHECK(info.address == "node01:22401");
  variables["SLURM_STEP_NUM_NODES"] = "1";
  CHECK(detect(variables).rendezvousKey == "slurm 77.2");
  // mpirun within a SLURM job is Open MPI's.
  variables["OMPI_COMM_WORLD_RANK"] = "0";
  variables["OMPI_COMM_WORLD_SIZE"] = "1";
  CHECK(detect(variables).launcher == "openmpi");
}

TEST_CASE("first hosts of SLURM lists") {
  CHECK(firstHostOf("node[01-04]") == "node01");
  CHECK(firstHostOf("node[01-04,07],other") == "node01");
  CHECK(firstHostOf("a") == "a");
  CHECK(firstHostOf("a,b") == "a");
  CHECK(firstHostOf("gpu-[3,5-7]") == "gpu-3");
  CHECK(firstHostOf("rack[1-2]node[03-04],x") == "rack1node03");
  CHECK(firstHostOf("n[007]-ib,m") == "n007-ib");
  for (char const* bad : {"", "node[01-04", ",a", "n[1[2]]"}) {
    CAPTURE(bad);
    CHECK(mentions(errorOf([&] { firstHostOf(bad); }), bad));
  }
}

TEST_CASE("contradictions are named") {
  CHECK(mentions(errorOf([] { detect({{"MSCCLPP_RANK", "1"}}); }), "MSCCLPP_WORLD_SIZE is not"));
  CHECK(mentions(errorOf([] { detect({{"MSCCLPP_RANK", "2"}, {"MSCCLPP_WORLD_SIZE", "2"}}); }), "contradict"));
  CHECK(mentions(errorOf([] { detect({{"RANK", "x"}, {"WORLD_SIZE", "2"}}); }), "RANK=\"x\""));
  CHECK(mentions(errorOf([] { detect({{"MSCCLPP_RANK", "0"}, {"MSCCLPP_WORLD_SIZE", "2"}}); }), "MSCCLPP_COMM_ID"));
  CHECK(mentions(errorOf([] {
                   detect({{"MSCCLPP_RANK", "0"}, {"MSCCLPP_WORLD_SIZE", "2"}, {"MSCCLPP_COMM_ID", "nonsense"}});
                 }),
                 "nonsense"));
  // RANK alone is somebody else's variable.
  CHECK(detect({{"RANK", "5"}}).launcher == "none");
  CHECK(detect({{"MSCCLPP_RANK", "0"}, {"MSCCLPP_WORLD_SIZE", "1"}}).size == 1);
}

TEST_CASE("the meeting point: missing ranks, no rank 0, other sizes, strangers") {
  setLogLevel(LogLevel::off);
  UniqueId const id = UniqueId::create("127.0.0.1", 1);
  std::string key = uniqueKey("missing");
  auto errors = runThreads(2, [&](int rank) {
    if (rank == 0) {
      handOut(id, key, 4, 500ms);
    } else if (!(fetchUniqueId(key, 1, 4, 5s) == id)) {
      throw Error(ErrorCode::internalError, "another id");
    }
  });
  REQUIRE(errors[0].has_value());
  CHECK(errors[0]->code() == ErrorCode::timeout);
  CHECK_MESSAGE(mentions(errors[0], "2, 3"), errors[0]->what());
  CHECK(textOf(errors[1]) == "no error");

  auto const alone = errorOf([&] { fetchUniqueId(uniqueKey("nobody"), 1, 2, 200ms); });
  REQUIRE(alone.has_value());
  CHECK(alone->code() == ErrorCode::timeout);
  CHECK_MESSAGE(mentions(alone, "rank 1: rank 0 of job"), alone->what());

  key = uniqueKey("sizes");
  errors = runThreads(3, [&](int rank) {
    if (rank == 0) handOut(id, key, 2, 5s);
    if (rank == 1) {
      std::this_thread::sleep_for(200ms);
      fetchUniqueId(key, 1, 2, 5s);
    }
    if (rank == 2) fetchUniqueId(key, 2, 3, 5s);
  });
  CHECK(textOf(errors[0]) == "no error");
  CHECK(textOf(errors[1]) == "no error");
  CHECK_MESSAGE(mentions(errors[2], "has 2 ranks, but this rank was told 3"), textOf(errors[2]));

  key = uniqueKey("taken");
  errors = runThreads(2, [&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(100ms);
    handOut(id, key, 2, 400ms);
  });
  CHECK(mentions(errors[1], "another rank 0"));
}
