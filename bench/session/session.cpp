// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <span>

#include "data/checker.hpp"
#include "data/inputs.hpp"
#include "machine/machine.hpp"
#include "machine/over_ranks.hpp"
#include "mscclpp/collectives/contexts.hpp"
#include "mscclpp/collectives/kernel_table.hpp"
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/launcher.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/team.hpp"
#include "session/nccl_peer.hpp"
#include "session/rank_pool.hpp"
#include "session/watchdog.hpp"

namespace mscclpp::bench {
namespace {

// Ranks are apart by the time that one of them needs to check a whole buffer.
constexpr std::chrono::seconds meetingLimit{120};
constexpr std::size_t guardBytes = 256;
constexpr std::size_t stagingBytes = std::size_t{16} << 20;

// Host memory that the device copies to at full speed.
class Staging {
 public:
  explicit Staging(Device device) : runtime_(device.runtime()), data_(runtime_.allocateHost(stagingBytes)) {}
  ~Staging() { runtime_.releaseHost(data_); }
  Staging(Staging const&) = delete;
  Staging& operator=(Staging const&) = delete;

  // The next `bytes`, at most stagingBytes, of device memory.
  std::span<std::byte const> fetch(std::byte const* from, std::size_t bytes) const {
    runtime_.copy(data_, from, bytes);
    return {static_cast<std::byte const*>(data_), bytes};
  }

 private:
  Runtime& runtime_;
  void* data_;
};

// Fills `count` elements with the block, over and over.
void repeat(Device device, void* to, std::vector<std::byte> const& block, std::uint64_t bytes) {
  auto& runtime = device.runtime();
  auto* const start = static_cast<std::byte*>(to);
  std::uint64_t filled = std::min<std::uint64_t>(block.size(), bytes);
  runtime.copy(start, block.data(), filled);
  while (filled < bytes) {
    auto const next = std::min(filled, bytes - filled);
    runtime.copy(start + filled, start, next);
    filled += next;
  }
}

// One rank of this process. Members are destroyed in the opposite order.
struct Rank {
  std::shared_ptr<Bootstrap> bootstrap;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Timer> timer;
  std::unique_ptr<Staging> staging;
  DeviceMemory source;  // what timed operations start from
  DeviceMemory buffers[2];
  std::optional<MemoryWindow> windows[2];  // the same buffers on all ranks, where kernels need them
  std::vector<Stream> sideStreams;
  std::unique_ptr<Team> team;
  std::unique_ptr<NcclCommunicator> nccl;
  std::unique_ptr<NcclWindow> ncclWindows[2];
  std::vector<std::byte> timed;       // one block of this rank's data
  std::vector<CollectiveCall> calls;  // of a timed chain, made beforehand

  Device device() const { return communicator->device(); }
  std::byte* buffer(Case const& item, int index) const {
    if (item.contender == Contender::ncclSymmetric) return ncclWindows[index]->data();
    return static_cast<std::byte*>(buffers[index].data());
  }
};

std::string_view flagOf(DeviceKind kind) { return kind == DeviceKind::cuda ? "cuda" : "sim"; }

DeviceKind chooseMachine(Options const& options) {
  auto const& table = KernelTable::instance();
  auto const built = [&](DeviceKind kind) { return machine(kind) != nullptr && table.has(kind); };
  if (options.device) {
    auto const kind = *options.device;
    if (!built(kind)) {
      throw UsageError(fmt::format("--device={}: this mscclpp-bench was built without {}", flagOf(kind),
                                   kind == DeviceKind::cuda ? "CUDA; configure with MSCCLPP_USE_CUDA=ON"
                                                            : "the simulator, which needs Boost.Context"));
    }
    return kind;
  }
  if (built(DeviceKind::cuda) && Device::count(DeviceKind::cuda) > 0) return DeviceKind::cuda;
  if (built(DeviceKind::sim)) return DeviceKind::sim;
  throw UsageError("--device=auto: there is no GPU here, and this mscclpp-bench was built without the simulator");
}

std::unique_ptr<NcclLibrary> openNccl(Options const& options, DeviceKind kind) {
  if (options.peers.empty()) return nullptr;
  auto const first = nameOf(options.peers.front());
  if (kind != DeviceKind::cuda) {
    throw UsageError(fmt::format("--peers={} compares on GPUs only; use it with --device=cuda", first));
  }
  std::unique_ptr<NcclLibrary> nccl;
  try {
    nccl = std::make_unique<NcclLibrary>();
  } catch (Error const& error) {
    throw UsageError(fmt::format("--peers={}: {}", first, error.what()));
  }
  auto const symmetric = Contender::ncclSymmetric;
  if (std::find(options.peers.begin(), options.peers.end(), symmetric) != options.peers.end() && !nccl->hasWindows()) {
    throw UsageError(fmt::format("--peers={}: NCCL {} has no symmetric windows; they came with 2.27", nameOf(symmetric),
                                 nccl->version()));
  }
  return nccl;
}

std::string noDevice(DeviceKind kind) {
  try {
    runtime(kind);
  } catch (Error const& error) {
    return error.what();
  }
  return "none is there";
}

}  // namespace

struct Session::Impl {
  Impl(Options const& given, std::uint64_t digest) : options(given), launch(launchFromEnvironment()) {
    several = launch.size > 1;
    if (!several && options.ranks.value_or(1) > 1) shareDevices();  // without --ranks each has its own
    auto const kind = chooseMachine(options);
    host = machine(kind);
    nccl = openNccl(options, kind);
    std::vector<std::shared_ptr<Bootstrap>> bootstraps;
    if (several) {
      if (options.ranks && *options.ranks != launch.size) {
        throw UsageError(fmt::format("--ranks={}, but {} started {} ranks; leave it out", *options.ranks,
                                     launch.launcher, launch.size));
      }
      bootstraps.push_back(bootstrapFromEnvironment(meetingLimit));
      host->prepare(options.devices.value_or(std::max(bootstraps[0]->getNranksPerNode(), launch.localRank + 1)));
    } else {
      int const wanted = options.ranks.value_or(host->defaultRanks());
      host->prepare(options.devices.value_or(wanted));
      bootstraps = LocalBootstrap::create(std::max(wanted, 1), meetingLimit);
    }
    int const ranksInAll = bootstraps[0]->getNranks();
    int const there = Device::count(kind);
    if (there == 0) throw UsageError(fmt::format("--device={}: {}", flagOf(kind), noDevice(kind)));
    if (options.devices.value_or(0) > there) {
      throw UsageError(
          fmt::format("--devices={}, but this machine has {} {} device(s)", *options.devices, there, nameOf(kind)));
    }
    devices = options.devices.value_or(there);
    if (ranksInAll > maxTeamSize) {
      throw UsageError(fmt::format("{} ranks; a team holds at most {}", ranksInAll, maxTeamSize));
    }
    if (!several && devices < ranksInAll) {
      oneAtATime = kind == DeviceKind::cuda;
      runtime(kind).holdReleases();
      releasesHeld.reset(&runtime(kind));
    }
    ranks.resize(bootstraps.size());
    pool = std::make_unique<RankPool>(static_cast<int>(ranks.size()), [this] { endWaits(); });
    seed = options.seed.value_or(std::random_device{}() | std::uint64_t{std::random_device{}()} << 32);
    onAll([&](Rank& rank, int index) { join(rank, bootstraps[static_cast<std::size_t>(index)], digest); });
    joined = true;
    if (shared && nccl) {
      nccl.reset();
      whyNoNccl = "left out, since ranks share GPUs and it refuses two of them on one";
    }
  }

  // Runs work(rank, index in this process) on the ranks' threads.
  template <class Work>
  void onAll(Work&& work) {
    try {
      pool->run([&](int index) { work(ranks[static_cast<std::size_t>(index)], index); });
    } catch (...) {
      failed = true;
      throw;
    }
  }

  void join(Rank& rank, std::shared_ptr<Bootstrap>& bootstrap, std::uint64_t digest) {
    // The only holder: a rank that fails here leaves at once, and the others need not wait for it.
    rank.bootstrap = std::move(bootstrap);
    try {
      Device const device{host->kind(), (several ? launch.localRank : rank.bootstrap->getRank()) % devices};
      host->use(device);
      rank.communicator = std::make_unique<Communicator>(rank.bootstrap, device);
      if (!processVariable("MSCCLPP_KERNEL_TIMEOUT")) rank.communicator->setTimeLimit(host->kernelLimit());
      rank.stream = std::make_unique<Stream>(device);
      rank.timer = timerFor(*rank.stream);
      agree(rank, digest);
    } catch (...) {
      leave(rank);
      throw;
    }
  }

  std::unique_ptr<Timer> timerFor(Stream const& stream) const {
    switch (options.launch) {
      case LaunchMode::graph:
        break;
      case LaunchMode::eager:
        return makeLoopTimer(host->warmUps());
      case LaunchMode::host:
        return makeCallTimer(host->warmUps());
    }
    return host->makeTimer(stream, oneAtATime ? 0 : leadOperations);
  }

  // What all ranks must see alike.
  void agree(Rank& rank, std::uint64_t digest) {
    struct Own {
      std::array<char, 128> device{};
      std::uint64_t digest;
      std::uint64_t seed;
    };
    Own mine{.digest = digest, .seed = seed};
    auto const name = rank.device().properties().name;
    std::copy_n(name.begin(), std::min(name.size(), mine.device.size() - 1), mine.device.begin());
    auto const all = gather(*rank.bootstrap, mine);
    for (std::size_t other = 0; other < all.size(); ++other) {
      if (all[other].digest == digest) continue;
      throw UsageError(
          fmt::format("rank {} and rank {} were started with different arguments", rank.communicator->rank(), other));
    }
    auto const& found = World::of(*rank.communicator);
    if (rank.communicator->rank() != 0 && !several) return;
    seed = all[0].seed;
    deviceName = all[0].device.data();
    world = found;
    world.rank = 0;
    shared = rank.communicator->ranksPerDevice() > 1;
  }

  // Through the library's own call, which makes what it needs by itself.
  bool executed(Case const& item) const { return options.launch != LaunchMode::graph || !item.launch; }

  void prepare(std::vector<Case> const& cases) {
    std::uint64_t bytes = 0;
    std::uint64_t symmetricBytes = 0;
    bool second = false;     // a buffer apart from the input
    bool windows = false;    // buffers that peers' kernels reach
    bool multicast = false;  // by the switch as well
    unsigned sideStreams = 0;
    for (auto const& item : cases) {
      bytes = std::max(bytes, item.bytes());
      second = second || !item.inPlace;
      if (item.contender == Contender::ncclSymmetric) symmetricBytes = std::max(symmetricBytes, item.bytes());
      if (item.launch) {
        auto const& kernel = *item.launch->kernel;
        windows = windows || ((kernel.inputWindow || kernel.outputWindow) && !executed(item));
        multicast = multicast || ((kernel.inputWindow || kernel.outputWindow) && kernel.multicast);
        sideStreams = std::max(sideStreams, kernel.sideStreams);
      }
      auto& period = periods[item.type];
      period = std::max(period, periodFor(item.elements()));
    }
    auto const requirement = requirementOf(cases);
    auto const workspace = layout::WorkspaceLayout::make(static_cast<std::uint32_t>(world.ranks), requirement).total;
    auto const room = bytes + guardBytes;
    auto const symmetricRoom = symmetricBytes == 0 ? 0 : symmetricBytes + guardBytes;
    auto const sharing = static_cast<std::uint64_t>(ranks.front().communicator->ranksPerDevice());
    auto const total = (room * (second ? 3 : 2) + 2 * symmetricRoom + workspace) * sharing;
    Watchdog const watchdog(meetingLimit + std::chrono::seconds(60), "making the buffers and communicators");
    auto const make = [&](Rank& rank) {
      auto const memory = rank.device().properties().memoryBytes;
      if (total > memory / 20 * 19) {
        throw UsageError(
            fmt::format("--max-bytes={} takes {} MiB on each device, which has {} MiB; choose a smaller one",
                        formatBytes(bytes), total >> 20, memory >> 20));
      }
      rank.source = DeviceMemory(rank.device(), room);
      for (int i = 0; i < (second ? 2 : 1); ++i) {
        rank.buffers[i] = DeviceMemory(rank.device(), room, multicast ? MemoryKind::shareable : MemoryKind::standard);
        if (windows) {
          rank.windows[i].emplace(*rank.communicator, rank.buffers[i].data(), rank.buffers[i].bytes(),
                                  std::vector<int>{}, multicast ? WindowUse::multicast : WindowUse::threads);
        }
      }
      while (rank.sideStreams.size() < sideStreams) rank.sideStreams.emplace_back(rank.device());
      rank.staging = std::make_unique<Staging>(rank.device());
      if (options.launch == LaunchMode::graph) rank.team = std::make_unique<Team>(*rank.communicator, requirement);
      if (nccl) {
        rank.nccl = std::make_unique<NcclCommunicator>(*nccl, *rank.bootstrap);
        if (symmetricRoom != 0) {
          for (auto& window : rank.ncclWindows) window = std::make_unique<NcclWindow>(*rank.nccl, symmetricRoom);
        }
      }
    };
    onAll([&](Rank& rank, int) {
      try {
        make(rank);
      } catch (...) {
        leave(rank);
        throw;
      }
      meet(rank);
    });
  }

  CaseResult run(Case const& item) {
    if (failed) throw Error(ErrorCode::aborted, "skipped, because an earlier case failed");
    bool const fresh = !answersOf || *answersOf != std::pair(item.type, item.operation);
    auto const period = periods.at(item.type);
    if (fresh) {
      answersOf = {item.type, item.operation};
      answers = answersFor(item.type, item.operation, seed, world.ranks, period);
    }
    if (!item.inRankOrder() && options.check && reduces(item.collective) && answers.reducedLoosely.block.empty()) {
      answers.reducedLoosely = expectedWithSlack(item.type, item.operation, seed, world.ranks, period);
    }
    ++casesRun;
    std::vector<CaseResult> results(ranks.size());
    onAll([&](Rank& rank, int index) {
      if (fresh) rank.timed = timedBlock(item.type, item.operation, seed, rank.communicator->rank(), period);
      auto& result = results[static_cast<std::size_t>(index)];
      if (options.check) result.wrong = check(rank, item);
      time(rank, item, result);
      if (options.check && !reduces(item.collective)) *result.wrong += checkChain(rank, item);
      if (several) result = slowest(allResults(rank, item, result));
    });
    return slowest(results);
  }

  static CaseResult slowest(std::vector<CaseResult> const& results) {
    CaseResult total = results.at(0);
    for (std::size_t i = 1; i < results.size(); ++i) {
      for (auto const samples : {&CaseResult::seconds, &CaseResult::bare}) {
        for (std::size_t r = 0; r < (total.*samples).size(); ++r) {
          (total.*samples)[r] = std::max((total.*samples)[r], (results[i].*samples).at(r));
        }
      }
      if (total.wrong) *total.wrong += results[i].wrong.value_or(0);
    }
    return total;
  }

  // Of every process, by rank.
  std::vector<CaseResult> allResults(Rank& rank, Case const& item, CaseResult const& mine) const {
    struct Head {
      std::uint64_t caseNumber;
      std::uint64_t caseName;  // hashed
      std::uint64_t wrong;
    };
    Head const head{casesRun, std::hash<std::string>{}(item.name()), mine.wrong.value_or(0)};
    auto const heads = gather(*rank.bootstrap, head);
    for (std::size_t other = 0; other < heads.size(); ++other) {
      if (heads[other].caseNumber == head.caseNumber && heads[other].caseName == head.caseName) continue;
      throw Error(ErrorCode::invalidUsage,
                  fmt::format("rank {} has run {} as case {}, but rank {} another one; give all "
                              "ranks the same arguments",
                              rank.communicator->rank(), item.name(), casesRun, other));
    }
    std::vector<CaseResult> all(heads.size());
    for (auto const samples : {&CaseResult::seconds, &CaseResult::bare}) {
      auto const count = (mine.*samples).size();
      if (count == 0) continue;
      std::vector<double> together(count * heads.size());
      auto const placeOf = [&](std::size_t other) {
        return together.begin() + static_cast<std::ptrdiff_t>(count * other);
      };
      std::copy((mine.*samples).begin(), (mine.*samples).end(),
                placeOf(static_cast<std::size_t>(rank.communicator->rank())));
      rank.bootstrap->allGather(together.data(), count * sizeof(double));
      for (std::size_t other = 0; other < all.size(); ++other) {
        (all[other].*samples).assign(placeOf(other), placeOf(other + 1));
      }
    }
    for (std::size_t other = 0; other < all.size(); ++other) {
      if (mine.wrong) all[other].wrong = heads[other].wrong;
    }
    return all;
  }

  struct Places {
    Step step;
    std::uint64_t inOffset;
    std::uint64_t outOffset;
    std::byte const* in;
    std::byte* out;
  };
  Places placesOf(Rank& rank, Case const& item, int index) const {
    auto const step = stepOf(item.collective, item.inPlace, rank.communicator->rank(), world.ranks, index);
    auto const inOffset = static_cast<std::uint64_t>(step.in.slot) * item.slotBytes();
    auto const outOffset = static_cast<std::uint64_t>(step.out.slot) * item.slotBytes();
    return {step, inOffset, outOffset, rank.buffer(item, step.in.buffer) + inOffset,
            rank.buffer(item, step.out.buffer) + outOffset};
  }
  CollectiveCall callOf(Rank& rank, Case const& item, int index) const {
    auto const places = placesOf(rank, item, index);
    return item.call(world.ranks, places.in, places.out, places.step.root);
  }
  void execute(Rank& rank, Case const& item, CollectiveCall const& call) const {
    if (item.chosen) {
      algorithms.execute(item.collective, *rank.communicator, *rank.stream, call);
    } else {
      item.by->execute(*rank.communicator, *rank.stream, call);
    }
  }

  // Puts operation `index` of a chain into the stream.
  void start(Rank& rank, Case const& item, int index, bool behindKernel) const {
    auto const [step, inOffset, outOffset, in, out] = placesOf(rank, item, index);
    if (!item.own()) {
      rank.nccl->start({.collective = item.collective,
                        .in = in,
                        .out = out,
                        .count = item.count,
                        .type = item.type,
                        .op = item.operation,
                        .root = step.root},
                       *rank.stream);
      return;
    }
    if (executed(item)) return execute(rank, item, item.call(world.ranks, in, out, step.root));
    auto shape = item.launch->shape;
    shape.overlapPrevious = item.overlap && behindKernel;
    auto const windowOf = [&](int buffer) -> layout::WindowHandle const* {
      return rank.windows[buffer] ? &rank.windows[buffer]->deviceHandle() : nullptr;
    };
    item.launch->kernel->start({.stream = *rank.stream,
                                .team = rank.team->deviceHandle(),
                                .in = in,
                                .out = out,
                                .count = item.launch->count,
                                .root = step.root,
                                .op = item.operation,
                                .inWindow = windowOf(step.in.buffer),
                                .outWindow = windowOf(step.out.buffer),
                                .inOffset = inOffset,
                                .outOffset = outOffset,
                                .shape = shape,
                                .sideStreams = rank.sideStreams.data()});
  }

  void synchronize(Rank& rank) const {
    rank.communicator->synchronize(*rank.stream, 2 * host->kernelLimit() + std::chrono::seconds(20));
  }

  // Returns when every rank has called it.
  void meet(Rank& rank) const {
    if (several) {
      rank.bootstrap->barrier();
    } else {
      pool->barrier(meetingLimit);
    }
  }

  // Elements of the rank's buffers that do not hold what they should, and bytes behind them that were written.
  std::uint64_t wrongIn(Rank& rank, Case const& item, ExchangeModel const& model) const {
    auto const size = bytesOf(item.type);
    auto const bytes = item.bytes();
    auto const piece = stagingBytes / size * size;
    std::uint64_t wrong = 0;
    for (int buffer = 0; buffer < (item.inPlace ? 1 : 2); ++buffer) {
      auto const* const data = rank.buffer(item, buffer);
      auto const& contents = model.contents(rank.communicator->rank(), buffer);
      for (std::uint64_t done = 0; done < bytes; done += piece) {
        auto const part = rank.staging->fetch(data + done, std::min<std::uint64_t>(piece, bytes - done));
        wrong += countWrong(part, done / size, contents, item.count, answers, !item.inRankOrder());
      }
      wrong += countTouched(rank.staging->fetch(data + bytes, guardBytes));
    }
    return wrong;
  }

  std::uint64_t check(Rank& rank, Case const& item) {
    auto& runtime = rank.device().runtime();
    // Another root and other buffers in every case.
    int const index = static_cast<int>(casesRun % (2 * static_cast<std::uint64_t>(world.ranks)));
    auto const self = rank.communicator->rank();
    auto const step = stepOf(item.collective, item.inPlace, self, world.ranks, index);
    ExchangeModel model(item.collective, item.inPlace, world.ranks);
    auto const bytes = item.bytes();
    for (int buffer = 0; buffer < (item.inPlace ? 1 : 2); ++buffer) {
      runtime.fill(rank.buffer(item, buffer), poisonByte, bytes + guardBytes);
    }
    if (!item.inPlace) model.poison(step.out.buffer);
    repeat(rank.device(), rank.buffer(item, step.in.buffer), answers.inputs.at(static_cast<std::size_t>(self)).block,
           bytes);
    meet(rank);
    start(rank, item, index, false);
    synchronize(rank);
    model.run(index);
    return wrongIn(rank, item, model);
  }

  // What the last repetition left.
  std::uint64_t checkChain(Rank& rank, Case const& item) const {
    ExchangeModel model(item.collective, item.inPlace, world.ranks);
    for (int index = 0; index < rank.timer->leads() + item.operations; ++index) model.run(index);
    return wrongIn(rank, item, model);
  }

  void time(Rank& rank, Case const& item, CaseResult& result) {
    auto const bytes = item.bytes();
    repeat(rank.device(), rank.source.data(), rank.timed, bytes);
    meet(rank);
    if (!item.own() || executed(item)) {
      // NCCL connects ranks when they first talk, and the library makes what a call needs at the first of its kind:
      // neither is to be timed or captured.
      for (int root = 0; root < (item.own() && !hasRoot(item.collective) ? 1 : world.ranks); ++root) {
        start(rank, item, root, false);
        synchronize(rank);
        meet(rank);
      }
    }
    Repetition repetition;
    repetition.restore = [&] {
      // The one that is read first last, as an operation would leave it.
      for (int buffer = item.inPlace ? 0 : 1; buffer >= 0; --buffer) {
        rank.device().runtime().copyAsync(rank.buffer(item, buffer), rank.source.data(), bytes, rank.stream->native());
      }
    };
    repetition.operate = [&](int index, bool behindKernel) { start(rank, item, index, behindKernel); };
    if (item.own() && executed(item)) {
      rank.calls.clear();
      auto const count = rank.timer->leads() + item.operations;
      for (int index = 0; index < count; ++index) rank.calls.push_back(callOf(rank, item, index));
      repetition.operate = [&](int index, bool) {
        execute(rank, item, rank.calls.at(static_cast<std::size_t>(index)));
      };
    }
    repetition.operations = item.operations;
    repetition.together = [&] { meet(rank); };
    repetition.synchronize = [&] { synchronize(rank); };
    bool const besideBare = options.launch == LaunchMode::host && item.launch;
    auto const bare = besideBare ? host->bareLaunch(*rank.stream, item.launch->shape) : std::function<void()>();
    auto bareRepetition = repetition;
    bareRepetition.restore = [] {};
    bareRepetition.operate = [&](int, bool) { bare(); };
    // Before and after, since a processor's clock drifts.
    auto const timeBare = [&] {
      if (!bare) return;
      auto const more = rank.timer->measure(bareRepetition, (item.replays + 1) / 2);
      result.bare.insert(result.bare.end(), more.begin(), more.end());
    };
    timeBare();
    result.seconds = rank.timer->measure(repetition, item.replays);
    timeBare();
  }

  // Where no kernel runs yet: the others, which now wait for this rank's messages in vain, hear of it at once.
  void leave(Rank& rank) {
    std::lock_guard const lock(leaving);
    if (rank.nccl) rank.nccl->abort();
    for (auto& window : rank.ncclWindows) window.reset();
    rank = Rank{};
  }

  // Called from the thread of a rank that failed.
  void endWaits() noexcept {
    std::lock_guard const lock(leaving);
    if (!joined) return;
    for (auto& rank : ranks) {
      if (rank.communicator) rank.communicator->abort();
    }
  }

  void close() {
    if (closed) return;
    closed = true;
    Watchdog const watchdog(meetingLimit, "freeing the devices");
    bool const orderly = !failed;
    try {
      pool->run([&](int index) {
        auto& rank = ranks[static_cast<std::size_t>(index)];
        // Nobody's memory may go while a peer's kernel can still use it.
        if (orderly) meet(rank);
        if (!orderly && rank.nccl) rank.nccl->abort();
        for (auto& window : rank.ncclWindows) window.reset();
        rank.nccl.reset();
        rank.team.reset();
        if (orderly) releaseContexts(*rank.communicator);
        for (auto& window : rank.windows) window.reset();
        rank.timer.reset();
        if (orderly) meet(rank);
      });
    } catch (Error const& error) {
      failed = true;
      fmt::print(stderr, "mscclpp-bench: while ending: {}\n", error.what());
    }
    pool.reset();
    ranks.clear();
    releasesHeld.reset();
  }

  Options const options;
  LaunchInfo const launch;
  bool several = false;
  Machine* host = nullptr;
  int devices = 0;
  bool oneAtATime = false;  // kernels of a rank: see host/ranks.hpp of threads that share a GPU
  bool shared = false;
  World world;
  std::string deviceName;
  AlgorithmCollection const algorithms = AlgorithmCollection::defaults();
  std::uint64_t seed = 0;
  std::unique_ptr<NcclLibrary> nccl;
  std::string whyNoNccl;
  std::map<DataType, std::size_t> periods;
  std::optional<std::pair<DataType, ReduceOp>> answersOf;
  Answers answers;
  std::uint64_t casesRun = 0;
  bool joined = false;  // every rank has its communicator
  bool failed = false;
  bool closed = false;
  std::mutex leaving;
  struct Resume {
    void operator()(Runtime* machine) const { machine->resumeReleases(); }
  };
  std::unique_ptr<Runtime, Resume> releasesHeld;  // goes after the ranks
  std::vector<Rank> ranks;
  std::unique_ptr<RankPool> pool;
};

Session::Session(Options const& options, std::uint64_t digest) : impl_(std::make_unique<Impl>(options, digest)) {}
Session::~Session() { impl_->close(); }

World const& Session::world() const { return impl_->world; }
std::string const& Session::deviceName() const { return impl_->deviceName; }
bool Session::shared() const { return impl_->shared; }
bool Session::severalProcesses() const { return impl_->several; }
bool Session::leads() const { return !impl_->several || impl_->launch.rank == 0; }
std::uint64_t Session::seed() const { return impl_->seed; }
std::string Session::note() const {
  auto note = impl_->host->note();
  if (impl_->shared) note += fmt::format("{}Ranks share GPUs: times say nothing about links.", note.empty() ? "" : " ");
  return note;
}
std::string Session::ncclVersion() const { return impl_->nccl ? impl_->nccl->version() : impl_->whyNoNccl; }
Plan Session::plan(Options options) const {
  if (impl_->oneAtATime) options.operationsPerGraph = 1;
  return planCases(options, impl_->world, impl_->algorithms);
}
bool Session::supports(Case const& item) const {
  return item.own() || (impl_->nccl && impl_->nccl->supports(item.type));
}
void Session::onRanks(std::function<void(Communicator&)> const& work) {
  impl_->onAll([&](Rank& rank, int) { work(*rank.communicator); });
}
void Session::prepare(std::vector<Case> const& cases) { impl_->prepare(cases); }
CaseResult Session::run(Case const& item) { return impl_->run(item); }
void Session::close() { impl_->close(); }

std::string Session::description() const {
  return fmt::format("{} ranks, {}, {}{}", impl_->world.ranks,
                     impl_->several ? fmt::format("processes started by {}", impl_->launch.launcher)
                                    : std::string("threads of one process"),
                     impl_->deviceName, impl_->shared ? ", shared" : "");
}

}  // namespace mscclpp::bench
