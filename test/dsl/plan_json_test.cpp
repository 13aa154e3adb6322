// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs become plans and plans programs; a plan that cannot be is refused with its place.
#include <doctest/doctest.h>

#include <string>

#include "dsl/programs.hpp"
#include "mscclpp/dsl/plan_json.hpp"
#include "mscclpp/host/error.hpp"

using namespace dsl_test;

namespace {

template <class P>
void checkRoundTrip() {
  auto const text = dsl::toJson<P>();
  auto const again = dsl::programFromJson(text, "of the test");
  CHECK(dsl::toJson(again) == text);
  auto const verdict = dsl::verify(again);
  CHECK_MESSAGE(verdict.right(), again.name.str(), ": ", verdict.diagnostic.str());
}

std::string refusalOf(std::string const& text) {
  try {
    (void)dsl::programFromJson(text, "p.json");
  } catch (Error const& error) {
    CHECK(error.code() == ErrorCode::invalidUsage);
    return error.what();
  }
  return "";
}

std::string replaced(std::string text, std::string const& what, std::string const& by) {
  auto const at = text.find(what);
  REQUIRE_MESSAGE(at != std::string::npos, what);
  return text.replace(at, what.size(), by);
}

}  // namespace

TEST_CASE("what is written is read again, and means the same") {
  checkRoundTrip<SimpleAllGather>();
  checkRoundTrip<RingAllGather<4>>();
  checkRoundTrip<AllPairsAllGather<4, 2>>();
  checkRoundTrip<OneShotPackets<3>>();
  checkRoundTrip<TwoShotPackets<4, 2>>();
  checkRoundTrip<PullPushAllReduce<4>>();
  checkRoundTrip<ScratchAllToAll<4>>();
  checkRoundTrip<TwoLevelReduceScatter>();
  checkRoundTrip<PipelinedSendReceive>();
}

TEST_CASE("plans that are none are refused with their place") {
  auto const good = dsl::toJson<SimpleAllGather>();
  CHECK(refusalOf("{") == refusalOf("{"));
  CHECK(refusalOf("{").find("plan p.json: it is no JSON") == 0);
  CHECK(refusalOf("{\"gpus\": 1E999}").find("plan p.json: it is no JSON") == 0);
  CHECK(refusalOf("[]").find("the whole is []; allowed is an object") != std::string::npos);
  CHECK(refusalOf(replaced(good, "\"inplace\":true", "\"inplace\":1")).find("inplace is 1; allowed is true or false") !=
        std::string::npos);
  CHECK(
      refusalOf(replaced(good, "\"collective\":\"allgather\"", "\"collective\":\"gatherall\"")).find("collective is") !=
      std::string::npos);
  CHECK(
      refusalOf(replaced(good, "\"name\":\"put\"", "\"name\":\"push\"")).find("gpus[0].threadblocks[0].ops[3].name") !=
      std::string::npos);
  CHECK(refusalOf(replaced(good, "\"connected_to\":[1]", "\"connected_to\":[5]")).find("connected_to[0] is 5") !=
        std::string::npos);
  CHECK(refusalOf(replaced(good, "\"buffer_id\":0", "\"buffer_id\":3")).find("one of 1 remote buffers of the block") !=
        std::string::npos);
  CHECK(refusalOf(replaced(good, "\"name\":\"put\"", "\"name\":\"glre\"")).find("an operation with a switch channel") !=
        std::string::npos);
  CHECK(refusalOf(replaced(good, "\"output_chunks\":2", "\"output_chunks\":3")).find("output_chunks") !=
        std::string::npos);
}

TEST_CASE("brackets may not be deeper within each other than the reader's stack bears") {
  for (std::string const open : {"[", "{\"a\":"}) {
    std::string deep;
    for (int i = 0; i < 100000; ++i) deep += open;
    CHECK(refusalOf(deep).find("plan p.json: its brackets are 100000 deep within each other; allowed are 64") == 0);
  }
  auto const nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK(refusalOf(nested(65)).find("its brackets are 65 deep") != std::string::npos);
  CHECK(refusalOf(nested(64)).find("allowed is an object") != std::string::npos);
  // What a text says is no bracket.
  CHECK(refusalOf("[\"\\\"" + std::string(100, '[') + "\"]").find("allowed is an object") != std::string::npos);
}

TEST_CASE("two blocks with one number are refused") {
  auto const good = dsl::toJson<AllPairsAllGather<4, 2>>();
  CHECK(refusalOf(good).empty());
  CHECK(refusalOf(replaced(good, "\"id\":1,", "\"id\":0,")).find("another") == std::string::npos);
  auto const at = good.find("\"threadblocks\":[{\"id\":0");
  REQUIRE(at != std::string::npos);
  auto twice = good;
  twice.replace(twice.find("\"id\":1", at), 6, "\"id\":0");
  CHECK(refusalOf(twice).find("threadblocks[1].id is 0; allowed is the number of no other thread block") !=
        std::string::npos);
}

TEST_CASE("a small plan that takes long to judge is refused, with its size and what is allowed") {
  auto const good = dsl::toJson<SimpleAllGather>();
  auto const verdictOf = [&](std::string const& what, std::string const& by) {
    return dsl::verify(dsl::programFromJson(replaced(good, what, by), "p.json")).diagnostic.str();
  };
  // 2 ranks have 1 and 2 chunks each beside.
  CHECK(verdictOf("\"scratch_chunks\":0", "\"scratch_chunks\":8000000") ==
        "the buffers of all ranks have 8000006 parts of chunks, 1 of each; at most 4194304 can be judged");
  CHECK(verdictOf("\"scratch_chunks\":0", "\"scratch_chunks\":4194298").empty());
  CHECK(verdictOf("\"scratch_chunks\":0", "\"scratch_chunks\":4194299") != "");
  CHECK(verdictOf("\"semaphores\":[]", "\"semaphores\":[{\"init_value\":65537}]") ==
        "the semaphores of all ranks begin at 65537 together; at most 65536 can be judged");
  std::string blocks = "\"threadblocks\":[";
  for (int id = 1; id < 6144; ++id) blocks += "{\"id\":" + std::to_string(id) + ",\"ops\":[]},";
  CHECK(verdictOf("\"threadblocks\":[", blocks) ==
        "all ranks have 6145 blocks and port channels together; at most 6144 can be judged");
}

TEST_CASE("a plan without one of its waits is read, and found wrong") {
  auto const text = replaced(dsl::toJson<SimpleAllGather>(),
                             ",{\"name\":\"wait\",\"channel_ids\":[0],\"channel_type\":\"memory\"}", "");
  auto const verdict = dsl::verify(dsl::programFromJson(text, "p.json"));
  CHECK(verdict.diagnostic.str() == "rank 1 signals rank 0 over channel 0 2 times, rank 0 waits for it 1 time");
}

TEST_CASE("what MSCCL++ itself has no room for is told, and written all the same") {
  CHECK(dsl::mscclppRefusal(dsl::build<SimpleAllGather>()).empty());
  CHECK(dsl::mscclppRefusal(dsl::build<TwoShotPackets<4>>()).empty());
  auto many = dsl::build<SimpleAllGather>();
  many.ranks[1].semaphores.assign(17, 0);
  CHECK(dsl::mscclppRefusal(many) == "rank 1 has 17 semaphores, of 16 at most");
  auto longer = dsl::build<SimpleAllGather>();
  auto& steps = longer.ranks[0].blocks[0].steps;
  while (steps.size() < 65) steps.push_back({.kind = dsl::StepKind::sync});
  CHECK(dsl::mscclppRefusal(longer) == "rank 0 block 0 has 65 operations, of 64 at most");
  steps.pop_back();
  CHECK(dsl::mscclppRefusal(longer).empty());
  steps.back() = {.kind = dsl::StepKind::barrier, .objects = {16}, .blocks = 1};
  CHECK(dsl::mscclppRefusal(longer) == "rank 0 block 0 uses barrier 16, of 16 that there are");
  auto wide = dsl::build<SimpleAllGather>();
  dsl::Step signals{.kind = dsl::StepKind::signal};
  for (int i = 0; i < 9; ++i) {
    wide.ranks[0].channels.push_back({.peer = 1});
    signals.objects.push_back(static_cast<int>(wide.ranks[0].channels.size()) - 1);
  }
  wide.ranks[0].blocks[0].steps.push_back(signals);
  CHECK(dsl::mscclppRefusal(wide) == "rank 0 block 0 names 9 channels in one operation, of 8 at most");
  CHECK(dsl::mscclppRefusal(dsl::programFromJson(dsl::toJson(wide), "again")) == dsl::mscclppRefusal(wide));
}
