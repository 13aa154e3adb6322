// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tuned profiles: what is written is read again, what is wrong is told with its place, and the nearest size is found.
#include "mscclpp/collectives/tuned_profile.hpp"

#include <cstdlib>
#include <fstream>

#include "collectives/ranks.hpp"
#include "support/temporary_folder.hpp"

using namespace mscclpp_test;

namespace {

TunedProfile::Subject const fourH200{"NVIDIA H200", 4, true};

TunedProfile example() {
  TunedProfile profile;
  profile.set(fourH200, Collective::allReduce, 1024, {"oneshot_ll16", 2, 64, 2.15});
  profile.set(fourH200, Collective::allReduce, 16384, {"oneshot_ll128", 9, 128, 2.42});
  profile.set(fourH200, Collective::allGather, 1024, {"ll16", 1, 32, 2});
  profile.set(fourH200, Collective::allReduce, 4096, {"pull", 8, 512, 2.2}, true);
  profile.set({"NVIDIA H200", 2, false}, Collective::allReduce, 1024, {"twoshot_ll16", 0, 0, 3.5});
  return profile;
}

std::string refusalOf(std::string const& json) {
  return errorOf([&] { (void)TunedProfile::parse(json, "x.json"); }, ErrorCode::invalidUsage);
}

// A profile whose one entry is `entry`.
std::string with(std::string const& entry) {
  return R"({"version": 1, "profiles": [{"device": "d", "ranks": 2, "links": "whole_lines", "collectives": {"allreduce": [)" +
         entry + "]}}]}";
}

}  // namespace

TEST_CASE("what is written is read again") {
  auto const text = example().json();
  auto const again = TunedProfile::parse(text, "memory");
  CHECK(again.json() == text);
  REQUIRE(again.find(fourH200, Collective::allReduce) != nullptr);
  CHECK(*again.find(fourH200, Collective::allReduce) == *example().find(fourH200, Collective::allReduce));
  CHECK(again.find(fourH200, Collective::broadcast) == nullptr);
  CHECK(again.find({"NVIDIA H200", 4, false}, Collective::allReduce) == nullptr);
  CHECK(TunedProfile::parse(R"({"version": 1, "profiles": []})", "memory").empty());
}

TEST_CASE("the nearest size by ratio is taken") {
  auto const profile = example();
  auto const at = [&](std::uint64_t bytes, int ranks = 4, bool wholeLines = true) {
    auto const* const entry =
        profile.nearest({.ranks = ranks, .bytes = bytes, .device = "NVIDIA H200", .wholeLines = wholeLines});
    return entry == nullptr ? std::string() : entry->algorithm;
  };
  CHECK(at(1) == "oneshot_ll16");
  CHECK(at(1024) == "oneshot_ll16");
  CHECK(at(4095) == "oneshot_ll16");
  CHECK(at(4097) == "oneshot_ll128");
  CHECK(at(2 * 16384) == "oneshot_ll128");
  CHECK(at(3 * 16384).empty());  // too far from what was measured
  CHECK(at(1024, 2).empty());
  // Calls with symmetric buffers have entries of their own, or those of all.
  SelectionRequest request{.ranks = 4, .bytes = 1024, .symmetric = true, .device = "NVIDIA H200"};
  CHECK(profile.nearest(request)->algorithm == "pull");
  request.collective = Collective::allGather;
  CHECK(profile.nearest(request)->algorithm == "ll16");
  CHECK(at(1024, 2, false) == "twoshot_ll16");
  CHECK(profile.nearest({.ranks = 4, .bytes = 1024, .device = "another"}) == nullptr);
}

TEST_CASE("a later profile goes before an earlier one, size by size") {
  auto profile = example();
  TunedProfile refined;
  refined.set(fourH200, Collective::allReduce, 1024, {"twoshot_ll8", 1, 32, 2.0});
  profile.merge(refined);
  CHECK(profile.find(fourH200, Collective::allReduce)->at(1024).algorithm == "twoshot_ll8");
  CHECK(profile.find(fourH200, Collective::allReduce)->at(16384).algorithm == "oneshot_ll128");
}

TEST_CASE("what is wrong in a profile is told with its place") {
  checkContains(refusalOf("{"), "profile x.json: it is no JSON");
  checkContains(refusalOf("1E2111E2"), "profile x.json: it is no JSON");
  checkContains(refusalOf(R"({"version": 1E999})"), "profile x.json: it is no JSON");
  checkContains(refusalOf(std::string(100000, '[')), "profile x.json: its brackets are 100000 deep within each other");
  checkContains(refusalOf("[]"), "the whole is []; allowed is an object");
  checkContains(refusalOf("{}"), "has no \"version\"");
  checkContains(refusalOf(R"({"version": 2, "profiles": []})"), "version is 2; allowed is a whole number from 1 to 1");
  checkContains(refusalOf(R"({"version": 1, "profiles": {}})"), "profiles is {}; allowed is a list");
  checkContains(refusalOf(R"({"version": 1, "profiles": [{"device": ""}]})"), "profiles[0].device is \"\"");
  checkContains(refusalOf(R"({"version": 1, "profiles": [{"device": "d", "ranks": 73}]})"), "from 1 to 72");
  checkContains(refusalOf(R"({"version": 1, "profiles": [{"device": "d", "ranks": 2, "links": "fast"}]})"),
                "\"whole_lines\" or \"torn_lines\"");
  checkContains(
      refusalOf(
          R"({"version": 1, "profiles": [{"device": "d", "ranks": 2, "links": "torn_lines", "collectives": {"sum": []}}]})"),
      "there is no collective \"sum\"");
  CHECK(refusalOf(with(R"({"bytes": 8, "algorithm": "a", "blocks": 1, "threads": 32, "time_us": 1})")).empty());
  checkContains(refusalOf(with("3")), "profiles[0].collectives.allreduce[0] is 3; allowed is an object");
  checkContains(refusalOf(with(R"({"bytes": 0})")), "bytes is 0");
  checkContains(refusalOf(with(R"({"bytes": -8})")), "bytes is -8");
  checkContains(refusalOf(with(R"({"bytes": 1.5})")), "bytes is 1.5");
  checkContains(refusalOf(with(R"({"bytes": 8, "algorithm": 3})")), "algorithm is 3");
  checkContains(refusalOf(with(R"({"bytes": 8, "algorithm": "a", "blocks": 70000})")), "from 0 to 65535");
  checkContains(refusalOf(with(R"({"bytes": 8, "algorithm": "a", "blocks": 1, "threads": 2000})")), "from 0 to 1024");
  checkContains(refusalOf(with(R"({"bytes": 8, "algorithm": "a", "blocks": 1, "threads": 32, "time_us": -1})")),
                "time_us is -1; allowed is a number above 0");
  checkContains(refusalOf(with(R"({"bytes": 8, "algorithm": "a", "blocks": 1, "threads": 32})")), "has no \"time_us\"");
  checkContains(
      refusalOf(with(R"({"bytes": 8, "algorithm": "a", "blocks": 1, "threads": 32, "time_us": 1, "symmetric": 1})")),
      "symmetric is 1; allowed is true or false");
}

TEST_CASE("files and folders of the environment variable are read in order") {
  TemporaryFolder const folder;
  example().save(folder.file("a.json"));
  TunedProfile refined;
  refined.set(fourH200, Collective::allReduce, 1024, {"twoshot_ll8", 1, 32, 2.0});
  refined.save(folder.file("b.json"));
  std::ofstream(folder.file("notes.txt")) << "no profile";
  auto const installed = [](std::string const& value) {
    ::setenv("MSCCLPP_PROFILE", value.c_str(), 1);
    auto result = TunedProfile::installed();
    ::unsetenv("MSCCLPP_PROFILE");
    return result;
  };
  auto const first = [](std::shared_ptr<TunedProfile const> const& profile) {
    return profile->find(fourH200, Collective::allReduce)->at(1024).algorithm;
  };
  CHECK(first(installed(folder.file(""))) == "twoshot_ll8");
  CHECK(first(installed(folder.file("b.json") + ":" + folder.file("a.json"))) == "oneshot_ll16");
  CHECK(installed("") == nullptr);
  checkContains(errorOf([&] { (void)installed(folder.file("c.json")); }, ErrorCode::invalidUsage),
                "c.json, which is not there");
  ::unsetenv("MSCCLPP_PROFILE");
  CHECK_THROWS_AS(TunedProfile::load(folder.file("c.json")), Error);
  CHECK_THROWS_AS(example().save(folder.file("no/such/folder.json")), Error);
  // Half a file is no file.
  std::ofstream(folder.file("half.json")) << example().json().substr(0, 100);
  checkContains(errorOf([&] { (void)TunedProfile::load(folder.file("half.json")); }, ErrorCode::invalidUsage),
                "half.json: it is no JSON");
}
