// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <doctest/doctest.h>

#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

#include "mscclpp/sim/explore.hpp"
#include "sim/report/frames.hpp"

using namespace mscclpp;
using Json = nlohmann::json;

namespace {

bool contains(std::string const& text, std::string_view part) { return text.find(part) != std::string::npos; }

sim::AccessRecord write() {
  sim::AccessRecord access;
  access.what = "plain write of 4 bytes";
  access.rank = 0;
  access.kernel = "Exchange";
  access.block = 2;
  access.thread = 17;
  access.memory = "offset 128 of 4096 bytes on device 1";
  access.stack = {
      {"void mscclpp::sim_backend::copy<int, 4>(int*, int const*)", "/opt/include/mscclpp/device/copy.hpp", 88},
      {"Exchange::operator()(int*) const", "/project/src/ex change.cpp", 41}};
  return access;
}

sim::AccessRecord hostRead() {
  sim::AccessRecord access;
  access.what = "plain read of 8 bytes";
  access.rank = 1;
  access.host = true;
  access.stack = {{"main", "/project/src/main.cpp", 7}};
  return access;
}

sim::ExploreResult twoFindings() {
  sim::ExploreResult result;
  result.schedules = 12;
  result.seconds = 0.5;
  result.checkedAccesses = 1;
  sim::Finding race;
  race.kind = sim::FindingKind::race;
  race.summary = "a read of rank 1 races with a write of rank 0";
  race.explanation = "Nothing orders them.\nSignal after the write.";
  race.accesses = {write(), hostRead()};
  race.timeline = {"rank 0: signals channel 3", "rank 1: reads \"x\""};
  race.key = 0xfedcba9876543210u;
  race.seed = 18446744073709551615u;
  race.schedule = "r3:1.2";
  race.seen = 5;
  sim::Finding lock;
  lock.kind = sim::FindingKind::deadLock;
  lock.summary = "nobody can go on";
  lock.seed = 9;
  result.findings = {race, lock};
  return result;
}

std::string pathOf(Json const& location) {
  return location.at("physicalLocation").at("artifactLocation").at("uri").get<std::string>();
}

}  // namespace

TEST_CASE("the text names both accesses, their places, what is missing, the last steps and the replay") {
  auto const text = toText(twoFindings());
  for (auto const* part :
       {"2 findings (1 race, 1 deadLock) in 12 schedules, 0.50 s, 1 access checked\n",
        "[1] race: a read of rank 1 races with a write of rank 0\n",
        "    rank 0, kernel \"Exchange\", block 2, thread 17: plain write of 4 bytes\n",
        "      offset 128 of 4096 bytes on device 1\n",
        "      at mscclpp::sim_backend::copy  /opt/include/mscclpp/device/copy.hpp:88\n",
        "      by Exchange::operator()  /project/src/ex change.cpp:41\n",
        "      called from Exchange::operator()  /project/src/ex change.cpp:41\n",
        "    rank 1, host code: plain read of 8 bytes\n      at main  /project/src/main.cpp:7\n",
        "    Nothing orders them.\n    Signal after the write.\n",
        "    The last steps:\n      rank 0: signals channel 3\n      rank 1: reads \"x\"\n",
        "    Shown by 5 schedules. To see it again: ExploreOptions::replay or --replay \"r3:1.2\" (found with seed "
        "18446744073709551615).\n",
        "[2] deadLock: nobody can go on\n", "    Shown by 1 schedule. To see it again: seed 9.\n"}) {
    INFO(part);
    CHECK_MESSAGE(contains(text, part), text);
  }
}

TEST_CASE("the text says when every schedule was run, and when races may have been missed") {
  sim::ExploreResult result;
  result.schedules = 1;
  result.complete = true;
  CHECK(toText(result) == "nothing found in 1 schedule (all that differ), 0.00 s, 0 accesses checked\n");
  result.forgottenAccesses = 3;
  CHECK(contains(toText(result), "dropped from full histories: 3 accesses; races with them may have been missed\n"));
}

TEST_CASE("files below the current folder are named from there, and deep stacks are cut") {
  sim::ExploreResult result;
  sim::Finding finding;
  auto access = hostRead();
  access.stack = {{"f", (std::filesystem::current_path() / "kernels" / "a.cpp").string(), 3}};
  access.stack.resize(40, access.stack.front());
  finding.accesses = {access};
  result.findings = {finding};
  CHECK(contains(toText(result), "at f  kernels/a.cpp:3\n"));
  CHECK(contains(toText(result), "and 28 frames further out\n"));
}

TEST_CASE("long explanations are broken between words") {
  sim::ExploreResult result;
  sim::Finding finding;
  for (int i = 0; i < 60; ++i) finding.explanation += "word ";
  finding.explanation += "\nlast";
  result.findings = {finding};
  std::string expected = "\n    word";
  for (int i = 0; i < 21; ++i) expected += " word";
  auto const text = toText(result);
  CHECK_MESSAGE(contains(text, expected + "\n    word word"), text);
  CHECK(contains(text, "word \n    last\n"));
}

TEST_CASE("JSON holds every field of the findings") {
  auto const document = Json::parse(toJson(twoFindings()));
  CHECK(document.at("ok") == false);
  CHECK(document.at("schedules") == 12);
  CHECK(document.at("seconds") == 0.5);
  auto const& race = document.at("findings").at(0);
  CHECK(race.at("kind") == "race");
  CHECK(race.at("key") == "fedcba9876543210");
  CHECK(race.at("seed") == 18446744073709551615u);
  CHECK(race.at("schedule") == "r3:1.2");
  CHECK(race.at("seen") == 5);
  CHECK(race.at("explanation") == "Nothing orders them.\nSignal after the write.");
  CHECK(race.at("timeline") == Json{"rank 0: signals channel 3", "rank 1: reads \"x\""});
  auto const& first = race.at("accesses").at(0);
  CHECK(first.at("block") == 2);
  CHECK(first.at("thread") == 17);
  CHECK(first.at("stack").at(1) ==
        Json{{"function", "Exchange::operator()(int*) const"}, {"file", "/project/src/ex change.cpp"}, {"line", 41}});
  auto const& second = race.at("accesses").at(1);
  CHECK(second.at("host") == true);
  CHECK(!second.contains("block"));
  CHECK(Json::parse(sim::toJson({})).at("ok") == true);
}

TEST_CASE("text that is not UTF-8 does not break the documents") {
  sim::ExploreResult result;
  sim::Finding finding;
  finding.summary = "bad \xff byte";
  result.findings = {finding};
  CHECK(contains(Json::parse(toJson(result)).at("findings").at(0).at("summary"), "bad "));
  CHECK(contains(Json::parse(toSarif(result)).at("runs").at(0).at("results").at(0).at("message").at("text"), "bad "));
}

TEST_CASE("SARIF puts a finding into the user's source, named from the source root") {
  auto const document = Json::parse(toSarif(twoFindings(), "/project"));
  auto const& run = document.at("runs").at(0);
  CHECK(run.at("originalUriBaseIds").at("SRCROOT").at("uri") == "file:///project/");
  auto const& race = run.at("results").at(0);
  // The later access is the result's place, the earlier one related to it, by its caller outside of the library.
  CHECK(pathOf(race.at("locations").at(0)) == "src/main.cpp");
  CHECK(pathOf(race.at("relatedLocations").at(0)) == "src/ex%20change.cpp");
  auto const& flow = race.at("codeFlows").at(0).at("threadFlows").at(0);
  CHECK(flow.at("locations").size() == 2);
  CHECK(pathOf(flow.at("locations").at(0).at("location")) == "src/ex%20change.cpp");  // callers first
  auto const& access = flow.at("locations").at(1).at("location");
  CHECK(pathOf(access) == "file:///opt/include/mscclpp/device/copy.hpp");
  CHECK(access.at("physicalLocation").at("region").at("startLine") == 88);
  CHECK(
      access.at("message").at("text") ==
      "rank 0, kernel \"Exchange\", block 2, thread 17: plain write of 4 bytes, offset 128 of 4096 bytes on device 1");
  CHECK(race.at("partialFingerprints").at("mscclppFinding/v1") == "fedcba9876543210");
  CHECK(race.at("properties").at("schedule") == "r3:1.2");
  CHECK(run.at("results").at(1).at("locations").empty());
}

TEST_CASE("SARIF without a source root has whole paths") {
  auto const document = Json::parse(toSarif(twoFindings()));
  auto const& run = document.at("runs").at(0);
  CHECK(!run.contains("originalUriBaseIds"));
  CHECK(pathOf(run.at("results").at(0).at("locations").at(0)) == "file:///project/src/main.cpp");
}

TEST_CASE("every kind of finding has a name and a rule of its own") {
  auto const rules = Json::parse(sim::toSarif({})).at("runs").at(0).at("tool").at("driver").at("rules");
  std::set<std::string> ids;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    auto const name = sim::nameOf(static_cast<sim::FindingKind>(i));
    CHECK(name != "unknown");
    CHECK(rules.at(i).at("id") == "mscclpp/" + std::string(name));
    CHECK(!rules.at(i).at("help").at("text").get<std::string>().empty());
    ids.insert(rules.at(i).at("id"));
  }
  CHECK(ids.size() == rules.size());
  CHECK(sim::nameOf(static_cast<sim::FindingKind>(rules.size())) == "unknown");
}

TEST_CASE("names are shortened to what a reader looks for") {
  using sim::shortName;
  CHECK(shortName("main") == "main");
  CHECK(shortName("void mscclpp::put<4ul, int>(int*, std::vector<int>)") == "mscclpp::put");
  CHECK(shortName("std::enable_if<(4)>(3), int>::type get<int>()") == "get");
  CHECK(shortName("(anonymous namespace)::Kernel::operator()(int) const") ==
        "(anonymous namespace)::Kernel::operator()");
  CHECK(shortName("go(int)::{lambda(int)#2}::operator()(int) const [clone .isra.0]") == "go::{lambda#2}::operator()");
  CHECK(shortName("bool operator<<int>(A<int> const&, A<int> const&)") == "operator<");
  CHECK(shortName("std::ostream& operator<< <int>(std::ostream&, A<int>)") == "operator<<");
  CHECK(shortName("std::ostream& operator<<(std::ostream&, A<int>)") == "operator<<");
  CHECK(shortName("bool A::operator()<int>(int)") == "A::operator()");
  CHECK(shortName("Word& Word::operator->() const &") == "Word::operator->");
  CHECK(shortName("A::operator bool() const") == "A::operator bool");
}

TEST_CASE("the machine's frames are cut at both ends, not between") {
  auto const root = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
  std::vector<sim::SourceFrame> const frames{
      {"__tsan_write4", "", 0},
      {"Block::meet()", (root / "src/sim/any/block.cpp").string(), 7},
      {"mscclpp::sim::memoryStep(void const*)", "", 0},
      {"unsigned int mscclpp::sim_backend::arch::load<1>()", "/opt/include/mscclpp/device/arch/sim/memory.hpp", 40},
      {"mscclpp::sim_backend::wait()", "/opt/include/mscclpp/device/semaphore.hpp", 50},
      {"std::invoke<Kernel>()", "/usr/include/c++/12/functional", 1},
      {"Kernel::operator()() const", "/home/me/src/sim/kernel.cpp", 9},
      {"operator()", "/opt/include/mscclpp/launch/sim.hpp", 20},
      {"std::function<void()>::operator()() const", "", 0},
      {"mscclpp::sim::GpuThread::body()", "", 0},
      {"make_fcontext", "", 0}};
  auto const kept = sim::withoutMachine(frames);
  REQUIRE(kept.size() == 3);
  CHECK(kept[0].function == "mscclpp::sim_backend::wait()");
  CHECK(kept[2].line == 9);

  sim::AccessRecord access;
  access.stack = kept;
  CHECK(sim::placeOf(access)->line == 50);
  CHECK(sim::isLibraryFrame(*sim::placeOf(access)));
  CHECK(!sim::isLibraryFrame(*sim::callerOf(access)));
  // Where nothing else is there, something is better than nothing.
  CHECK(sim::withoutMachine({frames[0], frames[1]}).size() == 2);
}
