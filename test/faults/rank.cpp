// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank: it makes its calls, writes down what became of each, and after an error goes on as docs/failures.md says.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "faults/job.hpp"
#include "faults/work.hpp"
#include "mscclpp/collectives/contexts.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/sim/runtime.hpp"

namespace faults {
namespace {

using namespace mscclpp;
using namespace std::chrono_literals;

struct Leaves {};

// All of a device's memory but a remainder, until it is destroyed.
class Ballast {
 public:
  explicit Ballast(Device device) {
    for (auto size = device.properties().memoryBytes; size >= 4096;) {
      try {
        parts_.emplace_back(device, size);
      } catch (Error const&) {
        size /= 2;
      }
    }
  }

 private:
  std::vector<DeviceMemory> parts_;
};

[[noreturn]] void sleepForever() {
  for (;;) ::pause();
}

Step altered(Step step, int how) {
  switch (how) {
    case way::size:
      step.count += step.seed % 2 == 0 ? 8 : 200;
      break;
    case way::type:
      step.type = bytesOf(step.type) == 4 ? DataType::float64 : DataType::float32;
      break;
    case way::operation:
      step.op = step.op == ReduceOp::max ? ReduceOp::sum : ReduceOp::max;
      break;
    case way::root:
      ++step.root;
      break;
    default:
      step.collective = step.collective == Collective::allGather ? Collective::allToAll : Collective::allGather;
      step.op = ReduceOp::none;
  }
  return step;
}

bool tellsOfEnd(std::string_view text) {
  for (auto const* const words : {"is gone", "] have ended", "] do not answer"}) {
    if (text.find(words) != std::string_view::npos) return true;
  }
  return false;
}

class RankRun {
 public:
  RankRun(Plan const& plan, int rank, JobRecord& job) : plan_(plan), rank_(rank), job_(job), record_(job.rank[rank]) {}

  void run(UniqueId const& id) {
    if (!attempt(-1, [&] { join(id); })) return;
    for (int step = 0; step < static_cast<int>(plan_.steps.size());) {
      step = make(step);
      if (record_.lost) return;
    }
    doing("has done all");
    record_.finished = true;
    // Nobody's failure is that somebody was done.
    while (!job_.over) std::this_thread::sleep_for(1ms);
  }

 private:
  bool isVictim() const { return rank_ == plan_.victim; }
  // Whose defect it is.
  bool planted(Plant plant) const {
    if (plan_.plant != plant) return false;
    return plant == Plant::misname || rank_ == (plan_.victim + 1) % plan_.ranks;
  }
  void doing(std::string const& what) { put(record_.doing, what); }

  void join(UniqueId const& id) {
    sim::install({.devices = mostRanks, .memoryBytes = std::size_t{1} << 30});
    auto bootstrap = std::make_shared<TcpBootstrap>(rank_, plan_.ranks);
    doing("joins");
    bootstrap->initialize(id);
    doing("makes a communicator");
    std::vector<int> members;
    for (int rank = 0; rank < plan_.ranks; ++rank) members.push_back(rank);
    adopt(std::make_unique<Communicator>(bootstrap, Device{DeviceKind::sim, rank_}), members);
    record_.stage = 1;
  }

  void adopt(std::unique_ptr<Communicator> communicator, std::vector<int> const& members) {
    communicators_.push_back(std::move(communicator));
    places_.push_back(std::make_unique<Workplace>(plan_.work, *communicators_.back(), members));
    unsigned bits = 0;
    for (int const member : members) bits |= 1u << member;
    record_.others = bits;
  }

  // Does it, and writes down an error. Whether there was none.
  bool attempt(int step, std::function<void()> const& act) {
    try {
      act();
      return true;
    } catch (Error const& error) {
      failure_ = error.what();
      if (planted(Plant::hang)) sleepForever();
      if (planted(Plant::crash)) ::raise(SIGSEGV);
      if (planted(Plant::ignore)) return true;
      if (planted(Plant::misname)) misname();
      record_.add(step, Result::error, static_cast<int>(error.code()), failure_);
    }
    return false;
  }

  void misname() {
    auto const victim = fmt::format("{}", plan_.victim);
    for (auto at = failure_.find(victim); at != std::string::npos; at = failure_.find(victim, at + 1)) {
      failure_[at] = static_cast<char>('0' + (plan_.victim + 1) % plan_.ranks);
    }
  }

  // Returns the next one.
  int make(int number) {
    auto& place = *places_.back();
    auto step = plan_.steps[static_cast<std::size_t>(number)];
    doing(fmt::format("step {}: {} over {}", number, plan_.work == Work::collectives ? nameOf(step.collective) : "",
                      fmt::join(place.members(), " ")));
    bool const hit = isVictim() && number == plan_.at;
    if (number == plan_.at) misbehave();
    if (hit && plan_.kind == Kind::mismatch && plan_.way != way::leftOut) step = altered(step, plan_.way);
    bool const leftOut = hit && plan_.kind == Kind::mismatch && plan_.way == way::leftOut;
    place.prepare(step);
    record_.stage = number + 2;
    std::thread meanwhile;
    if (hit) meanwhile = std::thread([&] { sufferMeanwhile(place.communicator()); });
    if (hit && plan_.kind == Kind::delay) std::this_thread::sleep_for(plan_.lasts);
    std::optional<Ballast> ballast;
    if (hit && plan_.kind == Kind::refuse) ballast.emplace(place.communicator().device());
    if (hit && plan_.kind == Kind::abort && plan_.way == way::left) {
      meanwhile.join();
      throw Leaves{};
    }
    bool const done = leftOut || attempt(number, [&] { place.perform(); });
    if (meanwhile.joinable()) meanwhile.join();
    ballast.reset();
    if (plan_.restarts() && number == plan_.at) {
      record_.add(number, Result::unknown, 0, "");
      attempt(number, [&] { releaseContexts(place.communicator()); });
      return number + 1;
    }
    if (done || planted(Plant::stale)) {
      bool const right = planted(Plant::ignore) || place.right();
      record_.add(number, right ? Result::right : Result::wrong, 0, "");
      return number + 1;
    }
    return plan_.shrinks || tellsOfEnd(failure_) ? goOnWithOthers(number) : number + 1;
  }

  // What a defect does where nothing else goes wrong.
  void misbehave() {
    if (!plan_.harmless()) return;
    if (planted(Plant::hang)) sleepForever();
    if (planted(Plant::crash)) ::raise(SIGSEGV);
    if (planted(Plant::leave)) throw Leaves{};
  }

  void sufferMeanwhile(Communicator const& communicator) {
    if (plan_.kind != Kind::fork && plan_.kind != Kind::abort) return;
    std::this_thread::sleep_for(plan_.after);
    if (plan_.kind == Kind::abort && plan_.way == way::ended) communicator.abort();
    if (plan_.kind != Kind::fork) return;
    auto const child = ::fork();
    if (child == 0) {
      ::alarm(plan_.way == way::exits ? 3 : 60);
      if (plan_.way == way::exits) std::exit(0);
      sleepForever();
    }
    record_.child = child;
    if (plan_.way != way::exits) return;
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) record_.add(plan_.at, Result::error, 0, fmt::format("its child ended with status {}", status));
  }

  int goOnWithOthers(int number) {
    for (int i = 0; i < attempts; ++i) {
      auto const& from = *places_.back();
      int furthest = number;
      bool const done = attempt(number, [&] {
        doing(fmt::format("step {}: survivors", number));
        auto const left = from.communicator().survivors();
        doing(fmt::format("step {}: shrink to {}", number, fmt::join(left, " ")));
        auto next = from.communicator().shrink(left);
        // Some may have noticed later than others.
        std::vector<int> steps(left.size());
        steps[static_cast<std::size_t>(next->rank())] = number;
        next->bootstrap()->allGather(steps.data(), sizeof steps[0]);
        for (int const step : steps) furthest = std::max(furthest, step);
        std::vector<int> members;
        for (int const rank : left) members.push_back(from.members()[static_cast<std::size_t>(rank)]);
        adopt(std::move(next), members);
      });
      if (done) return furthest + 1;
    }
    record_.lost = true;
    return number;
  }

  Plan const& plan_;
  int rank_;
  JobRecord& job_;
  RankRecord& record_;
  std::string failure_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<std::unique_ptr<Workplace>> places_;  // destroyed first
};

}  // namespace

void runRank(Plan const& plan, int rank, UniqueId const& id, JobRecord& job) {
  RankRun run(plan, rank, job);
  try {
    run.run(id);
  } catch (Leaves const&) {
  }
}

}  // namespace faults
