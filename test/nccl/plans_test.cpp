// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans in the folder that MSCCL++ installs its own in: asked ahead of the library's algorithms, where they are right.
#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "dsl/programs.hpp"
#include "mscclpp/dsl/plan_json.hpp"
#include "nccl/algorithms.hpp"
#include "nccl/ranks.hpp"
#include "support/temporary_folder.hpp"

using namespace mscclpp_test;

namespace {

constexpr std::size_t count = 1000;

std::string chosen(void* in, void* out, std::size_t bytes) {
  World world;
  world.ranks = 2;
  world.machine = DeviceKind::sim;
  return nccl::algorithms()
      ->collection
      .resolve(
          Collective::allReduce, world,
          {.in = in, .out = out, .inBytes = bytes, .outBytes = bytes, .type = DataType::float32, .op = ReduceOp::sum})
      .algorithm->name();
}

}  // namespace

TEST_CASE("a plan in the folder makes the calls that it is for") {
  TemporaryFolder const folder;
  ::setenv("MSCCLPP_CACHE_DIR", folder.path().c_str(), 1);  // before the first call of the interface
  std::filesystem::create_directory(folder.path() / "default");
  auto const add = [&](char const* name, std::string const& text) {
    std::ofstream(folder.path() / "default" / name) << text;
  };
  auto right = dsl::build<dsl_test::TwoShotPackets<2>>();
  right.maxBytes = 64 << 10;
  add("b_right.json", dsl::toJson(right));
  add("a_broken.json", "{");
  auto wrong = dsl::build<dsl_test::OneShotPackets<2>>();
  wrong.ranks[0].blocks[0].steps.pop_back();
  add("c_wrong.json", dsl::toJson(wrong));
  add("d_other.txt", "no plan");

  alignas(16) std::byte buffers[2]{};
  CHECK(chosen(buffers, buffers, 4 * count) == "twoshot_packets");
  CHECK(chosen(buffers, buffers, 128 << 10) != "twoshot_packets");
  CHECK(nccl::algorithms()->collection.find(Collective::allReduce, "oneshot_packets") == nullptr);
  CHECK(nccl::algorithms()->mark != 0);

  forEachNcclRank(2, [](NcclRank const& rank) {
    for (auto const elements : {count, std::size_t{1}, std::size_t{100'000}}) {
      for (bool const inPlace : {true, false}) {
        Data<float> in(rank.device, elements, static_cast<float>(rank.rank + 1)), other(rank.device, elements, 0.0f);
        auto& out = inPlace ? in : other;
        CHECK_NCCL(ncclAllReduce(in.data(), out.data(), elements, ncclFloat32, ncclSum, rank.comm, rank.native()));
        rank.stream.synchronize();
        CHECK(out.are(3));
      }
    }
    // Operations that only the library's own can do still are done.
    Data<float> data(rank.device, count, static_cast<float>(rank.rank + 1));
    CHECK_NCCL(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclMax, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(data.are(2));
  });
  // Other ranks are none of the plan's.
  forEachNcclRank(3, [](NcclRank const& rank) {
    Data<float> data(rank.device, count, static_cast<float>(rank.rank + 1));
    CHECK_NCCL(ncclAllReduce(data.data(), data.data(), count, ncclFloat32, ncclSum, rank.comm, rank.native()));
    rank.stream.synchronize();
    CHECK(data.are(6));
  });
}
