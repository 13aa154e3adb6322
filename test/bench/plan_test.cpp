// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/plan.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "machine/timer.hpp"
#include "mscclpp/collectives/kernel_table.hpp"

using namespace mscclpp;
using namespace mscclpp::bench;

namespace {

void nothing(KernelCall const&) {}
layout::WorkspaceRequirement noWorkspace(std::uint32_t, std::uint32_t blocks, std::uint32_t) {
  return {.blocks = blocks};
}
LaunchShape shapeOf16Bytes(std::uint32_t, std::uint64_t bytes, std::uint32_t maxBlocks) {
  return {.blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(1 + bytes / 2048, maxBlocks)), .threads = 128};
}

// The kernels of a build, for both machines and with none of their code; of the other collectives a few.
void fillTable() {
  auto& table = KernelTable::instance();
  auto const there = table.has(DeviceKind::sim) ? DeviceKind::sim : DeviceKind::cuda;
  Kernel const plain{.start = &nothing, .requirement = &noWorkspace, .shape = &shapeOf16Bytes};
  auto packets = plain;
  packets.overlaps = true;
  packets.needsWholeLines = true;
  packets.minThreads = 32;
  auto direct = plain;
  direct.outputWindow = true;
  direct.inPlace = false;
  direct.maxThreads = 256;
  for (auto machine : {DeviceKind::sim, DeviceKind::cuda}) {
    for (auto type : dataTypes) {
      for (auto const& name : table.algorithms(there, Collective::allReduce, type, ReduceOp::sum)) {
        auto kernel = *table.find({there, Collective::allReduce, name, type, ReduceOp::sum});
        kernel.start = &nothing;
        table.add({machine, Collective::allReduce, name, type, ReduceOp::sum}, kernel);
      }
      table.add({machine, Collective::reduceScatter, "test_ll128", type, ReduceOp::sum}, packets);
    }
    for (auto collective : {Collective::allGather, Collective::allToAll, Collective::scatter}) {
      table.add({machine, collective, "test_ll128"}, packets);
      table.add({machine, collective, "test_direct"}, direct);
    }
  }
}

World const simulated{.machine = DeviceKind::sim, .ranks = 4, .maxBlocks = 4};
World const onGpus{.machine = DeviceKind::cuda, .ranks = 4, .maxBlocks = 288};

World torn() {
  auto world = simulated;
  world.wholeLines = false;
  return world;
}

Plan wholePlan(std::vector<std::string> const& arguments, World const& world = simulated) {
  fillTable();
  return planCases(parseCommandLine(arguments).options, world, AlgorithmCollection::defaults());
}

std::vector<Case> plan(std::vector<std::string> const& arguments, World const& world = simulated) {
  return wholePlan(arguments, world).cases;
}

}  // namespace

TEST_CASE("sizes go from the smallest to the largest by the factor") {
  auto const cases = plan({"--min-bytes=1K", "--max-bytes=100K", "--factor=4", "--dtype=float32"});
  std::vector<std::uint64_t> sizes;
  for (auto const& item : cases) sizes.push_back(item.bytes());
  CHECK(sizes == std::vector<std::uint64_t>{1024, 4096, 16384, 65536});
  CHECK(plan({}).back().bytes() == 1u << 20);
  CHECK(plan({}, onGpus).back().bytes() == 1u << 30);
}

TEST_CASE("a size that is no multiple of the element is rounded down, and the name tells the true one") {
  auto const cases = plan({"--min-bytes=1001", "--max-bytes=1001", "--dtype=float64", "--algorithm=twoshot_memory"});
  REQUIRE(cases.size() == 1);
  CHECK(cases[0].count == 125);
  CHECK(cases[0].name() == "allreduce/twoshot_memory/float64/sum/1000");
}

TEST_CASE("the automatic choice is the library's") {
  auto const algorithms = AlgorithmCollection::defaults();
  std::vector<std::byte> in(16);
  std::vector<std::byte> out(16);
  for (auto world : {simulated, onGpus, torn()}) {
    world.planned = true;
    for (auto const& item : plan({"--collective=allreduce,allgather", "--min-bytes=16", "--max-bytes=16"}, world)) {
      auto const chosen = algorithms.resolve(item.collective, world, item.call(4, in.data(), out.data(), 0));
      CHECK(item.by->name() == chosen.algorithm->name());
      REQUIRE(chosen.launch);
      CHECK(item.launch->shape.blocks == chosen.launch->shape.blocks);
      CHECK(item.launch->shape.threads == chosen.launch->shape.threads);
    }
  }
}

TEST_CASE("all means every algorithm that the links and the type allow") {
  auto const names = [](std::vector<Case> const& cases) {
    std::set<std::string> result;
    for (auto const& item : cases) result.insert(item.algorithm());
    return result;
  };
  CHECK(names(plan({"--algorithm=all", "--max-bytes=1K"})).size() ==
        KernelTable::instance()
            .algorithms(DeviceKind::sim, Collective::allReduce, DataType::bfloat16, ReduceOp::sum)
            .size());
  auto const pcie = names(plan({"--algorithm=all", "--max-bytes=1K"}, torn()));
  CHECK(pcie.count("oneshot_ll128") == 0);
  CHECK(pcie.count("twoshot_ll16") == 1);
  CHECK(names(plan({"--algorithm=all", "--max-bytes=1K", "--dtype=int64"})).count("twoshot_ll8") == 0);
  CHECK_THROWS_AS(plan({"--algorithm=twoshot_ll128"}, torn()), UsageError);
}

TEST_CASE("peers come before the cases that are compared with them, and out of place") {
  auto const cases = plan({"--peers=nccl,nccl-symmetric", "--algorithm=all", "--max-bytes=4K", "--in-place"}, onGpus);
  std::string subject;
  std::vector<std::string> peers;
  for (auto const& item : cases) {
    if (item.subject() != subject) CHECK(item.contender == Contender::nccl);
    subject = item.subject();
    CHECK(item.inPlace == item.own());
    if (!item.own()) peers.push_back(item.algorithm());
  }
  CHECK(peers == std::vector<std::string>{"nccl", "nccl-symmetric", "nccl", "nccl-symmetric"});
}

TEST_CASE("a size is that of the larger buffer, of which the ranks have equal parts") {
  auto const cases = plan({"--collective=allgather,reducescatter,alltoall,scatter", "--min-bytes=1000",
                           "--max-bytes=1000", "--dtype=float32"},
                          {.machine = DeviceKind::sim, .ranks = 3, .maxBlocks = 4});
  REQUIRE(cases.size() == 4);
  for (auto const& item : cases) {
    CHECK(item.count == 83);
    CHECK(item.slots == 3);
    CHECK(item.bytes() == 996);
    CHECK(item.slotBytes() == 332);
  }
  CHECK(cases[0].name() == "allgather/" + cases[0].algorithm() + "/float32/none/996");
  CHECK(cases[1].name() == "reducescatter/" + cases[1].algorithm() + "/float32/sum/996");
}

TEST_CASE("collectives that move data have one kernel for all types and are run once for all operations") {
  auto const cases = plan({"--collective=alltoall", "--dtype=float64,int8", "--op=sum,max",
                           "--algorithm=test_ll128,test_direct", "--max-bytes=1K"});
  REQUIRE(cases.size() == 4);
  for (auto const& item : cases) {
    CHECK(item.operation == ReduceOp::none);
    REQUIRE(item.launch);
  }
  CHECK(cases[1].launch->kernel->outputWindow);
}

TEST_CASE("all collectives are those that have kernels and the form that is asked for") {
  auto const of = [](std::vector<std::string> const& more) {
    std::vector<std::string> arguments{"--collective=all", "--max-bytes=1K"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::set<Collective> result;
    for (auto const& item : plan(arguments)) result.insert(item.collective);
    return result;
  };
  using enum Collective;
  auto const everything = of({});
  for (auto collective : {allReduce, allGather, reduceScatter, allToAll, scatter})
    CHECK(everything.contains(collective));
  auto const inPlace = of({"--in-place"});
  CHECK(!inPlace.contains(allToAll));
  CHECK(inPlace.contains(allGather));
  CHECK(of({"--algorithm=test_direct"}) == std::set{allGather, allToAll, scatter});
}

TEST_CASE("what cannot be planned is refused with what can be") {
  auto const complaint = [](std::vector<std::string> const& arguments, World const& world = simulated) {
    try {
      plan(arguments, world);
    } catch (UsageError const& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(complaint({"--collective=alltoall", "--in-place"}) ==
        "--in-place: alltoall has no such form; leave the flag out");
  auto const unknown = complaint({"--collective=allgather", "--algorithm=oneshot_ll16,no_such"});
  CHECK(unknown.find("--algorithm=oneshot_ll16: allowed is auto, all, or a list of ") == 0);
  CHECK(unknown.find("test_direct") != std::string::npos);
  CHECK(complaint({"--collective=scatter", "--min-bytes=6"}) ==
        "--min-bytes=6 is less than one element of --dtype=bfloat16 for each of the 4 ranks of scatter, which takes 8 "
        "bytes");
  CHECK(complaint({"--min-bytes=2", "--dtype=float32"}) ==
        "--min-bytes=2 is less than one element of --dtype=float32, which has 4 bytes");
  auto const text = complaint({"--collective=reducescatter", "--op=prod", "--dtype=int8", "--algorithm=ll128"});
  CHECK(text.find("--collective=reducescatter --algorithm=ll128 --dtype=int8 --op=prod: it has no kernel for prod of "
                  "int8 on 4 ranks; those that have: ") == 0);
  CHECK(text.find('\n') == std::string::npos);
  CHECK(
      complaint({"--collective=allgather", "--algorithm=test_ll128", "--threads=16"}) ==
      "--collective=allgather --algorithm=test_ll128 --dtype=bfloat16 --threads=16: 16 threads; its blocks have 32 to "
      "512, or 0 for the library's choice");
  CHECK(complaint({"--collective=sendrecv", "--overlap=off"}).find("--overlap says nothing to it") !=
        std::string::npos);
  auto world = simulated;
  world.noMulticast = "there is no switch";
  CHECK(complaint({"--algorithm=nvls_packet"}, world) ==
        "--collective=allreduce --algorithm=nvls_packet --dtype=bfloat16 --op=sum: it goes through the switch between "
        "the "
        "devices: there is no switch");
  CHECK(complaint({"--collective=allgather", "--algorithm=test_ll128"}, torn()).find("128-byte lines whole") !=
        std::string::npos);
}

TEST_CASE("algorithms that a form or a number of threads does not suit are left out, or refused by name") {
  auto const names = [](std::vector<std::string> const& more) {
    std::vector<std::string> arguments{"--collective=scatter", "--algorithm=all", "--max-bytes=1K"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::set<std::string> result;
    for (auto const& item : plan(arguments)) result.insert(item.algorithm());
    return result;
  };
  CHECK(names({}).contains("test_direct"));
  CHECK(!names({"--in-place"}).contains("test_direct"));
  CHECK(names({"--in-place"}).contains("test_ll128"));
  CHECK(!names({"--threads=512"}).contains("test_direct"));
  CHECK(!names({"--threads=16"}).contains("test_ll128"));
  CHECK_THROWS_WITH_AS(plan({"--collective=scatter", "--algorithm=test_direct", "--in-place"}),
                       "--collective=scatter --algorithm=test_direct --dtype=bfloat16 --in-place: it does not work in "
                       "place; give an output of its own",
                       UsageError);
  CHECK_THROWS_WITH_AS(plan({"--collective=scatter", "--algorithm=test_direct", "--threads=512"}),
                       "--collective=scatter --algorithm=test_direct --dtype=bfloat16 --threads=512: 512 threads; its "
                       "blocks have 1 to 256, or 0 for the library's choice",
                       UsageError);
}

TEST_CASE("what every algorithm of a run leaves out is told once for each reason") {
  auto world = simulated;
  world.noMulticast = "there is no switch";
  auto const left = wholePlan({"--algorithm=all", "--dtype=float32,float64", "--max-bytes=4K"}, world).leftOut;
  CHECK(left.find("nvls_zero_copy") != std::string::npos);
  CHECK(left.find("it goes through the switch between the devices: there is no switch") ==
        left.rfind("it goes through the switch between the devices: there is no switch"));
  CHECK(left.find("oneshot_ll8, twoshot_ll8") != std::string::npos);
  CHECK(wholePlan({}, world).leftOut.empty());
  CHECK(wholePlan({"--collective=all", "--overlap=off", "--max-bytes=1K"}).leftOut.find("messages: ") == 0);
}

TEST_CASE("where lines may be torn the choice is one that does not mind") {
  for (auto const& item : plan({"--collective=allgather,alltoall"}, torn())) {
    CAPTURE(item.name());
    CHECK(!item.launch->kernel->needsWholeLines);
  }
}

TEST_CASE("dependent launch is the default, but for what is not one kernel") {
  for (auto const& item : plan({"--algorithm=all", "--max-bytes=1K"})) {
    CHECK(item.overlap == (item.algorithm() != "copy_engine"));
  }
  for (auto const& item : plan({"--algorithm=all", "--max-bytes=1K", "--overlap=on"})) CHECK(item.overlap);
}

TEST_CASE("operations that would leave the type are not timed") {
  CHECK(maxOperations(Collective::allReduce, DataType::float16, ReduceOp::sum, 4) == 27 / 2 - leadOperations);
  CHECK(maxOperations(Collective::allReduce, DataType::float32, ReduceOp::sum, 4) >= 100);
  CHECK(maxOperations(Collective::allReduce, DataType::float32, ReduceOp::sum, 72) >= 20);
  CHECK(maxOperations(Collective::allReduce, DataType::float16, ReduceOp::max, 4) > 1000000);
  CHECK(maxOperations(Collective::allReduce, DataType::float16, ReduceOp::sum, 1) > 1000000);
  CHECK(maxOperations(Collective::reduce, DataType::float16, ReduceOp::sum, 4) == 27 - 2 - leadOperations);
  CHECK(maxOperations(Collective::reduceScatter, DataType::float16, ReduceOp::sum, 4) > 1000000);
  CHECK(maxOperations(Collective::allGather, DataType::float16, ReduceOp::none, 4) > 1000000);
  auto const cases = plan({"--dtype=float16", "--ops-per-graph=500", "--max-bytes=1K"}, onGpus);
  CHECK(cases[0].operations == maxOperations(Collective::allReduce, DataType::float16, ReduceOp::sum, 4));
}

TEST_CASE("one workspace serves all cases") {
  auto const cases = plan({"--algorithm=all", "--max-bytes=1M"});
  auto const total = requirementOf(cases);
  for (auto const& item : cases) {
    auto const alone = requirementOf({item});
    CHECK(merge(total, alone) == total);
    // Copy engines deal their stage out over more blocks than they launch.
    CHECK((item.algorithm() == "copy_engine" ? alone.blocks >= item.launch->shape.blocks
                                             : alone.blocks == item.launch->shape.blocks));
  }
}
