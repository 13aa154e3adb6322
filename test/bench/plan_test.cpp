// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "kernel_table.hpp"

using namespace mscclpp;
using namespace mscclpp::bench;

namespace {

void nothing(KernelCall const&) {}
void nothingForFour(KernelCall const&) {}

// The kernels that a build has, with none of their code.
void fillTable() {
  auto& table = KernelTable::instance();
  for (auto machine : {DeviceKind::sim, DeviceKind::cuda}) {
    for (auto type : elementTypes) {
      for (std::size_t i = 0; i < allReduceNames.size(); ++i) {
        table.add(machine, type, Operation::sum, static_cast<AllReduceAlgorithm>(i), 0, &nothing);
      }
    }
  }
}

std::vector<Case> plan(std::vector<std::string> const& arguments, WorldFacts facts = {.ranks = 4}) {
  fillTable();
  return planCases(parseCommandLine(arguments).options, facts);
}

}  // namespace

TEST_CASE("sizes go from the smallest to the largest by the factor") {
  auto const cases = plan({"--min-bytes=1K", "--max-bytes=100K", "--factor=4", "--dtype=float32"});
  std::vector<std::uint64_t> sizes;
  for (auto const& item : cases) sizes.push_back(item.bytes());
  CHECK(sizes == std::vector<std::uint64_t>{1024, 4096, 16384, 65536});
  CHECK(plan({}).back().bytes() == 1u << 20);
  CHECK(plan({}, {.machine = DeviceKind::cuda, .ranks = 4}).back().bytes() == 1u << 30);
}

TEST_CASE("a size that is no multiple of the element is rounded down, and the name tells the true one") {
  auto const cases = plan({"--min-bytes=1001", "--max-bytes=1001", "--dtype=float64", "--algorithm=twoshot_memory"});
  REQUIRE(cases.size() == 1);
  CHECK(cases[0].count == 125);
  CHECK(cases[0].name() == "allreduce/twoshot_memory/float64/sum/1000");
}

TEST_CASE("the automatic choice is the library's") {
  for (auto const& item : plan({"--max-bytes=64M"}, {.machine = DeviceKind::cuda, .ranks = 4})) {
    CHECK(item.choice == chooseAllReduce(4, item.bytes(), 2, true));
  }
}

TEST_CASE("all means every algorithm that the links and the type allow") {
  auto const names = [](std::vector<Case> const& cases) {
    std::set<std::string> result;
    for (auto const& item : cases) result.insert(item.algorithm());
    return result;
  };
  CHECK(names(plan({"--algorithm=all", "--max-bytes=1K"})).size() == allReduceNames.size());
  auto const pcie = names(plan({"--algorithm=all", "--max-bytes=1K"}, {.ranks = 4, .wholeLines = false}));
  CHECK(pcie.count("oneshot_ll128") == 0);
  CHECK(pcie.count("twoshot_ll16") == 1);
  CHECK(names(plan({"--algorithm=all", "--max-bytes=1K", "--dtype=int64"})).count("twoshot_ll8") == 0);
  CHECK_THROWS_AS(plan({"--algorithm=twoshot_ll128"}, {.ranks = 4, .wholeLines = false}), UsageError);
}

TEST_CASE("NCCL comes before the cases that are compared with it, and out of place") {
  auto const cases =
      plan({"--peers=nccl", "--algorithm=all", "--max-bytes=4K", "--in-place"}, {.machine = DeviceKind::cuda});
  std::string subject;
  for (auto const& item : cases) {
    if (item.subject() != subject) CHECK(item.nccl);
    subject = item.subject();
    CHECK(item.inPlace == !item.nccl);
  }
  CHECK(std::count_if(cases.begin(), cases.end(), [](Case const& item) { return item.nccl; }) == 2);
}

TEST_CASE("dependent launch is the default of packet algorithms only") {
  for (auto const& item : plan({"--algorithm=all", "--max-bytes=1K"})) {
    CHECK(item.overlap == (item.algorithm().find("memory") == std::string::npos));
  }
  for (auto const& item : plan({"--algorithm=all", "--max-bytes=1K", "--overlap=on"})) CHECK(item.overlap);
}

TEST_CASE("operations that would leave the type are not timed") {
  CHECK(maxOperations(ElementType::float16, Operation::sum, 4) == 27 / 2 - leadOperations);
  CHECK(maxOperations(ElementType::float32, Operation::sum, 4) >= 100);
  CHECK(maxOperations(ElementType::float32, Operation::sum, 72) >= 20);
  CHECK(maxOperations(ElementType::float16, Operation::max, 4) > 1000000);
  CHECK(maxOperations(ElementType::float16, Operation::sum, 1) > 1000000);
  auto const cases =
      plan({"--dtype=float16", "--ops-per-graph=500", "--max-bytes=1K"}, {.machine = DeviceKind::cuda, .ranks = 4});
  CHECK(cases[0].operations == maxOperations(ElementType::float16, Operation::sum, 4));
}

TEST_CASE("one workspace serves all cases") {
  auto const cases = plan({"--algorithm=all", "--max-bytes=1M"});
  auto const total = requirementOf(cases, 4);
  for (auto const& item : cases) {
    auto const alone = requirementOf({item}, 4);
    CHECK(merge(total, alone) == total);
    CHECK(alone.blocks == item.choice.blocks);
  }
}

TEST_CASE("a kernel for the very number of ranks is preferred") {
  fillTable();
  auto& table = KernelTable::instance();
  table.add(DeviceKind::cuda, ElementType::float32, Operation::sum, AllReduceAlgorithm::oneShotLL16, 4,
            &nothingForFour);
  auto const find = [&](int ranks) {
    return table.find(DeviceKind::cuda, ElementType::float32, Operation::sum, AllReduceAlgorithm::oneShotLL16, ranks);
  };
  CHECK((find(4) == &nothingForFour));
  CHECK((find(3) == &nothing));
  CHECK((table.find(DeviceKind::cuda, ElementType::float32, Operation::prod, AllReduceAlgorithm::oneShotLL16, 4) ==
         nullptr));
  CHECK(table.has(DeviceKind::cuda));
}
