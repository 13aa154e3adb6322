// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kills one rank at a random moment of all-reduces, again and again, and measures how soon every other one knows it:
//
//   mscclpp-kill-trials --trials=100 --ranks=4 --device=cuda
//
// Each rank is a process of its own, which calls CUDA after exec() only. The ranks that are left must name the one that
// was killed, agree on who they are, and reduce right with a communicator of theirs. Ranks may share GPUs. Under MPS
// --terminate has the daemon end the rank's work on the GPU first, as NVIDIA's manual asks for.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/stream.hpp"

namespace {

using namespace mscclpp;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;  // CLOCK_MONOTONIC, the same in all processes

constexpr int mostRanks = 16;
constexpr auto hangLimit = 60s;

// What a rank has come to.
enum class End : std::int32_t { none, right, wrongResult, failed };

// Of one trial, in memory that all its processes have.
struct Trial {
  struct Rank {
    End end;
    std::int64_t heardNs;
    char text[600];  // of its error
  };

  std::atomic<int> idWritten;
  char id[2 * uniqueIdBytes + 1];
  std::atomic<int> working;  // ranks that have made their first calls
  std::atomic<std::int64_t> killedNs;
  Rank ranks[mostRanks];
};

struct Options {
  int trials = 20;
  int ranks = 4;
  std::string device = "sim";
  std::uint64_t seed = 1;
  double limitMs = 1000;
  bool terminate = false;
  // Of a rank's process.
  int rank = -1;
  int memory = -1;
};

std::int64_t nowNs() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

Trial& map(int memory) {
  void* const base = ::mmap(nullptr, sizeof(Trial), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (base == MAP_FAILED) throwSystemError("mmap", errno);
  return *static_cast<Trial*>(base);
}

// ---- a rank
// ----------------------------------------------------------------------------------------------------------

// All-reduces whose results are known beforehand.
class Work {
 public:
  explicit Work(Communicator const& communicator)
      : communicator_(communicator),
        stream_(communicator.device()),
        in_(communicator.device(), most),
        out_(communicator.device(), most) {}

  // Throws what the call throws; false where its result is wrong. Waits in another way each time.
  bool reduce(std::int32_t call) {
    std::size_t const count = call % 3 == 0 ? most : 64;
    auto const first = communicator_.rank() + call;
    std::vector<std::int32_t> data(most);
    std::iota(data.begin(), data.end(), first);
    copyToDevice(in_, std::span<std::int32_t const>(data));
    auto const bytes = count * sizeof(std::int32_t);
    algorithms_.execute(Collective::allReduce, communicator_, stream_,
                        {.in = in_.data(),
                         .out = out_.data(),
                         .inBytes = bytes,
                         .outBytes = bytes,
                         .type = DataType::int32,
                         .op = ReduceOp::sum});
    switch (call % 4) {
      case 0:
        communicator_.synchronize(stream_);
        break;
      case 1:
        std::this_thread::sleep_for(2ms);
        [[fallthrough]];
      case 2:
        stream_.synchronize();
        communicator_.checkReports();
        break;
      default:
        while (!stream_.idle()) std::this_thread::yield();
        communicator_.checkReports();
    }
    auto const sums = copyToHost(out_);
    std::int32_t const ranks = communicator_.size();
    for (std::size_t i = 0; i < count; ++i) {
      auto const expected = ranks * (call + static_cast<std::int32_t>(i)) + ranks * (ranks - 1) / 2;
      if (sums[i] != expected) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t most = 3000;

  Communicator const& communicator_;
  AlgorithmCollection algorithms_ = AlgorithmCollection::defaults();
  Stream stream_;
  GpuBuffer<std::int32_t> in_;
  GpuBuffer<std::int32_t> out_;
};

End liveThrough(Options const& options, Trial& trial, Trial::Rank& mine) {
  constexpr int firstCalls = 3;
  auto const bootstrap = std::make_shared<TcpBootstrap>(options.rank, options.ranks);
  if (options.rank == 0) {
    auto const id = TcpBootstrap::createUniqueId("127.0.0.1:0");
    id.toString().copy(trial.id, sizeof trial.id - 1);
    trial.idWritten = 1;
    bootstrap->initialize(id);
  } else {
    while (trial.idWritten == 0) std::this_thread::sleep_for(1ms);
    bootstrap->initialize(UniqueId::fromString(trial.id));
  }
  auto const kind = options.device == "cuda" ? DeviceKind::cuda : DeviceKind::sim;
  Communicator const communicator(bootstrap, {kind, options.rank % std::max(1, Device::count(kind))});
  Work work(communicator);
  try {
    for (std::int32_t call = 0;; ++call) {
      if (!work.reduce(call)) return End::wrongResult;
      if (call + 1 == firstCalls) ++trial.working;
    }
  } catch (Error const& error) {
    mine.heardNs = nowNs();
    std::string(error.what()).copy(mine.text, sizeof mine.text - 1);
    if (error.code() != ErrorCode::remoteError) return End::failed;
  }
  auto const group = communicator.shrink(communicator.survivors());
  if (group->size() != options.ranks - 1) return End::failed;
  Work others(*group);
  for (std::int32_t call = 0; call < firstCalls; ++call) {
    if (!others.reduce(call)) return End::wrongResult;
  }
  // Nobody frees what others still use.
  group->bootstrap()->barrier();
  return End::right;
}

int rankMain(Options const& options) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto& trial = map(options.memory);
  auto& mine = trial.ranks[options.rank];
  try {
    mine.end = liveThrough(options, trial, mine);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "rank %d: %s\n", options.rank, error.what());
    mine.end = End::failed;
  }
  return mine.end == End::right ? 0 : 1;
}

// ---- the parent
// ------------------------------------------------------------------------------------------------------

struct Totals {
  int hangs = 0;
  int wrongNames = 0;
  int wrongResults = 0;
  int failures = 0;
  std::vector<double> ms;
};

pid_t startRank(Options const& options, int rank, int memory) {
  std::vector<std::string> texts{"mscclpp-kill-trials", "--rank=" + std::to_string(rank),
                                 "--memory=" + std::to_string(memory), "--ranks=" + std::to_string(options.ranks),
                                 "--device=" + options.device};
  std::vector<char*> arguments;
  arguments.reserve(texts.size() + 1);
  for (auto& text : texts) arguments.push_back(text.data());
  arguments.push_back(nullptr);
  pid_t const process = ::fork();
  if (process < 0) throwSystemError("fork", errno);
  if (process != 0) return process;
  ::execv("/proc/self/exe", arguments.data());
  ::_exit(127);
}

// What MPS's control program answers.
std::string askMps(std::string const& command) {
  auto const all = "echo " + command + " | nvidia-cuda-mps-control";
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> const pipe(::popen(all.c_str(), "r"), ::pclose);
  if (pipe == nullptr) throwSystemError("popen", errno);
  std::string answer;
  for (std::array<char, 256> part; std::fgets(part.data(), part.size(), pipe.get()) != nullptr;) answer += part.data();
  return answer;
}

void runTrial(Options const& options, std::mt19937_64& random, Totals& totals) {
  int const memory = ::memfd_create("kill_trials", 0);
  if (memory < 0 || ::ftruncate(memory, sizeof(Trial)) != 0) throwSystemError("memfd_create", errno);
  auto& trial = map(memory);
  std::vector<pid_t> processes;
  processes.reserve(static_cast<std::size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank) processes.push_back(startRank(options, rank, memory));
  auto const start = Clock::now();
  while (trial.working < options.ranks && Clock::now() - start < hangLimit) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(std::chrono::microseconds(std::uniform_int_distribution(0, 50000)(random)));
  auto const victim = std::uniform_int_distribution(0, options.ranks - 1)(random);
  auto const ended = processes[static_cast<std::size_t>(victim)];
  auto const servers = options.terminate ? askMps("get_server_list") : std::string{};
  trial.killedNs = nowNs();
  if (options.terminate) {
    auto const server = servers.substr(0, servers.find_first_of(" \n"));
    auto const answer = askMps("terminate_client " + server + " " + std::to_string(ended));
    if (!answer.empty()) std::fprintf(stderr, "MPS: %s", answer.c_str());
  }
  ::kill(ended, SIGKILL);

  for (auto const begin = Clock::now(); Clock::now() - begin < hangLimit; std::this_thread::sleep_for(1ms)) {
    for (auto& process : processes) {
      if (process > 0 && ::waitpid(process, nullptr, WNOHANG) == process) process = 0;
    }
    if (std::all_of(processes.begin(), processes.end(), [](pid_t one) { return one == 0; })) break;
  }
  for (int rank = 0; rank < options.ranks; ++rank) {
    auto const process = processes[static_cast<std::size_t>(rank)];
    if (process != 0) {
      ::kill(process, SIGKILL);
      ::waitpid(process, nullptr, 0);
    }
    if (rank == victim) continue;
    auto const& one = trial.ranks[rank];
    std::string const text = one.text;
    auto const named = text.find(" is gone");
    auto const name = "rank " + std::to_string(victim);
    bool const rightName = named != std::string::npos && std::string_view(text).substr(0, named).ends_with(name);
    totals.hangs += process != 0 ? 1 : 0;
    totals.wrongResults += one.end == End::wrongResult ? 1 : 0;
    totals.failures += process == 0 && one.end != End::right && one.end != End::wrongResult ? 1 : 0;
    if (one.heardNs != 0) {
      totals.wrongNames += rightName ? 0 : 1;
      totals.ms.push_back(static_cast<double>(one.heardNs - trial.killedNs) * 1e-6);
    }
    if (one.end != End::right || !rightName) {
      std::fprintf(stderr, "rank %d, of which rank %d was killed: %s\n", rank, victim, one.text);
    }
  }
  ::munmap(&trial, sizeof trial);
  ::close(memory);
}

int parentMain(Options const& options) {
  std::mt19937_64 random(options.seed);
  Totals totals;
  for (int trial = 0; trial < options.trials; ++trial) runTrial(options, random, totals);
  auto& ms = totals.ms;
  std::sort(ms.begin(), ms.end());
  if (ms.empty()) ms.push_back(-1);
  auto const at = [&](double part) { return ms[static_cast<std::size_t>(part * static_cast<double>(ms.size() - 1))]; };
  std::printf(
      "%d trials with %d ranks on %s: %d hangs, %d wrong names, %d wrong results, %d other failures; from the kill to "
      "the error p50 %.2f ms, p99 %.2f ms, max %.2f ms\n",
      options.trials, options.ranks, options.device.c_str(), totals.hangs, totals.wrongNames, totals.wrongResults,
      totals.failures, at(0.5), at(0.99), ms.back());
  bool const sound = totals.hangs + totals.wrongNames + totals.wrongResults + totals.failures == 0;
  return sound && ms.front() >= 0 && ms.back() <= options.limitMs ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  Options options;
  CLI::App app("Kills one rank at a random moment, and measures how soon the others know it.");
  app.add_option("--trials", options.trials, "How often")->check(CLI::PositiveNumber);
  app.add_option("--ranks", options.ranks, "Processes")->check(CLI::Range(2, mostRanks));
  app.add_option("--device", options.device, "sim or cuda")->check(CLI::IsMember({"sim", "cuda"}));
  app.add_option("--seed", options.seed, "Of the moments");
  app.add_option("--limit-ms", options.limitMs, "Longest time that is right");
  app.add_flag("--terminate", options.terminate, "Under MPS: its control program ends the rank before the kill");
  app.add_option("--rank", options.rank)->group("");
  app.add_option("--memory", options.memory)->group("");
  CLI11_PARSE(app, argc, argv);
  return options.rank >= 0 ? rankMain(options) : parentMain(options);
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
