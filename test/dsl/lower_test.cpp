// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lowered programs: slices that ranks and instances share say for each of them what its own would.
#include "mscclpp/dsl/lower.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "dsl/programs.hpp"

using namespace dsl_test;

namespace {

bool isSame(dsl::RankNumber const& shared, dsl::RankNumber const& own, dsl::Slice const& of, int rank, int ranks,
            int block) {
  return shared.at(rank, ranks, block / of.period) == own.base;
}

// Returns how many slices there are for how many blocks of all ranks.
struct Shared {
  std::size_t slices = 0;
  int blocks = 0;
};

Shared checkLowered(dsl::Program const& program) {
  CAPTURE(program.name.str());
  auto const slices = dsl::lower(program);
  dsl::detail::Lowering lowering(program);
  Shared shared{slices.size(), 0};
  for (int rank = 0; rank < program.size(); ++rank) {
    auto const blocks = static_cast<int>(program.ranks[static_cast<std::size_t>(rank)].blocks.size());
    for (int block = 0; block < blocks; ++block, ++shared.blocks) {
      CAPTURE(rank);
      CAPTURE(block);
      auto const own = lowering.ofRank(rank, block);
      dsl::Slice const* found = nullptr;
      for (auto const& slice : slices) {
        if (block % slice.period == slice.block && (slice.rank < 0 || slice.rank == rank)) {
          CHECK(found == nullptr);
          found = &slice;
        }
      }
      REQUIRE(found != nullptr);
      REQUIRE(found->steps.size() == own.steps.size());
      REQUIRE(found->operands.size() == own.operands.size());
      REQUIRE(found->objects.size() == own.objects.size());
      for (std::size_t i = 0; i < own.operands.size(); ++i) {
        CHECK(isSame(found->operands[i].rank, own.operands[i].rank, *found, rank, program.size(), block));
        CHECK(isSame(found->operands[i].index, own.operands[i].index, *found, rank, program.size(), block));
        CHECK(found->operands[i].buffer == own.operands[i].buffer);
      }
      for (std::size_t i = 0; i < own.objects.size(); ++i) {
        CHECK(isSame(found->objects[i], own.objects[i], *found, rank, program.size(), block));
      }
    }
  }
  return shared;
}

}  // namespace

TEST_CASE("instances share their slices, and so do ranks that do the same") {
  CHECK(checkLowered(dsl::build<TwoShotPackets<4>>()).slices == 1);
  CHECK(checkLowered(dsl::build<TwoShotPackets<4, 3>>()).slices == 1);
  // Blocks of a rank differ by the distance of their peer.
  auto const pairs = checkLowered(dsl::build<AllPairsAllGather<5>>()).slices;
  CHECK(checkLowered(dsl::build<AllPairsAllGather<5, 4>>()).slices == pairs);
  auto const once = dsl::build<PullPushAllReduce<3>>();
  for (auto const policy : {dsl::Replication::grouped, dsl::Replication::interleaved}) {
    CHECK(checkLowered(dsl::replicate(once, 5, policy)).slices == checkLowered(once).slices);
  }
}

TEST_CASE("ranks and blocks that do otherwise have slices of their own") {
  CHECK(checkLowered(dsl::build<TwoLevelReduceScatter>()).slices > 1);
  CHECK(checkLowered(dsl::build<PipelinedSendReceive>()).slices > 1);
  auto program = dsl::build<TwoShotPackets<4, 3>>();
  // The last instance reduces otherwise.
  for (auto& rank : program.ranks) {
    for (auto& step : rank.blocks.back().steps) step.reduce = dsl::ReduceKind::max;
  }
  auto const changed = checkLowered(program);
  CHECK(changed.slices == 3);
  // The last one's chunks lie where no step from one to the next leads.
  program = dsl::build<TwoShotPackets<4, 3>>();
  for (auto& rank : program.ranks) {
    for (auto& step : rank.blocks.back().steps) {
      for (auto& target : step.targets) target.index += target.buffer == dsl::BufferKind::scratch ? 1 : 0;
    }
  }
  CHECK(checkLowered(program).slices == 3);
}

TEST_CASE("barriers of instances") {
  dsl::Builder builder({.name = "barriers", .collective = dsl::custom(2, 2, 2), .instances = 3});
  for (int r = 0; r < 2; ++r) {
    auto const rank = builder.rank(r);
    for (int tb = 0; tb < 2; ++tb) rank.copy(rank.output()[tb], rank.input()[tb], {.tb = tb});
    rank.barrier({0, 1});
  }
  CHECK(checkLowered(dsl::finish(builder)).slices == 2);
}

TEST_CASE("a program without steps") {
  dsl::Builder builder({.name = "nothing", .collective = dsl::custom(2, 1, 1)});
  CHECK(dsl::lower(dsl::finish(builder)).empty());
}
