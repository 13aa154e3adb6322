// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Timed runs. That the bench of GPU latencies finds on the simulated machine what the machine was told; what waits,
// links, kernels, copies and ports take; that results are right and the time is always the same; what is refused.
#include "mscclpp/sim/timing.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "mscclpp/algorithms/collective/allreduce.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"
#include "mscclpp/sim/run.hpp"
#include "mscclpp/sim/runtime.hpp"
#include "timing/figures.hpp"

namespace {

using namespace mscclpp;
using Word = std::uint64_t;

// Figures that are easy to add up.
sim::TimingModel roundFigures() {
  sim::TimingModel model;
  model.issue = 10;
  model.arithmetic = 0;
  model.nearRound = 200;
  model.farRound = 1000;
  model.farStore = 400;
  model.nearStore = 50;
  model.fence = 600;
  model.multiprocessorLoadRate = model.multiprocessorStoreRate = 100;
  model.memoryRate = 2000;
  model.storeRate = model.loadRate = 400;
  model.copyStart = 2500;
  model.copyRate = 400;
  model.networkStart = 5000;
  model.networkRate = 50;
  model.start = 100;
  model.overlap = 100;
  model.end = 500;
  model.endDoubling = 0;
  return model;
}

struct Rank {
  explicit Rank(sim::RankContext& rank)
      : context(rank),
        device{DeviceKind::sim, rank.device()},
        communicator(rank.bootstrap(), device),
        stream(device),
        words(device, std::size_t{1} << 17),
        window(communicator, words.data(), words.bytes()) {
    words.fill(0);
    communicator.bootstrap()->barrier();
  }
  ~Rank() {
    if (std::uncaught_exceptions() == 0) communicator.bootstrap()->barrier();
  }

  Word* of(int rank) const { return reinterpret_cast<Word*>(window.deviceHandle().bases[rank]); }
  // From the rank's clock until the stream's work has ended.
  double time(std::function<void()> const& submit) {
    auto const begin = context.nanoseconds();
    submit();
    communicator.synchronize(stream);
    return context.nanoseconds() - begin;
  }

  sim::RankContext& context;
  Device device;
  Communicator communicator;
  Stream stream;
  GpuBuffer<Word> words;
  MemoryWindow window;
};

sim::RunSummary runTimed(int ranks, sim::TimingModel const& model, std::function<void(Rank&)> const& body,
                         std::uint64_t seed = 1) {
  return sim::run({.ranks = ranks, .seed = seed, .timing = model}, [&](sim::RankContext& context) {
    Rank rank(context);
    body(rank);
  });
}

std::string refusalOf(std::function<void()> const& act) {
  try {
    act();
  } catch (Error const& error) {
    return error.what();
  }
  return "nothing was refused";
}

void checkContains(std::string const& text, std::string const& part) {
  CHECK_MESSAGE(text.find(part) != std::string::npos, text);
}

class RankClock final : public bench::Timer {
 public:
  explicit RankClock(sim::RankContext const& rank) : rank_(rank) {}
  int leads() const override { return 1; }
  std::vector<double> measure(bench::Repetition const& repetition, int replays) override {
    std::vector<double> seconds;
    for (int replay = 0; replay < replays; ++replay) {
      repetition.operate(0, false);
      repetition.synchronize();
      auto const begin = rank_.nanoseconds();
      for (int i = 0; i < repetition.operations; ++i) repetition.operate(i, i > 0);
      repetition.synchronize();
      seconds.push_back((rank_.nanoseconds() - begin) * 1e-9 / repetition.operations);
    }
    return seconds;
  }

 private:
  sim::RankContext const& rank_;
};

MSCCLPP_DEVICE void await(Word const* word, Word wanted) {
  poll(nullptr, {layout::WaitKind::semaphore, -1, 0, wanted}, [&](Word& seen) {
    seen = load<Order::relaxed, Scope::system>(word);
    return seen == wanted;
  });
}

}  // namespace

TEST_CASE("what is measured in a timed run is what its model says") {
  sim::TimingModel model;
  model.issue = 7;
  model.arithmetic = 0;           // the bench has next to none
  model.overlap = model.end / 2;  // as the bench assumes
  sim::TimingModel found;
  sim::run({.ranks = 2, .timing = model}, [&](sim::RankContext& rank) {
    Communicator const communicator(rank.bootstrap(), Device{DeviceKind::sim, rank.device()});
    auto const result = timing_bench::measure(
        communicator, [&](Stream const&) { return std::make_unique<RankClock>(rank); }, 20, model);
    if (rank.rank() == 0) found = result;
  });
  for (auto const& figure : sim::timingFigures) {
    CAPTURE(std::string(figure.name));
    CHECK(found.*figure.member == doctest::Approx(model.*figure.member).epsilon(0.05));
  }
}

namespace {

// Rank 0 stores `late` nanoseconds after the kernel's begin; rank 1 notes when it sees that.
struct Signal {
  MSCCLPP_DEVICE void operator()(int rank, Word* word, unsigned looks, Word* ns) const {
    auto const begin = arch::nanoseconds();
    if (rank == 0) {
      for (unsigned i = 0; i < looks; ++i) await(word + 64, 0);
      store<Order::release, Scope::system>(word, 1);
    } else {
      await(word, 1);
    }
    *ns = arch::nanoseconds() - begin;
  }
};

}  // namespace

TEST_CASE("a wait ends when what it waits for is seen, however early it began") {
  for (unsigned const looks : {0u, 5u}) {
    CAPTURE(looks);
    runTimed(2, roundFigures(), [&](Rank& rank) {
      GpuBuffer<Word> const ns(rank.device, 1);
      int const id = rank.context.rank();
      rank.time([&] { launch(rank.stream, {.blocks = 1, .threads = 1}, Signal{}, id, rank.of(1), looks, ns.data()); });
      // Looks at the peer's memory; then the store begins, is fenced, travels, and is found by one more look.
      auto const storedAt = looks * (10 + 1000) + 10 + 600;
      auto const expected = id == 0 ? storedAt : storedAt + 400 + 10 + 200;
      CHECK(std::abs(static_cast<double>(copyToHost(ns)[0]) - expected) <= 5);
    });
  }
}

namespace {

struct StoreWords {
  MSCCLPP_DEVICE void operator()(Word* to, unsigned count) const {
    for (unsigned i = thisGrid().rank(); i < count; i += thisGrid().size()) {
      store<Order::relaxed, Scope::system>(to + i, 1);
    }
  }
};

struct CopyPlainly {
  MSCCLPP_DEVICE void operator()(Word* to, Word const* from, unsigned count) const {
    for (unsigned i = thisGrid().rank(); i < count; i += thisGrid().size()) to[i] = from[i];
  }
};

}  // namespace

TEST_CASE("a link's bytes take their turn, alone and shared") {
  constexpr unsigned count = 1 << 16;
  for (int const senders : {1, 2}) {
    CAPTURE(senders);
    sim::install({.devices = 3, .multiprocessors = 32});
    runTimed(3, roundFigures(), [&](Rank& rank) {
      int const id = rank.context.rank();
      if (id == 0 || id > senders) return;
      auto const took = rank.time([&] {
        launch(rank.stream, {.blocks = 16, .threads = 64}, StoreWords{}, rank.of(0) + id % 2 * count, count);
      });
      // 512 KiB at 400 bytes a nanosecond, until the last answer, which comes later than the kernel's end is told.
      auto const link = senders * count * 8 / 400.0;
      CHECK(took == doctest::Approx(100 + link + 1000).epsilon(0.1));
    });
  }
}

TEST_CASE("plain accesses take the time of ordered ones") {
  for (bool const far : {false, true}) {
    CAPTURE(far);
    std::vector<double> times;
    for (unsigned const count : {100u, 200u}) {
      runTimed(2, roundFigures(), [&](Rank& rank) {
        if (rank.context.rank() != 0) return;
        times.push_back(rank.time([&] {
          launch(rank.stream, {.blocks = 1, .threads = 1}, CopyPlainly{}, rank.of(0), rank.of(far ? 1 : 0) + 512,
                 count);
        }));
      });
    }
    // Each word is loaded, awaited and stored; two words are one instruction's.
    CHECK(times[1] - times[0] == doctest::Approx(100 * (far ? 1000 : 200)).epsilon(0.1));
  }
}

TEST_CASE("kernels follow each other at once only where they overlap, and copies take their time") {
  runTimed(1, roundFigures(), [&](Rank& rank) {
    auto const chain = [&](bool overlap) {
      return rank.time([&] {
        for (int i = 0; i < 10; ++i) {
          launch(rank.stream, {.blocks = 1, .threads = 1, .overlapPrevious = overlap}, Signal{}, 1, rank.of(0) + 1024,
                 0u, rank.of(0));
        }
      });
    };
    copyToDevice(rank.words, std::vector<Word>(2048, 1));
    // The next one begins where a kernel's threads end, not where its end is told.
    CHECK(chain(false) - chain(true) == doctest::Approx(9 * 500).epsilon(0.01));
    auto const bytes = rank.words.bytes() / 2;
    auto const took =
        rank.time([&] { rank.stream.copy(rank.words.data(), rank.words.data() + bytes / sizeof(Word), bytes); });
    CHECK(took == doctest::Approx(2500 + 2 * static_cast<double>(bytes) / 2000).epsilon(0.01));
  });
}

namespace {

template <class Collective>
void checkAllReduce(std::uint64_t seed, double& nanoseconds) {
  constexpr int ranks = 4;
  constexpr unsigned count = 3000;
  auto const summary = runTimed(
      ranks, sim::TimingModel::h200(),
      [&](Rank& rank) {
        Team const team(rank.communicator, Collective::requirement(ranks, 2, 64));
        GpuBuffer<float> const in(rank.device, count);
        GpuBuffer<float> const out(rank.device, count);
        for (int round = 0; round < 3; ++round) {
          std::vector<float> values(count);
          for (unsigned i = 0; i < count; ++i)
            values[i] = static_cast<float>(rank.context.rank() + round * 10 + static_cast<int>(i % 7));
          copyToDevice(in, values);
          launch(rank.stream, {.blocks = 2, .threads = 64, .overlapPrevious = round > 0},
                 AllReduceKernel<Collective, float>{}, in.data(), out.data(), std::size_t{count}, team.deviceHandle());
          rank.communicator.synchronize(rank.stream);
          auto const result = copyToHost(out);
          unsigned wrong = 0;
          for (unsigned i = 0; i < count; ++i) {
            wrong += result[i] != 6.0f + 4 * static_cast<float>(round * 10) + 4 * static_cast<float>(i % 7);
          }
          CHECK(wrong == 0);
        }
        rank.communicator.bootstrap()->barrier();
      },
      seed);
  nanoseconds = summary.nanoseconds;
}

}  // namespace

TEST_CASE_TEMPLATE("a timed run's results are right, and its length the same with every seed", Collective,
                   AllReduce<OneShot, PacketTransport<LL8>, Sum>, AllReduce<TwoShot, PacketTransport<LL16>, Sum>,
                   AllReduce<OneShot, PacketTransport<LL128>, Sum>, AllReduce<TwoShot, MemoryTransport<4>, Sum>) {
  double first = 0;
  double second = 0;
  checkAllReduce<Collective>(1, first);
  checkAllReduce<Collective>(77, second);
  CHECK(first > 0);
  CHECK(first == second);
}

namespace {

struct PutAndWait {
  MSCCLPP_DEVICE void operator()(PortChannelDeviceHandle const& channel, std::uint64_t bytes, Word* ns) const {
    auto const begin = arch::nanoseconds();
    channel.putWithSignal(0, 0, bytes);
    channel.wait();
    *ns = arch::nanoseconds() - begin;
    channel.flush();
  }
};

}  // namespace

TEST_CASE("port channels go through copy engines, and between nodes through the network") {
  for (bool const network : {false, true}) {
    CAPTURE(network);
    sim::install({.devices = 2, .devicesPerNode = network ? 1 : 2});
    auto model = roundFigures();
    sim::run({.ranks = 2, .timing = model}, [&](sim::RankContext& context) {
      Device const device{DeviceKind::sim, context.device()};
      Communicator const communicator(context.bootstrap(), device);
      GpuBuffer<Word> const own(device, 1 << 16);
      GpuBuffer<Word> const ns(device, 1);
      ProxyService service(communicator, {.proxies = 1});
      auto const mine = communicator.registerMemory(own.data(), own.bytes());
      auto const all = communicator.exchangeMemory(mine);
      int const peer = 1 - context.rank();
      auto const semaphore = service.buildAndAddSemaphore(communicator.connect(peer));
      auto const channel = service.portChannel(semaphore, service.addMemory(all[static_cast<std::size_t>(peer)]),
                                               service.addMemory(mine));
      service.startProxy();
      Stream const stream(device);
      std::vector<double> times;
      for (std::uint64_t const bytes : {8u, 1u << 19}) {
        communicator.bootstrap()->barrier();
        launch(stream, {.blocks = 1, .threads = 1}, PutAndWait{}, channel.deviceHandle(), bytes, ns.data());
        communicator.synchronize(stream);
        times.push_back(static_cast<double>(copyToHost(ns)[0]));
      }
      // The trigger's way to the proxy comes first; then it is the copy and the signal behind it.
      CHECK(times[0] > (network ? 5000 : 2500) + 800);
      CHECK(times[0] < (network ? 5000 : 2500) + 5000);
      CHECK(times[1] - times[0] == doctest::Approx((1 << 19) / (network ? 50.0 : 400.0)).epsilon(0.1));
      communicator.bootstrap()->barrier();
    });
  }
  sim::install({});
}

namespace {

struct NeverSignalled {
  MSCCLPP_DEVICE void operator()(Word const* word) const { await(word, 1); }
};
struct Fails {
  MSCCLPP_DEVICE void operator()() const {
    thisBlock().sync();
    if (thisBlock().rank() == 3) arch::trap("no more");
    thisBlock().sync();
  }
};

}  // namespace

TEST_CASE("a dead-lock and a failure end a timed run as they end any other") {
  auto const stuck = refusalOf([] {
    runTimed(2, roundFigures(), [](Rank& rank) {
      rank.time([&] { launch(rank.stream, {.blocks = 1, .threads = 2}, NeverSignalled{}, rank.of(0)); });
    });
  });
  checkContains(stuck, "dead-lock in a simulated run");
  checkContains(stuck, "NeverSignalled");
  auto const failed = refusalOf([] {
    runTimed(2, roundFigures(),
             [](Rank& rank) { rank.time([&] { launch(rank.stream, {.blocks = 2, .threads = 64}, Fails{}); }); });
  });
  checkContains(failed, "no more");
  // Nothing is left behind.
  runTimed(2, roundFigures(), [](Rank& rank) {
    auto const took =
        rank.time([&] { launch(rank.stream, {.blocks = 1, .threads = 1}, StoreWords{}, rank.words.data(), 1u); });
    CHECK(took == doctest::Approx(610).epsilon(0.05));
  });
}

TEST_CASE("figures that no machine has are refused by name") {
  auto const run = [](sim::TimingModel const& model, bool expire = false) {
    return refusalOf([&] { sim::run({.ranks = 1, .timing = model, .waitsExpire = expire}, [](sim::RankContext&) {}); });
  };
  auto model = roundFigures();
  model.farRound = -1;
  checkContains(run(model), "far_round_ns is -1");
  model = roundFigures();
  model.storeRate = 0;
  checkContains(run(model), "store_gbps is 0");
  model.storeRate = std::nan("");
  checkContains(run(model), "store_gbps is nan");
  model = roundFigures();
  model.multiprocessors = 0;
  checkContains(run(model), "multiprocessors is 0");
  checkContains(run(roundFigures(), true), "timing and waitsExpire");
}

TEST_CASE("a timing model comes back from its JSON, and what is no such file is refused by name") {
  auto const model = roundFigures();
  CHECK(sim::TimingModel::parse(model.json(), "x.json") == model);
  auto const refusal = [](std::string const& json) {
    return refusalOf([&] { sim::TimingModel::parse(json, "x.json"); });
  };
  auto const changed = [&](std::string const& from, std::string const& to) {
    auto text = model.json();
    auto const at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  checkContains(refusal("{"), "x.json: it is no JSON");
  checkContains(refusal("[]"), "the whole is []; allowed is an object");
  checkContains(refusal(changed("\"version\": 1", "\"version\": 2")), "version is 2");
  checkContains(refusal(changed("issue_ns", "issues_ns")), "figures has no \"issue_ns\"");
  checkContains(refusal(changed("\"issue_ns\": 10.0", "\"issue_ns\": -3")), "issue_ns is -3");
  checkContains(refusal(changed("\"store_gbps\": 400.0", "\"store_gbps\": \"fast\"")), "store_gbps is \"fast\"");
  checkContains(refusal(changed("\"figures\": {", "\"figures\": {\"more\": 1,")), "there is no figure \"more\"");
  checkContains(refusal(changed("\"device\": \"NVIDIA H200\"", "\"device\": 7")), "device is 7");
  checkContains(refusalOf([] { sim::TimingModel::load("there/is/none.json"); }), "there/is/none.json");
}
