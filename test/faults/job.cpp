// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "faults/job.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>

#include <fmt/format.h>

#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"

namespace faults {
namespace {

using namespace mscclpp;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int running = -2;

// Connections to rank 0's port by somebody who knows nothing: closed at once, silent, with garbage, with half a hello.
class Strangers {
 public:
  explicit Strangers(std::uint16_t port) : port_(port) {}
  ~Strangers() {
    for (int const one : held_) ::close(one);
  }

  void come(std::uint64_t seed) {
    auto const flood = seed % 4 == 0 ? 150 : 5;
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(flood); ++i) {
      int const socket = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(port_);
      [[maybe_unused]] auto const begun = ::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address);
      std::string data(1 + (seed + i * 37) % 300, static_cast<char>(seed >> (i % 56)));
      // The magic number and version of a hello, and nothing after it.
      if (i % 3 == 1) data = std::string("1pplccsm\2\0\0\0", 12);
      if (i % 3 != 2) [[maybe_unused]]
        auto const sent = ::send(socket, data.data(), data.size(), MSG_NOSIGNAL);
      if (i % 2 == 0) {
        held_.push_back(socket);
      } else {
        ::close(socket);
      }
    }
  }

 private:
  std::uint16_t port_;
  std::vector<int> held_;
};

class Job {
 public:
  Job(Plan const& plan, UniqueId id)
      : plan_(plan),
        id_(std::move(id)),
        strangers_(id_.port()),
        memory_(::mmap(nullptr, sizeof(JobRecord), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        record_(*new (memory_) JobRecord{}) {
    for (int rank = 0; rank < plan.ranks; ++rank) ranks_.push_back(rank);
  }
  Job(Job const&) = delete;
  Job& operator=(Job const&) = delete;
  ~Job() { ::munmap(memory_, sizeof(JobRecord)); }

  Verdict run(bool show) {
    begin_ = Clock::now();
    for (int rank = 0; rank < plan_.ranks; ++rank) start(rank);
    while (reap() && Clock::now() - begin_ < plan_.bound()) {
      auto const next = inject();
      record_.over = std::all_of(ranks_.begin(), ranks_.end(), [&](int rank) { return isDone(rank); });
      std::this_thread::sleep_for(std::clamp<std::chrono::microseconds>(next, 50us, 2000us));
    }
    auto const took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin_);
    std::string text = describeHangs();
    end();
    auto verdict = judge(plan_, record_, ends_, show, text);
    verdict.milliseconds = static_cast<int>(took.count());
    if (verdict.bad() || show) std::fputs(fmt::format("---- {}\n{}", plan_.text(), text).c_str(), stderr);
    return verdict;
  }

 private:
  int& end(int rank) { return ends_[static_cast<std::size_t>(rank)]; }
  pid_t& process(int rank) { return processes_[static_cast<std::size_t>(rank)]; }
  // Nobody awaits the end of one that was stopped for ever.
  bool isStopped(int rank) const { return plan_.kind == Kind::stop && injected_ && rank == plan_.victim; }
  bool isDone(int rank) { return end(rank) != running || record_.rank[rank].finished || isStopped(rank); }

  void start(int rank) {
    std::fflush(nullptr);
    record_.rank[rank].begin = begin_;
    process(rank) = ::fork();
    end(rank) = running;
    if (process(rank) != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    runRank(plan_, rank, id_, record_);
    ::_exit(0);
  }

  // Whether a process is awaited.
  bool reap() {
    bool awaited = false;
    for (int const rank : ranks_) {
      int status = 0;
      if (end(rank) == running && ::waitpid(process(rank), &status, WNOHANG) == process(rank)) end(rank) = status;
      awaited = awaited || (end(rank) == running && !isStopped(rank));
    }
    return awaited;
  }

  // Does what is due. Returns when to look again.
  std::chrono::microseconds inject() {
    bool const fromHere = plan_.kind == Kind::kill || plan_.kind == Kind::stop || plan_.kind == Kind::pause ||
                          plan_.kind == Kind::strangers || (plan_.kind == Kind::fork && plan_.way == way::orphan);
    if (!fromHere || (injected_ && !paused_)) return 2000us;
    auto const& victim = record_.rank[plan_.victim];
    auto const now = Clock::now();
    if (paused_) {
      if (now < due_) return std::chrono::duration_cast<std::chrono::microseconds>(due_ - now);
      paused_ = false;
      signal(SIGCONT);
      return 0us;
    }
    if (due_ == Clock::time_point{}) {
      bool const begun = victim.stage >= plan_.at + 2 || plan_.at < 0;
      if (begun && (plan_.kind != Kind::fork || victim.child != 0)) due_ = now + plan_.after;
      return 100us;
    }
    if (now < due_) return std::chrono::duration_cast<std::chrono::microseconds>(due_ - now);
    injected_ = true;
    if (plan_.kind == Kind::strangers) {
      strangers_.come(plan_.seed);
    } else if (plan_.kind == Kind::stop || plan_.kind == Kind::pause) {
      paused_ = plan_.kind == Kind::pause;
      due_ = now + plan_.lasts;
      signal(SIGSTOP);
    } else {
      signal(SIGKILL);
    }
    return 100us;
  }
  void signal(int number) {
    if (end(plan_.victim) == running) ::kill(process(plan_.victim), number);
  }

  std::string describeHangs() {
    std::string text;
    for (int const rank : ranks_) {
      if (end(rank) != running || isStopped(rank)) continue;
      text += fmt::format("rank {} has not ended within {} ms: {}\n", rank, plan_.bound().count(),
                          record_.rank[rank].doing);
    }
    return text;
  }

  void end() {
    for (int const rank : ranks_) {
      if (end(rank) == running) {
        ::kill(process(rank), SIGKILL);
        ::waitpid(process(rank), nullptr, 0);
        end(rank) = isStopped(rank) ? SIGKILL : -1;
      }
      if (pid_t const child = record_.rank[rank].child; child > 0) ::kill(child, SIGKILL);
    }
  }

  Plan const& plan_;
  UniqueId id_;
  Strangers strangers_;
  void* memory_;
  JobRecord& record_;
  std::vector<int> ranks_;
  std::array<pid_t, mostRanks> processes_{};
  std::array<int, mostRanks> ends_{};
  Clock::time_point begin_;
  Clock::time_point due_{};
  bool injected_ = false;
  bool paused_ = false;
};

void set(char const* name, std::chrono::milliseconds limit) {
  ::setenv(name, fmt::format("{:.3f}", std::chrono::duration<double>(limit).count()).c_str(), 1);
}

}  // namespace

Verdict runJob(Plan const& plan, bool show) {
  set("MSCCLPP_TIMEOUT", plan.hostLimit);
  set("MSCCLPP_KERNEL_TIMEOUT", plan.kernelLimit);
  ::setenv("MSCCLPP_CHECK_CALLS", plan.checksCalls ? "1" : "0", 1);
  ::setenv("MSCCLPP_LOG_LEVEL", "off", 1);
  return Job(plan, TcpBootstrap::createUniqueId("127.0.0.1:0")).run(show);
}

}  // namespace faults
