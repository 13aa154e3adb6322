// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-tune: measures which algorithm, blocks and threads are the fastest for each collective and size on these
// devices, and writes a profile that AlgorithmCollection reads.
//
// Exit status: 0 the profile is written, 1 a measurement failed, 2 bad use.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "base/progress.hpp"
#include "machine/machine.hpp"
#include "machine/over_ranks.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/collectives/contexts.hpp"
#include "mscclpp/collectives/tuned_profile.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/launcher.hpp"
#include "mscclpp/host/multicast.hpp"
#include "mscclpp/host/ranks.hpp"
#include "plan/exchange.hpp"
#include "plan/options.hpp"
#include "plan/tune_search.hpp"

namespace mscclpp::tools {
namespace {

using bench::Machine;
using bench::TuneCandidate;
using bench::UsageError;

struct Options {
  std::optional<DeviceKind> device;
  std::optional<int> ranks;
  std::vector<Collective> collectives;
  std::uint64_t minBytes = 1024;
  std::uint64_t maxBytes = std::uint64_t{64} << 20;
  std::uint64_t factor = 2;
  std::vector<int> blocks{4, 8, 16, 32, 64, 96, 132, 198, 264};
  std::vector<int> threads{64, 128, 256, 512};
  int replays = 20;
  int operations = 20;
  bool symmetric = true;
  std::string output;
};

Options parse(int argc, char** argv) {
  Options options;
  std::string device = "auto";
  std::vector<std::string> names;
  std::string minBytes = "1K";
  std::string maxBytes = "64M";
  std::string symmetric = "on";
  CLI::App app("Measures the fastest algorithm and launch shape for each size, and writes a tuned profile.",
               "mscclpp-tune");
  app.add_option("--device", device, "auto, cuda or sim")->check(CLI::IsMember({"auto", "cuda", "sim"}));
  app.add_option("--ranks", options.ranks, "ranks in this process; default: every GPU, or 4 simulated ones")
      ->check(CLI::Range(2, maxTeamSize));
  app.add_option("--collective", names, "comma-separated names; default: all that this build has")->delimiter(',');
  app.add_option("--min-bytes", minBytes, "smallest whole buffer; default 1K");
  app.add_option("--max-bytes", maxBytes, "largest; default 64M");
  app.add_option("--factor", options.factor, "from one size to the next; default 2")->check(CLI::Range(2, 1 << 20));
  app.add_option("--blocks", options.blocks, "comma-separated grids to try")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  app.add_option("--threads", options.threads, "comma-separated block sizes to try")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  app.add_option("--replays", options.replays, "thorough repetitions of each case")->check(CLI::Range(1, 100000));
  app.add_option("--ops-per-graph", options.operations, "operations in one repetition")->check(CLI::Range(1, 10000));
  app.add_option("--symmetric", symmetric, "on or off: also for calls with symmetric buffers; default on")
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--output", options.output, "the profile; one that is there is refined")->required();
  try {
    app.parse(argc, argv);
  } catch (CLI::CallForHelp const& help) {
    std::exit(app.exit(help));
  } catch (CLI::ParseError const& error) {
    throw UsageError(fmt::format("{}; see mscclpp-tune --help", error.what()));
  }
  if (device != "auto") options.device = device == "cuda" ? DeviceKind::cuda : DeviceKind::sim;
  options.minBytes = bench::parseBytes("--min-bytes", minBytes);
  options.maxBytes = bench::parseBytes("--max-bytes", maxBytes);
  options.symmetric = symmetric == "on";
  if (options.maxBytes < options.minBytes) {
    throw UsageError(fmt::format("--min-bytes={} is more than --max-bytes={}", minBytes, maxBytes));
  }
  for (auto const& name : names) {
    auto const collective = collectiveByName(name);
    if (!collective || *collective == Collective::barrier) {
      std::vector<std::string_view> allowed;
      for (auto one : collectives) {
        if (one != Collective::barrier) allowed.push_back(nameOf(one));
      }
      throw UsageError(fmt::format("--collective={}: allowed is a list of {}", name, fmt::join(allowed, ", ")));
    }
    options.collectives.push_back(*collective);
  }
  return options;
}

// One rank's part in all measurements. Every rank goes through the same steps, since it decides by agreed times only.
class Tuner {
 public:
  Tuner(Options const& options, Machine const& machine, Communicator& communicator, TunedProfile& profile)
      : options_(options),
        machine_(machine),
        communicator_(communicator),
        profile_(profile),
        stream_(communicator.device()),
        timer_(machine.makeTimer(stream_)),
        progress_(communicator.rank() == 0),
        in_(communicator.device(), options.maxBytes, kindFor(communicator.device())),
        out_(communicator.device(), options.maxBytes, kindFor(communicator.device())) {
    algorithms_.setProfile(nullptr);
    auto const& world = World::of(communicator);
    if (world.device.empty()) {
      throw UsageError(
          fmt::format("rank {}: a profile is for one kind of device, with one rank on each; here ranks' "
                      "devices differ, or ranks share one",
                      world.rank));
    }
    subject_ = {world.device, world.ranks, world.wholeLines};
  }

  void run() {
    auto wanted = options_.collectives;
    if (wanted.empty()) {
      for (auto collective : collectives) {
        if (collective != Collective::barrier && !algorithms_.names(collective).empty()) wanted.push_back(collective);
      }
    }
    std::size_t sizes = 0;
    for (auto bytes = options_.minBytes; bytes <= options_.maxBytes; bytes *= options_.factor) ++sizes;
    cases_ = wanted.size() * sizes * (options_.symmetric ? 2 : 1);
    for (auto collective : wanted) {
      for (bool symmetric : {false, true}) {
        if (symmetric && !options_.symmetric) continue;
        for (auto bytes = options_.minBytes; bytes <= options_.maxBytes; bytes *= options_.factor) {
          tune(collective, bytes, symmetric);
          ++done_;
        }
      }
    }
    // Before the buffers go that windows still show.
    releaseContexts(communicator_);
    progress_.clear();
  }

 private:
  // Such as a switch between the devices can be bound to, where there is one.
  static MemoryKind kindFor(Device device) {
    return isNvlsSupported(device) ? MemoryKind::shareable : MemoryKind::standard;
  }

  // The buffers of `bytes` together, as the collective has them; nothing where a rank's part has no element.
  std::optional<CollectiveCall> callFor(Collective collective, std::uint64_t bytes, bool symmetric) const {
    auto const ranks = static_cast<std::uint64_t>(communicator_.size());
    auto const part = bytes / traitsOf(collective).partsOf(ranks) / 16 * 16;
    if (part == 0) return std::nullopt;
    auto call = bench::sizedCall(collective, communicator_.size(), part);
    call.in = in_.data();
    call.out = out_.data();
    call.type = DataType::bfloat16;
    call.op = reduces(collective) ? ReduceOp::sum : ReduceOp::none;
    call.symmetric = symmetric;
    return call;
  }

  void tune(Collective collective, std::uint64_t bytes, bool symmetric) {
    auto const call = callFor(collective, bytes, symmetric);
    if (!call) return;
    bench::TuneSearch search;
    for (auto const& algorithm : algorithms_.algorithms()) {
      if (algorithm->collective() == collective && algorithm->refusal(communicator_, *call).empty()) {
        search.algorithms.push_back(algorithm->name());
      }
    }
    search.blocks = options_.blocks;
    search.threads = options_.threads;
    if (auto const* const table = profile_.find(subject_, collective, symmetric)) {
      if (auto const found = table->find(bytes); found != table->end()) {
        search.known = TuneCandidate{found->second.algorithm, found->second.blocks, found->second.threads};
      }
    }
    int measured = 0;
    search.measure = [&](TuneCandidate const& candidate, bool thorough) {
      ++measured;
      progress_.show(done_, cases_,
                     fmt::format("{} {}: {}", nameOf(collective), bench::formatBytes(bytes), candidate.algorithm));
      return measure(collective, *call, candidate, thorough);
    };
    auto const best = search.fastest();
    if (!best) return;
    auto const& choice = best->candidate;
    profile_.set(subject_, collective, bytes, {choice.algorithm, choice.blocks, choice.threads, best->seconds * 1e6},
                 symmetric);
    if (communicator_.rank() != 0) return;
    progress_.clear();
    fmt::print(stderr, "{}{} {}: {} {} x {}, {:.2f} us ({} measurements)\n", nameOf(collective),
               symmetric ? " symmetric" : "", bench::formatBytes(bytes), choice.algorithm, shown(choice.blocks),
               shown(choice.threads), best->seconds * 1e6, measured);
    // At every step: an interrupted run keeps what it has.
    profile_.save(options_.output);
  }

  static std::string shown(int number) { return number == 0 ? "auto" : std::to_string(number); }

  // The slowest rank's median.
  std::optional<double> measure(Collective collective, CollectiveCall call, TuneCandidate const& candidate,
                                bool thorough) {
    auto const algorithm = algorithms_.find(collective, candidate.algorithm);
    if (algorithm == nullptr) return std::nullopt;
    call.blocks = candidate.blocks;
    call.threads = candidate.threads;
    if (!algorithm->refusal(communicator_, call).empty()) return std::nullopt;
    // Makes what the call needs, before anything is captured.
    algorithm->execute(communicator_, stream_, call);
    communicator_.synchronize(stream_);
    bench::Repetition repetition;
    repetition.restore = [] {};
    repetition.operate = [&](int, bool) { algorithm->execute(communicator_, stream_, call); };
    repetition.operations = options_.operations;
    repetition.together = [&] { communicator_.bootstrap()->barrier(); };
    repetition.synchronize = [&] { communicator_.synchronize(stream_, 2 * machine_.kernelLimit()); };
    auto seconds = timer_->measure(repetition, thorough ? options_.replays : std::max(1, options_.replays / 5));
    auto const middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
    std::nth_element(seconds.begin(), middle, seconds.end());
    return bench::largest(communicator_, *middle);
  }

  Options const& options_;
  Machine const& machine_;
  Communicator& communicator_;
  TunedProfile& profile_;
  AlgorithmCollection algorithms_ = AlgorithmCollection::defaults();
  Stream stream_;
  std::unique_ptr<bench::Timer> timer_;
  Progress progress_;
  std::size_t cases_ = 0, done_ = 0;
  DeviceMemory in_;
  DeviceMemory out_;
  TunedProfile::Subject subject_;
};

void tuneAll(Options const& options) {
  auto const launch = launchFromEnvironment();
  auto const kind = options.device.value_or(
      bench::machine(DeviceKind::cuda) != nullptr && Device::count(DeviceKind::cuda) > 0 ? DeviceKind::cuda
                                                                                         : DeviceKind::sim);
  auto* const machine = bench::machine(kind);
  if (machine == nullptr) {
    throw UsageError(fmt::format("--device={}: this mscclpp-tune was built without it", nameOf(kind)));
  }
  // Each rank has its own copy, which all keep alike.
  auto const known = std::filesystem::exists(options.output) ? TunedProfile::load(options.output) : TunedProfile();
  auto const work = [&](Communicator& communicator) {
    machine->use(communicator.device());
    if (!processVariable("MSCCLPP_KERNEL_TIMEOUT")) communicator.setTimeLimit(machine->kernelLimit());
    // Before anybody writes the file, everybody has read it.
    communicator.bootstrap()->barrier();
    auto profile = known;
    Tuner(options, *machine, communicator, profile).run();
  };
  if (launch.size > 1) {
    if (options.ranks && *options.ranks != launch.size) {
      throw UsageError(fmt::format("--ranks={}, but {} started {} ranks; leave it out", *options.ranks, launch.launcher,
                                   launch.size));
    }
    auto bootstrap = bootstrapFromEnvironment(std::chrono::seconds(120));
    machine->prepare(std::max(bootstrap->getNranksPerNode(), launch.localRank + 1));
    Communicator communicator(bootstrap, Device{kind, launch.localRank});
    work(communicator);
    return;
  }
  int const ranks = options.ranks.value_or(machine->defaultRanks());
  machine->prepare(ranks);
  if (ranks < 2 || Device::count(kind) < ranks) {
    throw UsageError(fmt::format("{} ranks on {} {} devices; tuning needs at least 2, and a device for each", ranks,
                                 Device::count(kind), nameOf(kind)));
  }
  runRanks(kind, ranks, work);
}

}  // namespace
}  // namespace mscclpp::tools

int main(int argc, char** argv) {
  try {
    mscclpp::tools::tuneAll(mscclpp::tools::parse(argc, argv));
    return 0;
  } catch (mscclpp::bench::UsageError const& error) {
    fmt::print(stderr, "mscclpp-tune: {}\n", error.what());
    return 2;
  } catch (mscclpp::Error const& error) {
    fmt::print(stderr, "mscclpp-tune: {}\n", error.what());
    return error.code() == mscclpp::ErrorCode::invalidUsage ? 2 : 1;
  } catch (std::exception const& error) {
    fmt::print(stderr, "mscclpp-tune: {}\n", error.what());
    return 1;
  }
}
