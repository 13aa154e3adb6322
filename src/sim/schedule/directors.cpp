// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <unordered_map>
#include <vector>

#include "sim/schedule/director.hpp"
#include "sim/schedule/scheduler.hpp"

namespace mscclpp::sim {
namespace {

// One choice of value in this many is left to chance, the others take option 0.
constexpr std::uint32_t turnsBetweenChoices = 8;

using enum Candidate::Queue;

class Chance {
 public:
  explicit Chance(std::uint64_t seed) : random_(seed) {}
  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(((random_() >> 32) * limit) >> 32); }
  std::uint64_t any() { return random_(); }
  std::uint32_t choose(ChoiceKind kind, std::uint32_t options) {
    if (kind != ChoiceKind::half && below(turnsBetweenChoices) != 0) return 0;
    return below(options);
  }

 private:
  std::mt19937_64 random_;
};

class RandomDirector final : public Director {
 public:
  RandomDirector(std::uint64_t seed, double preemption) : chance_(seed) {
    // Intervals uniform in [1, 2/p - 1] have the mean 1/p.
    if (preemption > 0) span_ = static_cast<std::uint32_t>(std::clamp(std::round(2 / preemption) - 1, 1.0, 1e9));
    untilInterrupt_ = interval();
  }

  Candidate pick(Scheduler& scheduler, TaskKey, std::uint32_t) override {
    auto const count = static_cast<std::uint32_t>(scheduler.ready().size());
    bool const waiting = !scheduler.polling().empty();
    if (count != 0 && (!waiting || --untilPoll_ != 0)) return {ready, below(count)};
    if (waiting) {
      untilPoll_ = 1 + below(2 * turnsBetweenPolls);
      auto const& polls = scheduler.polling();
      std::size_t const first = below(static_cast<std::uint32_t>(polls.size()));
      for (std::size_t i = 0; i < polls.size(); ++i) {
        auto const at = (first + i) % polls.size();
        if (scheduler.worthALook(*polls[at])) return {polling, at};
      }
    }
    if (count != 0) return {ready, below(count)};
    return {};
  }

  bool goesOn(Scheduler&, Task&, Access const&) override {
    if (span_ == 0 || --untilInterrupt_ != 0) return true;
    untilInterrupt_ = interval();
    return false;
  }

  std::uint32_t choose(Task&, ChoiceKind kind, std::uint32_t options) override { return chance_.choose(kind, options); }

 private:
  std::uint32_t below(std::uint32_t limit) { return chance_.below(limit); }
  std::uint32_t interval() { return span_ == 0 ? 0 : 1 + below(span_); }

  Chance chance_;
  std::uint32_t span_ = 0;  // 0: never
  std::uint32_t untilInterrupt_ = 0;
  std::uint32_t untilPoll_ = 1;
};

class PctDirector final : public Director {
 public:
  PctDirector(std::uint64_t seed, int changes, std::uint64_t steps) : chance_(seed), nextLow_(firstHigh - 1) {
    for (int i = 0; i < changes; ++i) changesAt_.push_back(1 + chance_.any() % std::max<std::uint64_t>(steps, 1));
    std::ranges::sort(changesAt_, std::greater{});
  }

  Candidate pick(Scheduler& scheduler, TaskKey, std::uint32_t) override {
    if (running_ != nullptr && running_->state == TaskState::ready) {
      if (demote_ || scheduler.tookLong()) running_->priority = nextLow_--;
      addReady(*running_);
    }
    demote_ = interrupt_ = false;
    running_ = nullptr;
    auto const& polls = scheduler.polling();
    Candidate best;
    std::uint64_t highest = ready_.empty() ? 0 : ready_.front()->priority;
    for (std::size_t i = 0; i < polls.size(); ++i) {
      if (polls[i]->priority > highest && waits(scheduler, *polls[i])) {
        highest = polls[i]->priority;
        best = {polling, i};
      }
    }
    bool const anybody = best.queue != none || !ready_.empty();
    if (!anybody || scheduler.tookLong() || --untilTurn_ == 0) {
      // Whoever asks without waiting gets its turn whatever its priority, and keeps nobody from running; so does
      // whoever waits once a thread has gone on for long, which may be a loop that waits for it.
      untilTurn_ = 1 + chance_.below(2 * turnsBetweenPolls);
      auto const found = std::ranges::find_if(polls, [&](Task const* p) { return scheduler.worthALook(*p); });
      if (found != polls.end()) best = {polling, static_cast<std::size_t>(found - polls.begin())};
    }
    if (best.queue == polling) {
      running_ = polls[best.index];
    } else if (!ready_.empty()) {
      std::ranges::pop_heap(ready_, {}, &Task::priority);
      running_ = ready_.back();
      ready_.pop_back();
      auto const& all = scheduler.ready();
      best = {ready, static_cast<std::size_t>(std::ranges::find(all, running_) - all.begin())};
    }
    return best;
  }

  bool goesOn(Scheduler& scheduler, Task& task, Access const& access) override {
    ++steps_;
    while (!changesAt_.empty() && changesAt_.back() <= steps_) {
      changesAt_.pop_back();
      demote_ = true;
    }
    if (wrote_ && !interrupt_) {
      // A write may have ended a more important wait. With many waits, this is looked into at some of the writes only.
      auto const& polls = scheduler.polling();
      if (untilLook_-- == 0) {
        untilLook_ = polls.size() / 16;
        interrupt_ = std::ranges::any_of(
            polls, [&](Task const* p) { return p->priority > task.priority && waits(scheduler, *p); });
      }
    }
    wrote_ = access.writes();
    return !demote_ && !interrupt_;
  }

  std::uint32_t choose(Task&, ChoiceKind kind, std::uint32_t options) override { return chance_.choose(kind, options); }

  void woken(Task& task, ParkReason) override {
    if (task.priority == 0) task.priority = firstHigh + (chance_.any() >> 2);
    addReady(task);
    if (running_ != nullptr && task.priority > running_->priority) interrupt_ = true;
  }
  void stopped(Task& task) override {
    if (task.state == TaskState::done) running_ = nullptr;
  }

 private:
  static constexpr std::uint64_t firstHigh = std::uint64_t{1} << 62;

  static bool waits(Scheduler const& scheduler, Task const& task) {
    return task.evaluatedAt != 0 && scheduler.worthALook(task);
  }

  void addReady(Task& task) {
    ready_.push_back(&task);
    std::ranges::push_heap(ready_, {}, &Task::priority);
  }

  Chance chance_;
  std::vector<Task*> ready_;              // all that are, but for the one that runs: a heap by priority
  std::vector<std::uint64_t> changesAt_;  // the next one last
  std::uint64_t steps_ = 0;
  std::uint64_t nextLow_;
  Task* running_ = nullptr;
  bool demote_ = false;
  bool interrupt_ = false;
  bool wrote_ = false;
  std::size_t untilLook_ = 0;
  std::uint32_t untilTurn_ = 1;
};

class ReplayDirector final : public Director {
 public:
  explicit ReplayDirector(Schedule const& schedule) {
    for (auto const& d : schedule) {
      if (d.fault != FaultKind::none) continue;  // the machine's to carry out
      (d.isValue ? values_ : switches_).insert_or_assign({d.task, d.point}, d.choice);
    }
  }

  Candidate pick(Scheduler& scheduler, TaskKey last, std::uint32_t point) override {
    if (auto const it = switches_.find({last, point}); it != switches_.end()) {
      for (auto const queue : {ready, polling}) {
        auto const& tasks = queue == ready ? scheduler.ready() : scheduler.polling();
        auto const found = std::ranges::find(tasks, it->second, &Task::name);
        if (found != tasks.end()) return {queue, static_cast<std::size_t>(found - tasks.begin())};
      }
      // Whoever is interrupted gives way to somebody, also when another decision has been left out.
      if (scheduler.lastCanGoOn() && scheduler.ready().size() > 1) return {ready, 0};
    }
    return scheduler.undisturbed();
  }

  bool goesOn(Scheduler&, Task& task, Access const&) override {
    return switches_.empty() || !switches_.contains({task.name, task.points});
  }

  std::uint32_t choose(Task& task, ChoiceKind, std::uint32_t options) override {
    auto const it = values_.find({task.name, task.points});
    return it == values_.end() || it->second >= options ? 0 : static_cast<std::uint32_t>(it->second);
  }

 private:
  struct Place {
    TaskKey task;
    std::uint32_t point;
    bool operator==(Place const&) const = default;
  };
  struct Hash {
    std::size_t operator()(Place const& place) const {
      return static_cast<std::size_t>((place.task * 0x9e3779b97f4a7c15u ^ place.point) * 0x9e3779b97f4a7c15u >> 16);
    }
  };
  std::unordered_map<Place, std::uint64_t, Hash> switches_, values_;
};

}  // namespace

std::unique_ptr<Director> randomDirector(std::uint64_t seed, double preemption) {
  return std::make_unique<RandomDirector>(seed, preemption);
}

std::unique_ptr<Director> pctDirector(std::uint64_t seed, int changes, std::uint64_t steps) {
  return std::make_unique<PctDirector>(seed, changes, steps);
}

std::unique_ptr<Director> replayDirector(Schedule const& schedule) {
  return std::make_unique<ReplayDirector>(schedule);
}

}  // namespace mscclpp::sim
