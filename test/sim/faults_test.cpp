// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Faults that schedules choose: what they do, who is right nevertheless, and how findings name them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/sim/explore.hpp"
#include "sim/schedule/schedule.hpp"
#include "sim/sim_fixture.hpp"

using namespace simtest;
using sim::FindingKind;
using sim::Strategy;

namespace {

// What a rank keeps for its calls: how many it has made, and what the peer has left for it.
struct Mailbox {
  std::uint32_t calls;
  std::uint32_t arrived;  // the peer's calls
  std::uint32_t letters[2];
};

// Sends a letter, and waits for the peer's of the same call by a count that knows nothing of calls that were given up.
struct Swap {
  MSCCLPP_DEVICE void operator()(Mailbox* own, Mailbox* peer, std::uint32_t letter, std::uint32_t* out,
                                 layout::Watch* watch) const {
    auto const call = load<Order::relaxed, Scope::device>(&own->calls) + 1;
    store<Order::relaxed, Scope::system>(&peer->letters[call % 2], letter);
    store<Order::release, Scope::system>(&peer->arrived, call);
    waitUntil(&own->arrived, call, watch, 1, 3);
    store<Order::relaxed, Scope::device>(out, load<Order::relaxed, Scope::system>(&own->letters[call % 2]));
    store<Order::relaxed, Scope::device>(&own->calls, call);
  }
};

class Letters {
 public:
  explicit Letters(Communicator const& communicator)
      : own_(communicator.device(), 1),
        mapped_(communicator.exchangeMemory(communicator.registerMemory(own_.data(), own_.bytes()))),
        peer_(1 - communicator.rank()) {}
  Mailbox* own() const { return own_.data(); }
  Mailbox* peer() const { return reinterpret_cast<Mailbox*>(mapped_[static_cast<std::size_t>(peer_)].data()); }

 private:
  GpuBuffer<Mailbox> own_;
  std::vector<RegisteredMemory> mapped_;
  int peer_;
};

struct NeverComes {
  MSCCLPP_DEVICE void operator()(std::uint32_t* flag, layout::Watch* watch) const { waitUntil(flag, 1, watch); }
};

enum class After { ends, goesOn, makesAnew };

constexpr std::uint32_t calls = 4;

// Swaps letters four times. After an error the rank ends by it, goes on as if nothing had been, or finds together with
// the other and makes everything anew.
void swapLetters(sim::RankContext& rank, After after) {
  Communicator const communicator(rank.bootstrap(), Device{DeviceKind::sim, rank.device()});
  mscclpp::Stream const stream(communicator.device());
  GpuBuffer<std::uint32_t> const out(communicator.device(), 1);
  auto const me = static_cast<std::uint32_t>(rank.rank());
  std::optional<Letters> letters;
  letters.emplace(communicator);
  auto const makeCall = [&](std::uint32_t call) {
    launch(stream, {.blocks = 1, .threads = 1}, Swap{}, letters->own(), letters->peer(), 10 * call + me, out.data(),
           communicator.watch());
    communicator.synchronize(stream);
    if (copyToHost(out).at(0) != 10 * call + 1 - me) throw std::runtime_error("a wrong letter");
  };
  for (std::uint32_t call = 0; call < calls;) {
    try {
      for (; call < calls; ++call) makeCall(call);
    } catch (Error const&) {
      if (after == After::ends) throw;
      stream.synchronize();
      ++call;
    }
    if (after != After::makesAnew) continue;
    // All go on with the first call that none has given up.
    for (auto const& others : communicator.rejoin({static_cast<std::byte>(call)})) {
      call = std::max(call, static_cast<std::uint32_t>(others.at(0)));
    }
    letters.emplace(communicator);
  }
  communicator.bootstrap()->barrier();
}

sim::ExploreResult explored(After after, sim::ExploreOptions options) {
  return sim::explore(
      {.ranks = 2}, [after](sim::RankContext& rank) { swapLetters(rank, after); }, options);
}

sim::ExploreOptions withFaults(int schedules, int faults = 1, Strategy strategy = Strategy::random) {
  return {.strategy = strategy, .schedules = schedules, .faults = faults};
}

// The one schedule of a replay.
sim::ExploreResult replayed(After after, std::string const& schedule) { return explored(after, {.replay = schedule}); }

}  // namespace

TEST_CASE("a program that ends with the report, or makes all anew, is right under any fault") {
  for (auto const strategy : {Strategy::random, Strategy::pct}) {
    for (int faults : {0, 1, 3}) {
      CAPTURE(faults);
      for (auto const after : {After::ends, After::makesAnew}) {
        auto const result = explored(after, withFaults(150, faults, strategy));
        CHECK_MESSAGE(result.ok(), sim::toText(result));
        CHECK(result.schedules == (faults > 0 || strategy == Strategy::pct ? 151 : 150));
      }
    }
  }
}

TEST_CASE("a program that goes on with its counts after a report is found wrong, by the fault that it takes") {
  auto const result = explored(After::goesOn, withFaults(200));
  auto const wrong =
      std::ranges::find_if(result.findings, [](auto const& f) { return contains(f.summary, "a wrong letter"); });
  REQUIRE_MESSAGE(wrong != result.findings.end(), sim::toText(result));
  CHECK(wrong->kind == FindingKind::hostFailure);
  REQUIRE(wrong->faults.size() == 1);
  CHECK(contains(wrong->faults[0], "rank "));
  INFO(wrong->schedule);
  CHECK(std::ranges::count(wrong->schedule, '=') >= 1);

  auto const text = sim::toText(result);
  CHECK(contains(text, "Faults of the schedule:\n"));
  CHECK(contains(sim::toJson(result), "\"faults\": ["));
  CHECK(contains(sim::toSarif(result), "Fault of the schedule: rank "));

  // The replay line holds the fault, whether or not faults are asked for.
  auto const again = replayed(After::goesOn, wrong->schedule);
  REQUIRE(again.findings.size() == 1);
  CHECK(again.findings[0].summary == wrong->summary);
  CHECK(again.findings[0].schedule == wrong->schedule);
  CHECK(again.findings[0].faults == wrong->faults);

  // So does the seed.
  auto options = withFaults(1);
  options.seed = wrong->seed;
  auto const bySeed = explored(After::goesOn, options);
  CHECK(std::ranges::any_of(bySeed.findings, [&](auto const& f) { return f.key == wrong->key; }));

  // Without faults nothing is wrong.
  CHECK(explored(After::goesOn, withFaults(200, 0)).ok());
}

TEST_CASE("each kind of fault does what its name says") {
  auto const faultOf = [](std::string const& schedule) {
    auto const result = replayed(After::goesOn, schedule);
    REQUIRE_MESSAGE(result.findings.size() == 1, schedule, ": ", sim::toText(result));
    REQUIRE(result.findings[0].faults.size() == 1);
    CHECK(contains(result.findings[0].schedule, schedule));
    return result.findings[0].faults[0];
  };
  CHECK(contains(faultOf("v1,1.1=late@1"), "rank 1 was late: its kernel 1 (\"(anonymous namespace)::Swap\") began"));
  CHECK(contains(faultOf("v1,1.1.0=late@1"), "rank 1 was late: block 0 of its kernel 1 "));
  CHECK(contains(faultOf("v1,0.2=absent"), "rank 0 was absent: the launch of its kernel 2 "));
  // Where the wait ends at its first look or does not come to it, the fault does not strike.
  CHECK(replayed(After::goesOn, "v1,1.1=abort@1000").ok());
  CHECK(replayed(After::goesOn, "v1,1.70=absent").ok());
  CHECK(replayed(After::ends, "v1,1.1=late@1").ok());

  // What both ranks see of each.
  std::vector<std::string> told(2);
  auto const tell = [&](std::string const& schedule) {
    sim::explore({.ranks = 2},
                 [&](sim::RankContext& rank) {
                   auto& text = told[static_cast<std::size_t>(rank.rank())];
                   text.clear();
                   try {
                     swapLetters(rank, After::ends);
                   } catch (Error const& error) {
                     text = error.what();
                     throw;
                   }
                 },
                 {.replay = schedule});
  };
  tell("v1,1.1=late@1");
  CHECK(contains(told[0], "rank 0 block 0 thread 0 waited"));
  tell("v1,1.1=absent");
  CHECK(contains(told[1], "launch of kernel"));
  CHECK(contains(told[0], "rank 0 block 0 thread 0 waited"));
  tell("v1,0.1=abort@1,1.1=abort@1");  // whose letter is there first does not wait
  CHECK(contains(told[0] + told[1], " block 0 thread 0 waited"));
}

TEST_CASE("a watch keeps its room for reports from call to call") {
  std::vector<std::string> told;
  sim::explore({.ranks = 1},
               [&](sim::RankContext& rank) {
                 told.clear();
                 Communicator const communicator(rank.bootstrap(), Device{DeviceKind::sim, rank.device()});
                 mscclpp::Stream const stream(communicator.device());
                 GpuBuffer<std::uint32_t> const flag(communicator.device(), 1);
                 for (int call = 0; call < 3; ++call) {
                   launch(stream, {.blocks = 1, .threads = 40}, NeverComes{}, flag.data(), communicator.watch());
                   try {
                     communicator.synchronize(stream);
                   } catch (Error const& error) {
                     told.emplace_back(error.what());
                   }
                 }
               },
               {.replay = "v1,0.0=abort@1,0.1=abort@1,0.2=abort@1"});
  REQUIRE(told.size() == 3);
  for (auto const& text : told) {
    CHECK_MESSAGE(contains(text, " waited "), text);
    CHECK_MESSAGE(contains(text, "and 8 more reports"), text);
  }
}

TEST_CASE("what a fault does not excuse is found") {
  auto const found =
      [](std::function<void(sim::RankContext&, Communicator const&, mscclpp::Stream const&)> const& body) {
        auto const result = sim::explore(
            {.ranks = 2},
            [&](sim::RankContext& rank) {
              Communicator const communicator(rank.bootstrap(), Device{DeviceKind::sim, rank.device()});
              mscclpp::Stream const stream(communicator.device());
              body(rank, communicator, stream);
            },
            withFaults(60));
        REQUIRE_MESSAGE(!result.ok(), "nothing found");
        return result.findings;
      };
  // A wait without a watch has no limit.
  auto const unwatched = found([](sim::RankContext&, Communicator const& communicator, mscclpp::Stream const& stream) {
    Letters const letters(communicator);
    GpuBuffer<std::uint32_t> const out(communicator.device(), 1);
    launch(stream, {.blocks = 1, .threads = 1}, Swap{}, letters.own(), letters.peer(), 1u, out.data(),
           static_cast<layout::Watch*>(nullptr));
    stream.synchronize();
    communicator.bootstrap()->barrier();
  });
  CHECK(unwatched[0].kind == FindingKind::deadLock);
  CHECK(contains(unwatched[0].faults.at(0), "was absent"));

  // An error that is no report.
  auto const misused = found([](sim::RankContext& rank, Communicator const&, mscclpp::Stream const&) {
    try {
      swapLetters(rank, After::ends);
    } catch (Error const&) {
      throw Error(ErrorCode::invalidUsage, "the program's own fault");
    }
  });
  CHECK(misused[0].kind == FindingKind::hostFailure);
  CHECK(contains(misused[0].summary, "the program's own fault"));
}

TEST_CASE("without the option schedules are what they were") {
  for (auto const strategy : {Strategy::random, Strategy::pct}) {
    auto const plain = explored(After::goesOn, {.strategy = strategy, .schedules = 20});
    auto const none = explored(After::goesOn, withFaults(20, 0, strategy));
    CHECK(plain.ok());
    CHECK(plain.switches == none.switches);
    CHECK(plain.memorySteps == none.memorySteps);
  }
  auto const first = explored(After::makesAnew, withFaults(50, 2));
  auto const second = explored(After::makesAnew, withFaults(50, 2));
  CHECK(first.switches == second.switches);
  CHECK(first.memorySteps == second.memorySteps);
}

TEST_CASE("bad faults are refused") {
  auto const refused = [](sim::ExploreOptions const& options) {
    return errorText([&] { explored(After::ends, options); }, ErrorCode::invalidUsage);
  };
  CHECK(contains(refused({.faults = -1}), "ExploreOptions::faults is -1, it must be at least 0"));
  CHECK(contains(refused({.strategy = Strategy::exhaustive, .faults = 1}), "faults are chosen by chance"));
  for (auto const* entry :
       {"1.1=tired", "1.1=late", "1.1=late@", "1.1=late@0", "1.1=late@x", "1=late@1", "1.1.0=absent", "1.1.0=abort@1",
        "1.1=absent@1", "1.1.0.0=late@1", "1.1=abort@1>", "4096.1=absent"}) {
    CAPTURE(entry);
    CHECK(contains(refused({.replay = std::string("v1,") + entry}), "entry 1 of the schedule to replay"));
  }
  for (auto const* text : {"v1,1.1=late@2,0.3.4=late@1,0.0=absent,1.2=abort@77,h1@2>h0"}) {
    CHECK(toText(sim::parseSchedule(text)) == text);
  }
}
