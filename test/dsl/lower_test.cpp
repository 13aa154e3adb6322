// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lowered programs: slices that ranks and instances share say for each of them what its own would.
#include "mscclpp/dsl/detail/lower/lower.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "dsl/programs.hpp"
#include "mscclpp/dsl/passes/coarsen.hpp"

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

namespace {

// The same program over chunks that are `n` times as fine.
dsl::Program finer(dsl::Program program, int n) {
  auto& collective = program.collective;
  auto const perSlice = collective.inputPerSlice() * n, results = collective.outputPerSlice() * n;
  if (collective.kind == dsl::CollectiveKind::allReduce || collective.kind == dsl::CollectiveKind::custom) {
    collective.customInput = perSlice;
    collective.customOutput = results;
  } else {
    collective.chunkFactor *= n;
  }
  for (auto& rank : program.ranks) {
    rank.scratchChunks *= n;
    for (auto& block : rank.blocks) {
      for (auto& step : block.steps) {
        for (auto* operands : {&step.sources, &step.targets}) {
          for (auto& chunks : *operands) {
            chunks.index *= n;
            chunks.count *= n;
          }
        }
      }
    }
  }
  return program;
}

template <class P>
void checkCoarsened() {
  auto const program = dsl::build<P>();
  CAPTURE(program.name.str());
  auto once = program;
  int const own = dsl::coarsen(once);
  auto coarse = finer(program, 6);
  REQUIRE(dsl::verify(coarse).right());
  CHECK(dsl::coarsen(coarse) == 6 * own);
  CHECK(dsl::verify(coarse).right());
  CHECK(coarse.collective.inputPerSlice() * own == program.collective.inputPerSlice());
  CHECK(coarse.collective.outputPerSlice() * own == program.collective.outputPerSlice());
  for (int rank = 0; rank < program.size(); ++rank) {
    auto const r = static_cast<std::size_t>(rank);
    CHECK(coarse.ranks[r].scratchChunks * own == program.ranks[r].scratchChunks);
    for (std::size_t b = 0; b < program.ranks[r].blocks.size(); ++b) {
      auto const &was = program.ranks[r].blocks[b].steps, &is = coarse.ranks[r].blocks[b].steps;
      REQUIRE(is.size() == was.size());
      for (std::size_t s = 0; s < is.size(); ++s) {
        auto const same = [own](std::vector<dsl::Chunks> made, std::vector<dsl::Chunks> const& of) {
          for (auto& chunks : made) {
            chunks.index *= own;
            chunks.count *= own;
          }
          return made == of;
        };
        CHECK(same(is[s].sources, was[s].sources));
        CHECK(same(is[s].targets, was[s].targets));
      }
    }
  }
}

}  // namespace

TEST_CASE("chunks that no step takes apart become one") {
  checkCoarsened<OneShotPackets<4>>();
  checkCoarsened<TwoShotPackets<4>>();
  checkCoarsened<SimpleAllGather>();
  checkCoarsened<RingAllGather<3>>();
  checkCoarsened<AllPairsAllGather<4, 2>>();
  checkCoarsened<PullPushAllReduce<3>>();
  checkCoarsened<ScratchAllToAll<3>>();
  checkCoarsened<TwoLevelReduceScatter>();
  auto whole = dsl::build<OneShotPackets<4>>();
  CHECK(dsl::coarsen(whole) == 4);
  CHECK(whole.collective.outputPerSlice() == 1);
  auto shares = dsl::build<TwoShotPackets<4>>();
  CHECK(dsl::coarsen(shares) == 1);
}

TEST_CASE("chunks stay as they are where one step or the scratch takes them apart, and in loops") {
  for (int const place : {0, 1}) {
    auto program = finer(dsl::build<SimpleAllGather>(), 4);
    auto& chunks = program.ranks[1].blocks[0].steps;
    for (auto& step : chunks) {
      for (auto& source : step.sources) (place == 0 ? source.index : source.count) += 1;
    }
    CHECK(dsl::coarsen(program) == 1);
  }
  auto program = finer(dsl::build<TwoShotPackets<4>>(), 4);
  program.ranks[2].scratchChunks += 2;
  CHECK(dsl::coarsen(program) == 2);
  auto looping = finer(dsl::build<PipelinedSendReceive>(), 4);
  auto const before = looping.collective.chunkFactor;
  CHECK(dsl::coarsen(looping) == 1);
  CHECK(looping.collective.chunkFactor == before);
}
