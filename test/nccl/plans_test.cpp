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

using namespace mscclpp_test;

namespace {

constexpr std::size_t count = 1000;

// Before the first call of the interface.
class Folder {
 public:
  Folder() {
    auto name = (std::filesystem::temp_directory_path() / "mscclpp_plans_XXXXXX").string();
    path_ = std::string(::mkdtemp(name.data()));
    REQUIRE(!path_.empty());
    ::setenv("MSCCLPP_CACHE_DIR", path_.c_str(), 1);
  }
  ~Folder() { std::filesystem::remove_all(path_); }

  void add(std::string const& name, std::string const& text) const {
    auto const folder = std::filesystem::path(path_) / "default";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / name) << text;
  }

 private:
  std::string path_;
};

std::string chosen(void* in, void* out, std::size_t bytes) {
  World world;
  world.ranks = 2;
  world.machine = DeviceKind::sim;
  return nccl::algorithms()
      .resolve(
          Collective::allReduce, world,
          {.in = in, .out = out, .inBytes = bytes, .outBytes = bytes, .type = DataType::float32, .op = ReduceOp::sum})
      .algorithm->name();
}

}  // namespace

TEST_CASE("a plan in the folder makes the calls that it is for") {
  Folder const folder;
  auto right = dsl::build<dsl_test::TwoShotPackets<2>>();
  right.maxBytes = 64 << 10;
  folder.add("b_right.json", dsl::toJson(right));
  folder.add("a_broken.json", "{");
  auto wrong = dsl::build<dsl_test::OneShotPackets<2>>();
  wrong.ranks[0].blocks[0].steps.pop_back();
  folder.add("c_wrong.json", dsl::toJson(wrong));
  folder.add("d_other.txt", "no plan");

  alignas(16) std::byte buffers[2]{};
  CHECK(chosen(buffers, buffers, 4 * count) == "twoshot_packets");
  CHECK(chosen(buffers, buffers, 128 << 10) != "twoshot_packets");
  CHECK(nccl::algorithms().find(Collective::allReduce, "oneshot_packets") == nullptr);
  CHECK(nccl::planMark() != 0);

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
