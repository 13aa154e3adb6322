// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The files of the cost model: what is written is read again, what is wrong is told with its place, and the user's
// files go before what is built in.

#include <cstdlib>
#include <fstream>

#include "collectives/ranks.hpp"
#include "mscclpp/collectives/cost_model.hpp"
#include "mscclpp/collectives/selection.hpp"
#include "support/temporary_folder.hpp"

using namespace mscclpp_test;

namespace {

MachineModel const& h200() { return *MachineModel::builtIn("NVIDIA H200"); }

std::string refusalOf(std::string const& json) {
  return errorOf([&] { (void)MachineModel::parse(json, "x.json"); }, ErrorCode::invalidUsage);
}

// The H200's file with one text in it replaced.
std::string with(std::string const& old, std::string const& text) {
  auto json = h200().json();
  auto const at = json.find(old);
  REQUIRE(at != std::string::npos);
  return json.replace(at, old.size(), text);
}

}  // namespace

// First: the files are read once in a process.
TEST_CASE("the user's files go before what is built in, later ones before earlier ones") {
  TemporaryFolder const folder;
  auto mine = h200();
  mine.device = "My GPU";
  mine.copyRate = 1e9;
  mine.save(folder.file("a.json"));
  mine.copyRate = 2e9;
  mine.save(folder.file("b.json"));
  ::setenv("MSCCLPP_MODEL", (folder.file("missing.json")).c_str(), 1);
  CHECK(contains(errorOf([] { (void)MachineModel::of("My GPU"); }, ErrorCode::invalidUsage),
                 "MSCCLPP_MODEL names " + folder.file("missing.json") + ", which is not there"));
  ::setenv("MSCCLPP_MODEL", (folder.file("a.json") + "::" + folder.file("b.json")).c_str(), 1);
  CHECK(MachineModel::of("My GPU").copyRate == doctest::Approx(2e9));
  CHECK(&MachineModel::of("NVIDIA H200") == &h200());
  CHECK(&MachineModel::of("a GPU that nobody knows") == &h200());
  // With figures of its own a GPU is chosen for by them, also where H200 have a table.
  SelectionRequest const request{.collective = Collective::allGather,
                                 .ranks = 4,
                                 .bytes = std::uint64_t{1} << 30,
                                 .symmetric = true,
                                 .machine = DeviceKind::sim,
                                 .device = "My GPU"};
  CHECK(preferredAlgorithms(request).front() == "push");
  auto known = request;
  known.device = "NVIDIA H200";
  CHECK(preferredAlgorithms(known).front() == "copy_engine");
}

TEST_CASE("what is written is read again") {
  TemporaryFolder const folder;
  h200().save(folder.file("h200.json"));
  auto const again = MachineModel::load(folder.file("h200.json"));
  CHECK(again.device == h200().device);
  for (auto const& parameter : modelParameters) {
    CHECK_MESSAGE(again.*parameter.member == doctest::Approx(h200().*parameter.member).epsilon(1e-3), parameter.name);
  }
  CHECK(again.json() == h200().json());
}

TEST_CASE("a file that cannot be right is refused with the place and what is allowed") {
  CHECK(contains(refusalOf("{"), "model x.json: it is no JSON"));
  CHECK(contains(refusalOf("[]"), "model x.json: the whole is []; allowed is an object"));
  CHECK(contains(refusalOf("{}"), "model x.json: the file has no \"version\"; mscclpp-bench --limits=FILE writes one"));
  CHECK(contains(refusalOf(with("\"version\": 1", "\"version\": 2")),
                 "version is 2; allowed is a whole number from 1 to 1"));
  CHECK(contains(refusalOf(with("\"NVIDIA H200\"", "\"\"")), "device is \"\"; allowed is a text that is not empty"));
  CHECK(contains(refusalOf(with("\"parameters\"", "\"parameter\"")), "the file has no \"parameters\""));
  CHECK(contains(refusalOf(with("\"copy_us\"", "\"copies_us\"")), "parameters has no \"copy_us\""));
  CHECK(contains(refusalOf(with("\"copy_us\": 2.9", "\"copy_us\": \"fast\"")),
                 "copy_us is \"fast\"; allowed is a number from 0 to 1e+09"));
  CHECK(contains(refusalOf(with("\"copy_us\": 2.9", "\"copy_us\": -1")), "copy_us is -1"));
  CHECK(contains(refusalOf(with("\"copy_us\": 2.9", "\"copy_us\": 1e300")), "copy_us is 1e+300"));
  CHECK(contains(refusalOf(with("\"copy_us\": 2.9", "\"copy_us\": 2.9, \"copy_ms\": 1")),
                 "there is no parameter \"copy_ms\", but multiprocessors, kernel_us"));
  // In front of the value that was there.
  auto const rate = [](std::string const& value) {
    return refusalOf(with("\"store_gbps\": ", "\"store_gbps\": " + value + ", \"rest\": "));
  };
  CHECK(contains(rate("0"), "store_gbps is 0; allowed is a number above 0"));
  CHECK(contains(rate("null"), "store_gbps is null; allowed is a number above 0"));
}

TEST_CASE("a file that cannot be read or written is named") {
  CHECK(contains(errorOf([] { (void)MachineModel::load("/nowhere/x.json"); }, ErrorCode::systemError),
                 "/nowhere/x.json: it cannot be read"));
  CHECK(contains(errorOf([] { h200().save("/nowhere/x.json"); }, ErrorCode::systemError),
                 "/nowhere/x.json: it cannot be written"));
}
