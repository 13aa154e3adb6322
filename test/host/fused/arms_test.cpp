// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/fused/arms.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "host/ranks.hpp"
#include "mscclpp/algorithms/collective/allreduce.hpp"
#include "mscclpp/algorithms/rows/all_reduce_rows.hpp"
#include "support/temporary_folder.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;
using mscclpp::test::errorOf;
using mscclpp::test::mentions;
using mscclpp::test::textOf;

namespace {

constexpr double micro = 1e-6;

// Arms that put nothing into the stream, and a timer that goes by what this rank's calls shall take.
struct Rehearsal {
  std::vector<double> takes;  // microseconds, by arm
  std::vector<std::size_t> calls{};
  std::size_t timed = 0;
  std::vector<std::size_t> order{};  // of samples

  Arms<>::Arm arm(std::string name) {
    auto const number = calls.size();
    calls.push_back(0);
    return {std::move(name), [this, number](ArmKey const&, Stream const&) {
              ++calls[number];
              timed = number;
            }};
  }
  ArmsOptions options() {
    ArmsOptions result;
    result.time = [this](Stream const&, std::function<void()> const& work) {
      work();
      order.push_back(timed);
      return takes[timed] * micro * 8;
    };
    return result;
  }
};

struct Setting {
  explicit Setting(char const* value) { ::setenv("MSCCLPP_ARMS", value, 1); }
  ~Setting() { ::unsetenv("MSCCLPP_ARMS"); }
  Setting(Setting const&) = delete;
  Setting& operator=(Setting const&) = delete;
};

std::string contentOf(std::string const& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Stream captured(Stream const& stream) { return Stream::borrow(stream.device(), stream.native(), stream.id(), true); }

}  // namespace

// ---- the choice -----------------------------------------------------------------------------------------------------

TEST_CASE("the slowest rank of each arm counts, and all ranks take the same arm") {
  // Each rank by itself would take another one.
  std::vector<std::vector<double>> const takes{{5, 1, 6}, {5, 9, 4}, {5.5, 6, 3}};
  forEachRank(3, [&](Rank& rank) {
    Rehearsal rehearsal{takes[static_cast<std::size_t>(rank.rank)]};
    Arms arms(rank.communicator, "product", {rehearsal.arm("pair"), rehearsal.arm("fused"), rehearsal.arm("narrow")},
              rehearsal.options());
    CHECK(arms.choice().chosen({4, 8}).empty());
    arms({4, 8}, rank.stream);
    CHECK(arms.choice().chosen({4, 8}) == "pair");
    auto const* const times = arms.choice().find({4, 8});
    REQUIRE(times != nullptr);
    CHECK(times->seconds[0].value() == doctest::Approx(5.5 * micro));
    CHECK(times->seconds[1].value() == doctest::Approx(9 * micro));
    CHECK(times->seconds[2].value() == doctest::Approx(6 * micro));
    CHECK(arms.describe() ==
          "product on 3 ranks of simulated GPU\n  [4, 8]: pair, of pair 5.50 us, fused 9.00 us, narrow 6.00 us\n");
    // A trial, 7 samples of 1 + 8, and the call itself.
    CHECK(rehearsal.calls == std::vector<std::size_t>{65, 64, 64});
    arms({4, 8}, rank.stream);
    CHECK(rehearsal.calls == std::vector<std::size_t>{66, 64, 64});
    // Another shape is another question.
    rehearsal.takes = {7, 1, 6};
    arms({4, 9}, rank.stream);
    CHECK(arms.choice().chosen({4, 9}) == "fused");
    arms({4, 8, 0}, rank.stream);  // nor is this the first one
    CHECK(arms.choice().chosen({4, 8, 0}) == "fused");
    CHECK(arms.choice().chosen({4, 8}) == "pair");
  });
}

TEST_CASE("samples of the arms take turns, each first in its turn, and outliers do not count") {
  forEachRank(2, [](Rank& rank) {
    Rehearsal rehearsal{{3, 2}};
    auto options = rehearsal.options();
    options.samples = 3;
    auto const steady = options.time;
    options.time = [&](Stream const& stream, std::function<void()> const& work) {
      auto const seconds = steady(stream, work);
      return rehearsal.order.size() == 4 ? 1.0 : seconds;  // the second one of arm 1
    };
    Arms arms(rank.communicator, "product", {rehearsal.arm("a"), rehearsal.arm("b")}, options);
    arms({1}, rank.stream);
    CHECK(rehearsal.order == std::vector<std::size_t>{0, 1, 1, 0, 0, 1});
    CHECK(arms.choice().chosen({1}) == "b");
  });
}

TEST_CASE("within the margin of the fastest, the arm that is named first is taken") {
  struct Case {
    std::vector<double> takes;
    double margin;
    char const* best;
  };
  for (auto const& test : {Case{{10.1, 10, 12}, 0.02, "a"}, Case{{10.3, 10, 12}, 0.02, "b"},
                           Case{{10.3, 10, 9.9}, 0.02, "b"}, Case{{10.1, 10, 12}, 0, "b"}, Case{{9, 9, 9}, 0, "a"}}) {
    forEachRank(2, [&](Rank& rank) {
      Rehearsal rehearsal{test.takes};
      auto options = rehearsal.options();
      options.margin = test.margin;
      Arms arms(rank.communicator, "product", {rehearsal.arm("a"), rehearsal.arm("b"), rehearsal.arm("c")}, options);
      arms({1}, rank.stream);
      CHECK(arms.choice().chosen({1}) == test.best);
    });
  }
}

// ---- arms that do not run -------------------------------------------------------------------------------------------

TEST_CASE("an arm that any rank refuses is left out on all ranks") {
  forEachRank(3, [](Rank& rank) {
    Rehearsal rehearsal{{10}};
    auto const slow = rehearsal.arm("slow");
    int tries = 0;
    Arms arms(rank.communicator, "product",
              {{"first", [&](ArmKey const& key, Stream const&) { return ++tries > 0 && key.numbers()[0] > 8; }},
               {"second",
                [&](ArmKey const&, Stream const&) {
                  if (rank.rank == 1) throw std::runtime_error("this rank has no such kernel");
                }},
               slow},
              rehearsal.options());
    arms({8}, rank.stream);
    CHECK(arms.choice().chosen({8}) == "slow");
    CHECK(arms.describe().find("first refuses, second refuses, slow 10.00 us") != std::string::npos);
    arms({8}, rank.stream);
    CHECK(tries == 1);
  });
}

TEST_CASE("where all arms refuse, every rank is told which operation, which key and why") {
  forEachRank(2, [](Rank& rank) {
    Arms arms(rank.communicator, "product",
              {{"small", [](ArmKey const&, Stream const&) { return false; }},
               {"big", [](ArmKey const&, Stream const&) {
                  throw Error(ErrorCode::unsupported, "columns are 7; allowed are multiples of 8");
                }}});
    for (int call = 0; call < 2; ++call) {  // nothing is kept
      auto const error = errorOf([&] { arms({3, 7}, rank.stream); });
      REQUIRE(error);
      CHECK(error->code() == ErrorCode::invalidUsage);
      CHECK_MESSAGE(mentions(error, "rank " + std::to_string(rank.rank) +
                                        ": product [3, 7]: all arms refuse: small on rank 0: it does not take this "
                                        "shape; big on rank 0: columns are 7; allowed are multiples of 8"),
                    textOf(error));
    }
    CHECK(arms.choice().find({3, 7}) == nullptr);
  });
}

TEST_CASE("what an arm throws after its first call ends the call on all ranks") {
  forEachRank(3, [](Rank& rank) {
    int calls = 0;
    Arms arms(rank.communicator, "product", {{"only", [&](ArmKey const&, Stream const&) {
                                                if (++calls == 20 && rank.rank == 2) throw std::runtime_error("gone");
                                                if (calls == 30) FAIL("others go on");
                                              }}});
    auto const error = errorOf([&] { arms({1}, rank.stream); });
    auto const text = "product [1], arm only, while it was measured: gone";
    CHECK_MESSAGE(mentions(error, rank.rank == 2 ? text
                                                 : std::string("rank 2 failed while the choice of arms was "
                                                               "made: ") +
                                                       text),
                  textOf(error));
  });
}

TEST_CASE("an arm that goes by more than the key is told so") {
  forEachRank(2, [](Rank& rank) {
    bool refuses = false;
    Arms arms(rank.communicator, "product", {{"only", [&](ArmKey const&, Stream const&) { return !refuses; }}});
    arms({1}, rank.stream);
    refuses = true;
    auto const error = errorOf([&] { arms({1}, rank.stream); });
    CHECK_MESSAGE(mentions(error, "product [1]: arm only refuses; it took this key when it was measured"),
                  textOf(error));
  });
}

TEST_CASE("times that are none are refused") {
  forEachRank(2, [](Rank& rank) {
    for (double const seconds : {-1.0, std::nan("")}) {
      ArmsOptions options;
      options.time = [=](Stream const&, std::function<void()> const&) { return seconds; };
      Arms arms(rank.communicator, "product", {{"only", [](ArmKey const&, Stream const&) {}}}, options);
      CHECK(mentions(errorOf([&] { arms({1}, rank.stream); }), "ArmsOptions::time returned"));
    }
  });
}

// ---- ranks that differ ----------------------------------------------------------------------------------------------

TEST_CASE("ranks that make other arms, or call other keys, are told who differs") {
  forEachRank(2, [](Rank& rank) {
    Rehearsal rehearsal{{1, 2}};
    auto const one = rehearsal.arm("one");
    auto const two = rehearsal.arm("two");
    auto const others = rank.rank == 0 ? std::vector{one, two} : std::vector{two, one};
    auto const error = errorOf([&] { Arms arms(rank.communicator, "product", others); });
    CHECK_MESSAGE(mentions(error,
                           "rank 0 makes \"product\" of one, two, 7 samples of 8 operations, margin 0.02, "
                           "MSCCLPP_ARMS for none; rank 1 makes \"product\" of two, one"),
                  textOf(error));

    Arms arms(rank.communicator, "product", {one, two}, rehearsal.options());
    auto const other = errorOf([&] { arms({5, rank.rank}, rank.stream); });
    auto const text = "this rank calls product [5, " + std::to_string(rank.rank) + "], rank " +
                      std::to_string(1 - rank.rank) + " calls product [5, " + std::to_string(1 - rank.rank) + "]";
    CHECK_MESSAGE(mentions(other, text), textOf(other));
    CHECK(rehearsal.calls == std::vector<std::size_t>{0, 0});
  });
}

TEST_CASE("names, numbers and keys that cannot be are refused") {
  forEachRank(1, [](Rank& rank) {
    auto const arm = [](std::string name) { return Arms<>::Arm(std::move(name), [](ArmKey const&, Stream const&) {}); };
    auto const refusal = [&](std::string operation, std::vector<Arms<>::Arm> list, ArmsOptions options = {}) {
      return errorOf([&] { Arms arms(rank.communicator, std::move(operation), std::move(list), std::move(options)); });
    };
    CHECK(mentions(refusal("product", {}), "rank 0: arms of \"product\": there are none"));
    CHECK(mentions(refusal("", {arm("a")}), "\"\" is no name"));
    CHECK(mentions(refusal("product", {arm("a=b")}), "\"a=b\" is no name"));
    CHECK(mentions(refusal("a,b", {arm("a")}), "\"a,b\" is no name"));
    CHECK(mentions(refusal("product", {arm("a"), arm("b"), arm("a")}), "two have one name in a, b, a"));
    CHECK(mentions(refusal("product", {arm("a")}, {.samples = 0}), "0 samples of 8 operations"));
    CHECK(mentions(refusal("product", {arm("a")}, {.operations = 0}), "7 samples of 0 operations"));
    CHECK(mentions(refusal("product", {arm("a")}, {.margin = 1}), "margin 1"));
    CHECK(mentions(errorOf([] { ArmKey const key(4, -1); }), "a key of arms is [4, -1]"));
    CHECK(mentions(errorOf([] { ArmKey const key(std::span<std::int64_t const>{}); }), "allowed are 1 to 6 numbers"));
  });
}

// ---- graphs ---------------------------------------------------------------------------------------------------------

TEST_CASE(
    "while a graph is captured nothing is measured: the nearest known key decides, else the first arm that runs") {
  forEachRank(2, [](Rank& rank) {
    Rehearsal rehearsal{{2, 1, 3}};
    auto const a = rehearsal.arm("a"), b = rehearsal.arm("b"), c = rehearsal.arm("c");
    Arms arms(rank.communicator, "product", {a, b, c}, rehearsal.options());
    auto const graph = captured(rank.stream);
    arms({1024, 64}, graph);
    CHECK(rehearsal.calls == std::vector<std::size_t>{1, 0, 0});
    CHECK(arms.choice().find({1024, 64}) == nullptr);

    arms({1, 64}, rank.stream);  // b
    rehearsal.takes = {2, 3, 1};
    arms({256, 64}, rank.stream);  // c
    arms({64}, rank.stream);       // of another length: never the nearest
    auto const taken = [&](ArmKey const& key) {
      auto const before = rehearsal.calls;
      arms(key, graph);
      for (std::size_t i = 0; i < before.size(); ++i) {
        if (rehearsal.calls[i] == before[i] + 1) return i;
      }
      return before.size();
    };
    CHECK(taken({1, 64}) == 1);  // known
    CHECK(taken({4, 64}) == 1);
    CHECK(taken({10, 64}) == 1);
    CHECK(taken({100, 64}) == 2);
    CHECK(taken({200, 8}) == 2);
    CHECK(taken({100000, 64}) == 2);
    CHECK(taken({64, 64, 64}) == 0);
    CHECK(arms.choice().find({4, 64}) == nullptr);

    // One that refuses gives way to the next, in the order of their names.
    Arms careful(rank.communicator, "careful", {{"none", [](ArmKey const&, Stream const&) { return false; }}, b});
    auto const before = rehearsal.calls[1];
    careful({1}, graph);
    CHECK(rehearsal.calls[1] == before + 1);
    Arms none(rank.communicator, "none", {{"none", [](ArmKey const&, Stream const&) { return false; }}});
    CHECK(mentions(errorOf([&] { none({1}, graph); }), "none [1]: all arms refuse: none"));
  });
}

// ---- profiles -------------------------------------------------------------------------------------------------------

TEST_CASE("what was measured is found again in the file, by the same operation, arms, ranks and links") {
  TemporaryFolder const folder;
  auto const path = (folder.path() / "deeper" / "arms.json").string();
  auto const calls = [&](int ranks, std::string const& operation, std::vector<std::string> const& names,
                         std::vector<double> const& takes, std::vector<ArmKey> const& keys) {
    std::vector<std::string> chosen;
    std::size_t total = 0;
    forEachRank(ranks, [&](Rank& rank) {
      Rehearsal rehearsal{takes};
      auto options = rehearsal.options();
      options.profile = path;
      std::vector<Arms<>::Arm> list;
      for (auto const& name : names) list.push_back(rehearsal.arm(name));
      list.push_back({"never", [](ArmKey const&, Stream const&) { return false; }});
      Arms arms(rank.communicator, operation, list, options);
      for (auto const& key : keys) {
        arms(key, rank.stream);
        if (rank.rank == 0) chosen.emplace_back(arms.choice().chosen(key));
      }
      if (rank.rank == 0) {
        for (auto const one : rehearsal.calls) total += one;
      }
    });
    return std::make_pair(chosen, total);
  };
  using Names = std::vector<std::string>;
  constexpr std::size_t measured = 2 * 64 + 1;
  CHECK(calls(2, "product", {"a", "b"}, {2, 1}, {{1, 2}, {3}}) == std::make_pair(Names{"b", "b"}, 2 * measured));
  // After a restart, whatever would be measured now; and beside a new key, which is kept, too.
  CHECK(calls(2, "product", {"a", "b"}, {1, 2}, {{1, 2}, {3}}) == std::make_pair(Names{"b", "b"}, std::size_t{2}));
  CHECK(calls(2, "product", {"a", "b"}, {1, 2}, {{1, 2}, {4}}) == std::make_pair(Names{"b", "a"}, measured + 1));
  CHECK(calls(2, "product", {"b", "a"}, {9, 9}, {{4}}) == std::make_pair(Names{"a"}, std::size_t{1}));  // by name
  // Each of these is something else, and leaves the others as they are.
  CHECK(calls(2, "scatter", {"a", "b"}, {1, 2}, {{3}}) == std::make_pair(Names{"a"}, measured));
  CHECK(calls(3, "product", {"a", "b"}, {1, 2}, {{3}}) == std::make_pair(Names{"a"}, measured));
  CHECK(calls(2, "product", {"a", "b"}, {9, 9}, {{1, 2}, {3}, {4}}) ==
        std::make_pair(Names{"b", "b", "a"}, std::size_t{3}));
  CHECK(calls(2, "product", {"a", "c"}, {1, 2}, {{3}}) == std::make_pair(Names{"a"}, measured));
  CHECK(calls(2, "product", {"a"}, {1}, {{4}}) == std::make_pair(Names{"a"}, std::size_t{65}));
  CHECK(contentOf(path).find(R"("refused": [)") != std::string::npos);
  for (auto const& entry : std::filesystem::directory_iterator(std::filesystem::path(path).parent_path())) {
    CHECK(entry.path().filename() == "arms.json");  // nothing half written
  }
}

TEST_CASE("a file that is not right is refused on all ranks, with the place") {
  TemporaryFolder const folder;
  auto const path = folder.file("arms.json");
  auto const profile = [](std::string const& entry) {
    return R"({"version": 1, "profiles": [{"device": "simulated GPU", "ranks": 2, "ranks_per_device": 1,
               "links": "whole_lines", "operations": {"product": [)" +
           entry + "]}}]}";
  };
  struct Case {
    std::string content;
    char const* text;
  };
  std::vector<Case> const cases{
      {"{", "it is no JSON"},
      {R"({"version": 2, "profiles": []})", "version is 2; allowed is a whole number from 1 to 1"},
      {R"({"version": 1})", "the file has no \"profiles\""},
      {R"({"version": 1, "profiles": [{"device": "x", "ranks": 2, "ranks_per_device": 3}]})",
       "profiles[0].ranks_per_device is 3; allowed is a whole number from 1 to 2"},
      {R"({"version": 1, "profiles": [{"device": "x", "ranks": 2, "ranks_per_device": 1, "links": "fast"}]})",
       "profiles[0].links is \"fast\"; allowed is \"whole_lines\" or \"torn_lines\""},
      {profile(R"({"key": [], "time_us": {}})"), "product[0].key is []; allowed is 1 to 6 numbers"},
      {profile(R"({"key": [1, 2, 3, 4, 5, 6, 7], "time_us": {}})"), "allowed is 1 to 6 numbers"},
      {profile(R"({"key": [-1], "time_us": {}})"), "product[0].key[0] is -1"},
      {profile(R"({"key": [1], "time_us": {"a": -2}})"), "product[0].time_us.a is -2"},
      {profile(R"({"key": [1], "time_us": {"a": 2}, "refused": [3]})"), "product[0].refused[0] is 3"}};
  auto const onRanks = [&](std::function<void(Rank&, Rehearsal&, std::optional<Error> const&, Arms<>*)> const& look) {
    forEachRank(2, [&](Rank& rank) {
      Rehearsal rehearsal{{1, 2}};
      auto options = rehearsal.options();
      options.profile = path;
      auto const list = std::vector{rehearsal.arm("a"), rehearsal.arm("b")};
      std::optional<Arms<>> arms;
      auto const error = errorOf([&] { arms.emplace(rank.communicator, "product", list, options); });
      look(rank, rehearsal, error, arms ? &*arms : nullptr);
    });
  };
  for (auto const& test : cases) {
    std::ofstream(path) << test.content;
    onRanks([&](Rank&, Rehearsal&, std::optional<Error> const& error, Arms<>*) {
      REQUIRE(error);
      CHECK(error->code() == ErrorCode::invalidUsage);
      CHECK_MESSAGE(mentions(error, "profile of arms " + path), textOf(error));
      CHECK_MESSAGE(mentions(error, test.text), textOf(error));
    });
  }
  // Entries without an arm that runs say nothing.
  std::ofstream(path) << profile(R"({"key": [1], "time_us": {}, "refused": ["a", "b"]},
                                    {"key": [2], "time_us": {"a": 5, "b": 5.05}})");
  onRanks([](Rank& rank, Rehearsal& rehearsal, std::optional<Error> const& error, Arms<>* arms) {
    REQUIRE_MESSAGE(!error, textOf(error));
    CHECK(arms->choice().chosen({2}) == "a");
    CHECK(arms->choice().chosen({1}).empty());
    (*arms)({1}, rank.stream);
    CHECK(rehearsal.calls[1] == 64);
  });
  // One that is no file: rank 0 says so, the others hear of it.
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  onRanks([&](Rank& rank, Rehearsal&, std::optional<Error> const& error, Arms<>*) {
    CHECK_MESSAGE(mentions(error, "profile of arms " + path + ": it is a folder; name a file"), textOf(error));
    CHECK(mentions(error, "rank 0 failed while the choice of arms was made") == (rank.rank == 1));
  });
}

TEST_CASE("a profile that cannot be written ends no call") {
  TemporaryFolder const folder;
  std::ofstream(folder.file("plain")) << "x";
  forEachRank(2, [&](Rank& rank) {
    Rehearsal rehearsal{{2, 1}};
    auto options = rehearsal.options();
    options.profile = folder.file("plain") + "/arms.json";
    Arms arms(rank.communicator, "product", {rehearsal.arm("a"), rehearsal.arm("b")}, options);
    arms({1}, rank.stream);
    CHECK(arms.choice().chosen({1}) == "b");
  });
  CHECK(contentOf(folder.file("plain")) == "x");
}

// ---- the setting ----------------------------------------------------------------------------------------------------

TEST_CASE("MSCCLPP_ARMS forces an arm, of one operation or of all that have it") {
  struct Case {
    char const* value;
    char const* chosen;
  };
  for (auto const& test :
       {Case{"product=a", "a"}, Case{"*=a", "a"}, Case{"scatter=a,product=c", "c"}, Case{"product=c,*=a", "c"},
        Case{"*=a,product=c", "a"}, Case{"*=elsewhere", "b"}, Case{"scatter=elsewhere", "b"}, Case{"", "b"}}) {
    Setting const setting(test.value);
    forEachRank(2, [&](Rank& rank) {
      Rehearsal rehearsal{{2, 1, 3}};
      Arms arms(rank.communicator, "product", {rehearsal.arm("a"), rehearsal.arm("b"), rehearsal.arm("c")},
                rehearsal.options());
      arms({1}, rank.stream);
      CHECK(arms.choice().chosen({1}) == test.chosen);
      bool const forced = arms.describe().find(", forced: ") != std::string::npos;
      CHECK(forced == (std::string_view(test.chosen) != "b"));
      CHECK(rehearsal.order.empty() == forced);
      std::size_t total = 0;
      for (auto const one : rehearsal.calls) total += one;
      CHECK((total == 1) == forced);
    });
  }
  auto const refusal = [](char const* value) {
    Setting const setting(value);
    std::string text;
    forEachRank(2, [&](Rank& rank) {
      auto const error = errorOf([&] {
        Arms arms(
            rank.communicator, "product",
            {{"a", [](ArmKey const&, Stream const&) { return false; }}, {"b", [](ArmKey const&, Stream const&) {}}});
        arms({4}, rank.stream);
      });
      if (rank.rank == 1) text = textOf(error);
    });
    return text;
  };
  CHECK(refusal("product=d").find("product has no arm \"d\", but a, b") != std::string::npos);
  CHECK(refusal("product").find("\"product\" names no arm; use operation=arm") != std::string::npos);
  CHECK(refusal("product=a") == "rank 1: product [4]: arm a refuses; MSCCLPP_ARMS forces it");
}

// ---- arms with kernels ----------------------------------------------------------------------------------------------

namespace {

constexpr std::size_t rows = 3;
constexpr std::size_t columns = 96;

using Matrix = AllReduce<OneShot, PacketTransport<LL16>, Sum>;
using Rows = AllReduceRows<RowOneShot, PacketTransport<LL16, 4>, Sum>;

MSCCLPP_DEVICE float normOf(float squares) { return 1 / std::sqrt(squares / static_cast<float>(columns) + 1e-6f); }

// residual += sum over ranks of x; y = residual, normalised.
struct FusedNorm {
  MSCCLPP_DEVICE void operator()(float const* x, float* residual, float* y, DeviceTeam const& team) const {
    MatrixView const kept{residual, rows, columns};
    Rows{team}(
        thisGrid(), MatrixView{x, rows, columns},
        [&](auto& row, auto const& old) {
          row.map([](float v, float r) { return v + r; }, old);
          row.store(kept);
          float const norm = normOf(row.sum([](float v) { return v * v; }));
          row.map([=](float v) { return v * norm; });
          row.store(MatrixView{y, rows, columns});
        },
        kept);
  }
};
struct JustReduce {
  MSCCLPP_DEVICE void operator()(float const* x, float* sum, DeviceTeam const& team) const {
    Matrix{team}(thisGrid(), View{x, rows * columns}, View{sum, rows * columns});
  }
};
struct JustNorm {
  MSCCLPP_DEVICE void operator()(float const* sum, float* residual, float* y) const {
    for (auto row = static_cast<std::size_t>(thisGrid().rank()); row < rows;
         row += static_cast<std::size_t>(thisGrid().size())) {
      float squares = 0;
      for (auto i = row * columns; i < (row + 1) * columns; ++i) {
        residual[i] += sum[i];
        squares += residual[i] * residual[i];
      }
      float const norm = normOf(squares);
      for (auto i = row * columns; i < (row + 1) * columns; ++i) y[i] = residual[i] * norm;
    }
  }
};

// Both arms on the buffers of a rank, and what they leave behind after two calls.
struct Layer {
  static constexpr LaunchShape shape{.blocks = 2, .threads = 32};

  Layer(Communicator const& communicator, Stream const& stream_)
      : stream(stream_),
        ranks(static_cast<std::uint32_t>(communicator.size())),
        rowShape(Rows::shape<float>(rows, columns, 3)),
        rowTeam(communicator, Rows::requirement(ranks, rowShape.blocks, rowShape.threads)),
        team(communicator, Matrix::requirement(ranks, shape.blocks, shape.threads)),
        x(communicator.device(), rows * columns),
        sum(communicator.device(), rows * columns),
        residual(communicator.device(), rows * columns),
        y(communicator.device(), rows * columns),
        before(communicator.device(), rows * columns) {
    std::vector<float> mine(rows * columns), old(rows * columns);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      mine[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(communicator.rank()) * 3) % 11) - 5;
      old[i] = static_cast<float>(i % 5);
    }
    copyToDevice(x, std::span<float const>(mine));
    copyToDevice(residual, std::span<float const>(old));
  }

  std::vector<Arms<float*>::Arm> arms() {
    return {{"unfused",
             [this](ArmKey const&, Stream const& s, float* out) {
               ++calls[0];
               launch(s, shape, JustReduce{}, x.data(), sum.data(), team.deviceHandle());
               launch(s, shape, JustNorm{}, sum.data(), residual.data(), out);
             }},
            {"fused", [this](ArmKey const&, Stream const& s, float* out) {
               ++calls[1];
               launch(s, rowShape, FusedNorm{}, x.data(), residual.data(), out, rowTeam.deviceHandle());
             }}};
  }
  std::function<void()> preserve(Stream const& s) {
    s.copy(before.data(), residual.data(), residual.bytes());
    return [this, &s] { s.copy(residual.data(), before.data(), residual.bytes()); };
  }

  Stream const& stream;
  std::uint32_t ranks;
  LaunchShape rowShape;
  Team rowTeam, team;
  GpuBuffer<float> x, sum, residual, y, before;
  std::array<int, 2> calls{};
};

std::vector<float> expectedResidual(int ranks, int calls) {
  std::vector<float> result(rows * columns);
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<float>(i % 5);
    for (int rank = 0; rank < ranks; ++rank) {
      result[i] +=
          static_cast<float>(calls) * (static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 3) % 11) - 5);
    }
  }
  return result;
}

}  // namespace

TEST_CASE("a fused kernel and its pair leave the same behind, whichever is taken, and measuring leaves nothing") {
  std::vector<std::vector<std::vector<float>>> results;  // by the faster arm, by rank
  for (std::size_t faster = 0; faster < 2; ++faster) {
    auto& ofRanks = results.emplace_back(3);
    forEachRank(3, [&](Rank& rank) {
      Layer layer(rank.communicator, rank.stream);
      ArmsOptions options;
      options.samples = 2;
      options.operations = 2;
      options.time = [&](Stream const& stream, std::function<void()> const& work) {
        auto const before = layer.calls;
        work();
        stream.synchronize();
        return layer.calls[faster] == before[faster] ? 2.0 : 1.0;
      };
      Arms<float*> arms(rank.communicator, "all_reduce_norm", layer.arms(), options);
      arms.preserve([&](ArmKey const&, Stream const& s, float*) { return layer.preserve(s); });
      for (int call = 1; call <= 2; ++call) {
        arms({rows, columns}, rank.stream, layer.y.data());
        rank.synchronize();
        CHECK(copyToHost(layer.residual) == expectedResidual(3, call));
      }
      CHECK(arms.choice().chosen({rows, columns}) == (faster == 0 ? "unfused" : "fused"));
      ofRanks[static_cast<std::size_t>(rank.rank)] = copyToHost(layer.y);
    });
  }
  CHECK(results[0] == results[1]);
}

TEST_CASE("by the clock of the machine that is simulated, one kernel beats two") {
  if (Device::count(DeviceKind::sim) < 2) sim::install({.devices = 2});
  sim::run({.ranks = 2, .timing = sim::TimingModel::h200()}, [&](sim::RankContext& context) {
    Communicator communicator(context.bootstrap(), Device{DeviceKind::sim, context.device()});
    Stream const stream(communicator.device());
    Layer layer(communicator, stream);
    ArmsOptions options;
    options.samples = 3;
    options.operations = 2;
    options.time = [&](Stream const& s, std::function<void()> const& work) {
      s.synchronize();
      auto const begin = context.nanoseconds();
      work();
      s.synchronize();
      return (context.nanoseconds() - begin) * 1e-9;
    };
    Arms<float*> arms(communicator, "all_reduce_norm", layer.arms(), options);
    arms.preserve([&](ArmKey const&, Stream const& s, float*) { return layer.preserve(s); });
    arms({rows, columns}, stream, layer.y.data());
    communicator.synchronize(stream);
    CHECK(arms.choice().chosen({rows, columns}) == "fused");
    auto const& seconds = arms.choice().find({rows, columns})->seconds;
    CHECK(*seconds[1] > 1e-6);
    CHECK(*seconds[0] < 20e-6);
    CHECK(copyToHost(layer.residual) == expectedResidual(2, 1));
    communicator.bootstrap()->barrier();
  });
}

TEST_CASE("the processor's clock, where no timer is given") {
  forEachRank(2, [](Rank& rank) {
    Layer layer(rank.communicator, rank.stream);
    Arms<float*> arms(rank.communicator, "all_reduce_norm", layer.arms(), {.samples = 2, .operations = 2});
    arms.preserve([&](ArmKey const&, Stream const& s, float*) { return layer.preserve(s); });
    arms({rows, columns}, rank.stream, layer.y.data());
    rank.synchronize();
    CHECK(copyToHost(layer.residual) == expectedResidual(2, 1));
    for (auto const& seconds : arms.choice().find({rows, columns})->seconds) CHECK(seconds.value() > 0);
  });
}

TEST_CASE("an arm that one rank alone refuses, while another's kernel waits for it, is named on both") {
  if (Device::count(DeviceKind::sim) < 2) sim::install({.devices = 2});
  sim::run({.ranks = 2, .waitsExpire = true}, [&](sim::RankContext& context) {
    Communicator communicator(context.bootstrap(), Device{DeviceKind::sim, context.device()});
    Stream const stream(communicator.device());
    Layer layer(communicator, stream);
    auto list = layer.arms();
    auto const fused = list[1].run;
    list[1].run = [&, fused](ArmKey const& key, Stream const& s, float* out) {
      return communicator.rank() == 0 && fused(key, s, out);
    };
    Arms<float*> arms(communicator, "all_reduce_norm", list);
    auto const error = errorOf([&] { arms({rows, columns}, stream, layer.y.data()); });
    REQUIRE(error);
    CHECK_MESSAGE(mentions(error, "all_reduce_norm [3, 96], arm fused, first call: "), textOf(error));
    CHECK_MESSAGE(mentions(error,
                           "this rank refused the arm: it does not take this shape; an arm refuses on all ranks "
                           "or none") == (communicator.rank() == 1),
                  textOf(error));
  });
}
