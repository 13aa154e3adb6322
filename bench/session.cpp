// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <span>

#include "checker.hpp"
#include "inputs.hpp"
#include "kernel_table.hpp"
#include "machine.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/launcher.hpp"
#include "mscclpp/host/local_bootstrap.hpp"
#include "mscclpp/host/team.hpp"
#include "nccl_peer.hpp"
#include "rank_pool.hpp"
#include "watchdog.hpp"

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
  std::unique_ptr<Team> team;
  std::unique_ptr<NcclCommunicator> nccl;
  std::vector<std::byte> checked;  // one block of this rank's data
  std::vector<std::byte> timed;

  Device device() const { return communicator->device(); }
  std::byte* buffer(int index) const { return static_cast<std::byte*>(buffers[index].data()); }
};

template <class Message>
std::vector<Message> gather(Bootstrap& bootstrap, Message const& mine) {
  std::vector<Message> all(static_cast<std::size_t>(bootstrap.getNranks()), mine);
  bootstrap.allGather(all.data(), sizeof(Message));
  return all;
}

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

std::unique_ptr<NcclLibrary> openNccl(DeviceKind kind) {
  if (kind != DeviceKind::cuda) throw UsageError("--peers=nccl compares on GPUs only; use it with --device=cuda");
  try {
    return std::make_unique<NcclLibrary>();
  } catch (Error const& error) {
    throw UsageError(fmt::format("--peers=nccl: {}", error.what()));
  }
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
    auto const kind = chooseMachine(options);
    host = machine(kind);
    facts.machine = kind;
    if (options.nccl) nccl = openNccl(kind);
    std::vector<std::shared_ptr<Bootstrap>> bootstraps;
    if (several) {
      if (options.ranks && *options.ranks != launch.size) {
        throw UsageError(fmt::format("--ranks={}, but {} started {} ranks; leave it out", *options.ranks,
                                     launch.launcher, launch.size));
      }
      bootstraps.push_back(bootstrapFromEnvironment(meetingLimit));
      host->prepare(std::max(bootstraps[0]->getNranksPerNode(), launch.localRank + 1));
    } else {
      int const wanted = options.ranks.value_or(host->defaultRanks());
      host->prepare(wanted);
      bootstraps = LocalBootstrap::create(std::max(wanted, 1), meetingLimit);
    }
    facts.ranks = bootstraps[0]->getNranks();
    int const devices = Device::count(kind);
    int const needed = several ? launch.localRank + 1 : facts.ranks;
    if (devices < needed) {
      throw UsageError(devices == 0
                           ? fmt::format("--device={}: {}", flagOf(kind), noDevice(kind))
                           : fmt::format("{} ranks on this machine, but it has {} {} device(s); a rank needs one "
                                         "of its own",
                                         needed, devices, nameOf(kind)));
    }
    if (facts.ranks > maxTeamSize) {
      throw UsageError(fmt::format("{} ranks; a team holds at most {}", facts.ranks, maxTeamSize));
    }
    ranks.resize(bootstraps.size());
    pool = std::make_unique<RankPool>(static_cast<int>(ranks.size()), [this] { endWaits(); });
    seed = options.seed.value_or(std::random_device{}() | std::uint64_t{std::random_device{}()} << 32);
    onAll([&](Rank& rank, int index) { join(rank, bootstraps[static_cast<std::size_t>(index)], digest); });
    joined = true;
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
      Device const device{facts.machine, several ? launch.localRank : rank.bootstrap->getRank()};
      host->use(device);
      rank.communicator = std::make_unique<Communicator>(rank.bootstrap, device);
      if (!processVariable("MSCCLPP_KERNEL_TIMEOUT")) rank.communicator->setTimeLimit(host->kernelLimit());
      rank.stream = std::make_unique<Stream>(device);
      rank.timer = host->makeTimer(*rank.stream);
      agree(rank, digest);
    } catch (...) {
      leave(rank);
      throw;
    }
  }

  // Facts that all ranks must see alike.
  void agree(Rank& rank, std::uint64_t digest) {
    struct Own {
      std::uint64_t digest;
      std::uint64_t seed;
      std::uint32_t maxBlocks;
      std::uint32_t wholeLines;
    };
    auto const all = gather(*rank.bootstrap, Own{digest, seed, host->maxBlocks(rank.device()),
                                                 rank.communicator->linesArriveWhole() ? 1u : 0u});
    for (std::size_t other = 0; other < all.size(); ++other) {
      if (all[other].digest == digest) continue;
      throw UsageError(
          fmt::format("rank {} and rank {} were started with different arguments", rank.communicator->rank(), other));
    }
    if (rank.communicator->rank() != 0 && !several) return;
    seed = all[0].seed;
    for (auto const& other : all) {
      facts.maxBlocks = std::min(facts.maxBlocks, other.maxBlocks);
      facts.wholeLines = facts.wholeLines && other.wholeLines != 0;
    }
  }

  void prepare(std::vector<Case> const& cases) {
    std::uint64_t bytes = 0;
    bool second = false;  // a buffer apart from the input
    for (auto const& item : cases) {
      bytes = std::max(bytes, item.bytes());
      second = second || !item.inPlace;
      auto& period = periods[item.type];
      period = std::max(period, periodFor(item.count));
    }
    auto const requirement = requirementOf(cases, facts.ranks);
    auto const workspace = layout::WorkspaceLayout::make(static_cast<std::uint32_t>(facts.ranks), requirement).total;
    auto const room = bytes + guardBytes;
    auto const total = room * (second ? 3 : 2) + workspace;
    Watchdog const watchdog(meetingLimit + std::chrono::seconds(60), "making the buffers and communicators");
    auto const make = [&](Rank& rank) {
      auto const memory = rank.device().properties().memoryBytes;
      if (total > memory / 20 * 19) {
        throw UsageError(
            fmt::format("--max-bytes={} takes {} MiB on each device, which has {} MiB; choose a smaller one",
                        formatBytes(bytes), total >> 20, memory >> 20));
      }
      rank.source = DeviceMemory(rank.device(), room);
      rank.buffers[0] = DeviceMemory(rank.device(), room);
      if (second) rank.buffers[1] = DeviceMemory(rank.device(), room);
      rank.staging = std::make_unique<Staging>(rank.device());
      rank.team = std::make_unique<Team>(*rank.communicator, requirement);
      if (nccl) {
        auto const mine = rank.communicator->rank() == 0 ? nccl->makeUniqueId() : NcclLibrary::UniqueId{};
        auto const ids = gather(*rank.bootstrap, mine);
        rank.nccl = std::make_unique<NcclCommunicator>(*nccl, ids[0], rank.communicator->rank(), facts.ranks);
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
    bool const fresh = !data || data->first != std::pair(item.type, item.operation);
    auto const period = periods.at(item.type);
    if (fresh) {
      data = {{item.type, item.operation}, expectedBlock(item.type, item.operation, seed, facts.ranks, period)};
      dataWithSlack.reset();
    }
    if (item.nccl && options.check && !dataWithSlack) {
      dataWithSlack = expectedWithSlack(item.type, item.operation, seed, facts.ranks, period);
    }
    ++casesRun;
    std::vector<CaseResult> results(ranks.size());
    onAll([&](Rank& rank, int index) {
      if (fresh) {
        rank.checked = checkedBlock(item.type, item.operation, seed, rank.communicator->rank(), period);
        rank.timed = timedBlock(item.type, item.operation, seed, rank.communicator->rank(), period);
      }
      auto& result = results[static_cast<std::size_t>(index)];
      if (options.check) result.wrong = check(rank, item);
      result.seconds = time(rank, item);
      if (several) result = slowest(allResults(rank, item, result));
    });
    return slowest(results);
  }

  static CaseResult slowest(std::vector<CaseResult> const& results) {
    CaseResult total = results.at(0);
    for (std::size_t i = 1; i < results.size(); ++i) {
      for (std::size_t r = 0; r < total.seconds.size(); ++r) {
        total.seconds[r] = std::max(total.seconds[r], results[i].seconds.at(r));
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
    auto const replays = mine.seconds.size();
    std::vector<double> seconds(replays * heads.size());
    std::copy(mine.seconds.begin(), mine.seconds.end(),
              seconds.begin() + static_cast<std::ptrdiff_t>(replays) * rank.communicator->rank());
    rank.bootstrap->allGather(seconds.data(), replays * sizeof(double));
    std::vector<CaseResult> all(heads.size());
    for (std::size_t other = 0; other < heads.size(); ++other) {
      auto const first = seconds.begin() + static_cast<std::ptrdiff_t>(replays * other);
      all[other].seconds.assign(first, first + static_cast<std::ptrdiff_t>(replays));
      if (mine.wrong) all[other].wrong = heads[other].wrong;
    }
    return all;
  }

  // Puts one operation into the stream.
  void start(Rank& rank, Case const& item, int from, int to, bool behindKernel) const {
    if (item.nccl) {
      rank.nccl->allReduce(rank.buffer(from), rank.buffer(to), item.count, item.type, item.operation, *rank.stream);
      return;
    }
    auto const kernel =
        KernelTable::instance().find(facts.machine, item.type, item.operation, item.choice.algorithm, facts.ranks);
    kernel({.stream = *rank.stream,
            .team = rank.team->deviceHandle(),
            .in = rank.buffer(from),
            .out = rank.buffer(to),
            .count = item.count,
            .shape = {.blocks = item.choice.blocks,
                      .threads = item.choice.threads,
                      .overlapPrevious = item.overlap && behindKernel}});
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

  std::uint64_t check(Rank& rank, Case const& item) {
    auto& runtime = rank.device().runtime();
    int const to = item.inPlace ? 0 : 1;
    auto* const out = rank.buffer(to);
    auto const bytes = item.bytes();
    runtime.fill(out, poisonByte, bytes + guardBytes);
    repeat(rank.device(), rank.buffer(0), rank.checked, bytes);
    meet(rank);
    start(rank, item, 0, to, false);
    synchronize(rank);
    auto const& expected = item.nccl ? *dataWithSlack : data->second;
    std::uint64_t wrong = 0;
    auto const piece = stagingBytes / bytesOf(item.type) * bytesOf(item.type);
    for (std::uint64_t done = 0; done < bytes; done += piece) {
      auto const part = rank.staging->fetch(out + done, std::min<std::uint64_t>(piece, bytes - done));
      wrong += countWrong(part, done / bytesOf(item.type), expected);
    }
    return wrong + countTouched(rank.staging->fetch(out + bytes, guardBytes));
  }

  std::vector<double> time(Rank& rank, Case const& item) {
    auto const bytes = item.bytes();
    repeat(rank.device(), rank.source.data(), rank.timed, bytes);
    meet(rank);
    Repetition repetition;
    repetition.restore = [&] {
      rank.device().runtime().copyAsync(rank.buffer(0), rank.source.data(), bytes, rank.stream->native());
    };
    repetition.operate = [&](int index, bool behindKernel) {
      if (item.inPlace) {
        start(rank, item, 0, 0, behindKernel);
      } else {
        start(rank, item, index % 2, 1 - index % 2, behindKernel);
      }
    };
    repetition.operations = item.operations;
    repetition.together = [&] { meet(rank); };
    repetition.synchronize = [&] { synchronize(rank); };
    return rank.timer->measure(repetition, item.replays);
  }

  // Where no kernel runs yet: the others, which now wait for this rank's messages in vain, hear of it at once.
  void leave(Rank& rank) {
    std::lock_guard const lock(leaving);
    if (rank.nccl) rank.nccl->abort();
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
        rank.nccl.reset();
        rank.team.reset();
        rank.timer.reset();
        if (orderly) meet(rank);
      });
    } catch (Error const& error) {
      failed = true;
      fmt::print(stderr, "mscclpp-bench: while ending: {}\n", error.what());
    }
    pool.reset();
    ranks.clear();
  }

  Options const options;
  LaunchInfo const launch;
  bool several = false;
  Machine* host = nullptr;
  WorldFacts facts;
  std::uint64_t seed = 0;
  std::unique_ptr<NcclLibrary> nccl;
  std::map<ElementType, std::size_t> periods;
  std::optional<std::pair<std::pair<ElementType, Operation>, Expected>> data;
  std::optional<Expected> dataWithSlack;
  std::uint64_t casesRun = 0;
  bool joined = false;  // every rank has its communicator
  bool failed = false;
  bool closed = false;
  std::mutex leaving;
  std::vector<Rank> ranks;
  std::unique_ptr<RankPool> pool;
};

Session::Session(Options const& options, std::uint64_t digest) : impl_(std::make_unique<Impl>(options, digest)) {}
Session::~Session() { impl_->close(); }

WorldFacts const& Session::facts() const { return impl_->facts; }
bool Session::severalProcesses() const { return impl_->several; }
bool Session::leads() const { return !impl_->several || impl_->launch.rank == 0; }
std::uint64_t Session::seed() const { return impl_->seed; }
std::string Session::note() const { return impl_->host->note(); }
std::string Session::ncclVersion() const { return impl_->nccl ? impl_->nccl->version() : std::string(); }
bool Session::ncclSupports(Case const& item) const { return impl_->nccl && impl_->nccl->supports(item.type); }
void Session::prepare(std::vector<Case> const& cases) { impl_->prepare(cases); }
CaseResult Session::run(Case const& item) { return impl_->run(item); }
void Session::close() { impl_->close(); }

std::string Session::description() const {
  return fmt::format("{} ranks, {}, {}", impl_->facts.ranks,
                     impl_->several ? fmt::format("processes started by {}", impl_->launch.launcher)
                                    : std::string("threads of one process"),
                     impl_->ranks.at(0).device().properties().name);
}

}  // namespace mscclpp::bench
