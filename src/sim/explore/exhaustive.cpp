// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/explore/exhaustive.hpp"

#include <algorithm>

#include "mscclpp/host/error.hpp"
#include "sim/machine/kernel.hpp"
#include "sim/schedule/scheduler.hpp"

namespace mscclpp::sim {
namespace {

using enum Candidate::Queue;

bool contains(std::vector<std::uint32_t> const& list, std::uint32_t value) {
  return std::ranges::find(list, value) != list.end();
}

void const* streamOf(Task const& task) {
  return task.isGpuThread() ? &static_cast<GpuThread const&>(task).block->kernel().stream() : nullptr;
}

}  // namespace

void ExhaustiveSearch::Before::set(TaskIndex task, std::uint32_t nodes) {
  if (task >= upTo_.size()) upTo_.resize(task + 1, 0);
  upTo_[task] = nodes;
}

void ExhaustiveSearch::Before::join(Before const& other) {
  if (other.upTo_.size() > upTo_.size()) upTo_.resize(other.upTo_.size(), 0);
  for (std::size_t i = 0; i < other.upTo_.size(); ++i) upTo_[i] = std::max(upTo_[i], other.upTo_[i]);
}

bool ExhaustiveSearch::Node::isEnabled(TaskIndex t) const {
  return std::ranges::any_of(enabled, [t](auto const& e) { return e.first == t; });
}

bool ExhaustiveSearch::dependent(Effect const& a, Effect const& b) {
  if (a.sequential && b.sequential) return true;
  if (!a.memory || !b.memory || !(a.write || b.write)) return false;
  if (a.manyWords || b.manyWords) return a.lineWarp == 0 || a.lineWarp != b.lineWarp;
  return a.word == b.word;
}

ExhaustiveSearch::TaskIndex ExhaustiveSearch::indexOf(TaskKey key) {
  auto const index = indices_.try_emplace(key, static_cast<TaskIndex>(indices_.size())).first->second;
  if (index >= known_.size()) known_.resize(index + 1);
  return index;
}

std::uint32_t ExhaustiveSearch::wordOf(std::uintptr_t address) {
  return words_.try_emplace(address / 8, static_cast<std::uint32_t>(words_.size())).first->second;
}

ExhaustiveSearch::Effect ExhaustiveSearch::effectOf(Task const& task, Access const& access) {
  Effect effect;
  effect.sequential = access.order == Order::sequential;
  if (access.kind == AccessKind::fence || access.address == 0) return effect;
  effect.memory = true;
  effect.write = access.writes();
  effect.word = wordOf(access.address);
  effect.manyWords = access.bytes > 8;
  if (access.line) {
    auto const& thread = static_cast<GpuThread const&>(task);
    auto const& context = thread.context;
    effect.lineWarp = keyOfThread({context.device, thread.block->kernel().number(), context.block, context.warp});
  }
  return effect;
}

void ExhaustiveSearch::beginRun() {
  depth_ = 0;
  lastStep_ = nobody;
  words_.clear();
  known_.assign(indices_.size(), {});
  streams_.clear();
  wakings_.clear();
  running_ = nobody;
  slices_.clear();
  lookedAt_.clear();
  askedAt_.clear();
}

// ---- what happens before what, beyond dependent steps
// ----------------------------------------------------------------

void ExhaustiveSearch::woken(Task& task, ParkReason reason) {
  wakings_.push_back({indexOf(task.name), reason, streamOf(task)});
}

void ExhaustiveSearch::stopped(Task& task) {
  lookedInVain_ = task.state == TaskState::polling && task.evaluatedAt != 0;
  runningGoesOn_ = task.state != TaskState::done;
  if (task.isGpuThread() && !runningGoesOn_) streams_[streamOf(task)].join(known_[running_]);
}

void ExhaustiveSearch::endSlice() {
  if (running_ == nobody) return;
  if (isLook_ && lookedInVain_) known_[running_] = knownBeforeLook_;
  if (!isLook_ || !lookedInVain_) slices_.push_back(running_);
  if (!runningIsGpuThread_ && runningGoesOn_) lookedAt_[running_] = slices_.size();
  // Those who met know what all of them did; who was only let go, or begins, what led to that.
  Before met = known_[running_];
  for (auto const& w : wakings_) {
    if (w.reason != ParkReason::none && w.reason != ParkReason::previousKernel) met.join(known_[w.task]);
  }
  for (auto const& w : wakings_) {
    if (w.reason != ParkReason::none && w.reason != ParkReason::previousKernel) {
      known_[w.task] = met;
    } else {
      known_[w.task].join(known_[running_]);
      if (auto const it = streams_.find(w.stream); it != streams_.end()) known_[w.task].join(it->second);
    }
  }
  if (runningGoesOn_) known_[running_] = met;
  wakings_.clear();
  running_ = nobody;
}

void ExhaustiveSearch::beginSlice(Task& task, bool isLook) {
  running_ = indexOf(task.name);
  runningIsGpuThread_ = task.isGpuThread();
  isLook_ = isLook && !runningIsGpuThread_ && task.evaluatedAt != 0;
  if (!isLook_) return;
  // If the condition has come true, then by what ran since it was last found false.
  knownBeforeLook_ = known_[running_];
  for (auto i = lookedAt_[running_]; i < slices_.size(); ++i) known_[running_].join(known_[slices_[i]]);
}

// ---- decisions
// -------------------------------------------------------------------------------------------------------

bool ExhaustiveSearch::goesOn(Scheduler&, Task& task, Access const& access) {
  return !effectOf(task, access).visible();
}

std::uint32_t ExhaustiveSearch::choose(Task&, ChoiceKind, std::uint32_t options) {
  if (depth_ == path_.size()) {
    Node node;
    node.options = options;
    path_.push_back(std::move(node));
  }
  auto const& node = path_[depth_++];
  if (node.options == options) return node.option;
  diverged_ = true;  // thrown by the next pick; here it would be the kernel's own exception
  return 0;
}

Candidate ExhaustiveSearch::pick(Scheduler& scheduler, TaskKey, std::uint32_t) {
  endSlice();
  auto const& tasks = scheduler.ready();
  std::vector<Task*> atAccess;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i]->atAccess) {
      atAccess.push_back(tasks[i]);
      continue;
    }
    beginSlice(*tasks[i], false);
    return {ready, i};
  }
  auto const& polls = scheduler.polling();
  for (std::size_t i = 0; i < polls.size(); ++i) {
    auto& task = *polls[i];
    if (!scheduler.worthALook(task)) continue;
    if (scheduler.lookedTooEarly(task)) {
      leaveLookOut(indexOf(task.name));
      scheduler.cut(Cut::wasSeen);
      return {};
    }
    if (!task.isGpuThread() && task.evaluatedAt == 0) {
      // Host code that asks without waiting asks again only after a step, while there are any.
      auto const [it, first] = askedAt_.try_emplace(indexOf(task.name), depth_);
      if (!first && it->second == depth_ && !atAccess.empty()) continue;
      it->second = depth_;
    }
    beginSlice(task, true);
    return {polling, i};
  }
  if (atAccess.empty()) return {};
  auto const chosen = decide(scheduler, atAccess);
  if (chosen == nobody) return {};
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (indexOf(tasks[i]->name) != chosen) continue;
    beginSlice(*tasks[i], false);
    return {ready, i};
  }
  return {};
}

bool ExhaustiveSearch::affordable(Node const& node, TaskIndex task) const {
  if (bound_ < 0) return true;
  bool const preempts = node.previous != task && node.isEnabled(node.previous);
  return node.preemptions + (preempts ? 1 : 0) <= bound_;
}

ExhaustiveSearch::TaskIndex ExhaustiveSearch::decide(Scheduler& scheduler, std::vector<Task*> const& atAccess) {
  bool const isNew = depth_ == path_.size();
  if (isNew) {
    Node node;
    for (auto const* task : atAccess) node.enabled.emplace_back(indexOf(task->name), effectOf(*task, task->pending));
    if (lastStep_ != nobody) {
      auto const& last = path_[lastStepNode_];
      for (auto const& [task, effect] : last.asleep) {
        if (!dependent(effect, last.effect)) node.asleep.emplace(task, effect);
      }
      node.previous = last.task;
      bool const preempted = last.previous != nobody && last.previous != last.task && last.isEnabled(last.previous);
      node.preemptions = last.preemptions + (preempted ? 1 : 0);
    }
    auto const awake = [&node](TaskIndex t) { return !node.asleep.contains(t); };
    if (node.isEnabled(node.previous) && awake(node.previous)) {
      node.task = node.previous;
    } else {
      for (auto const& [task, effect] : node.enabled) {
        if (!awake(task) || !affordable(node, task)) continue;
        node.task = task;
        break;
      }
    }
    if (node.task == nobody) {
      scheduler.cut(Cut::wasSeen);
      return nobody;
    }
    node.backtrack.push_back(node.task);
    path_.push_back(std::move(node));
  }
  auto& node = path_[std::min(depth_, path_.size() - 1)];
  auto const it = std::ranges::find_if(node.enabled, [&](auto const& e) { return e.first == node.task; });
  if (diverged_ || it == node.enabled.end() || node.options != 0 || atAccess.size() != node.enabled.size()) {
    throw Error(ErrorCode::invalidUsage,
                "exhaustive search: the program does not behave alike when it is run again with the same schedule; "
                "host code must not depend on time, addresses or what earlier schedules left behind");
  }
  node.effect = it->second;
  take(node, depth_ >= firstNew_);
  return node.task;
}

// The step of path_[depth_] is about to happen.
void ExhaustiveSearch::take(Node& node, bool isNew) {
  auto const now = depth_++;
  if (isNew) {
    node.before = known_[node.task];
    std::vector<std::size_t> races;
    for (auto i = now; i-- > 0;) {
      auto const& earlier = path_[i];
      if (earlier.options != 0 || node.before.of(earlier.task) > i || !dependent(earlier.effect, node.effect)) continue;
      races.push_back(i);
      node.before.join(earlier.before);
    }
    node.before.set(node.task, static_cast<std::uint32_t>(now + 1));
    for (auto const i : races) {
      backtrackTo(path_[i], i, now);
      if (bound_ < 0) continue;
      auto first = i;  // of the steps in which that task ran without a break
      while (path_[first].options != 0 || path_[first].previous == path_[i].task) --first;
      if (first != i) backtrackTo(path_[first], first, now);
    }
  }
  known_[node.task] = node.before;
  lastStep_ = node.task;
  lastStepNode_ = now;
}

void ExhaustiveSearch::addBacktrack(Node& node, TaskIndex task) {
  if (!contains(node.backtrack, task)) node.backtrack.push_back(task);
}

// Lets the step of node `now` come before that of `race`.
void ExhaustiveSearch::backtrackTo(Node& node, std::size_t race, std::size_t now) {
  auto const& later = path_[now];
  auto const allEnabled = [&node] {
    for (auto const& [task, effect] : node.enabled) addBacktrack(node, task);
  };
  if (bound_ >= 0) {
    if (!node.isEnabled(later.task)) return allEnabled();
    return addBacktrack(node, later.task);
  }
  // Steps that do not need the one of `race`: whoever can begin them is one to run from here.
  std::vector<std::size_t> steps;
  for (auto i = race + 1; i < now; ++i) {
    if (path_[i].options == 0 && path_[i].before.of(node.task) <= race) steps.push_back(i);
  }
  steps.push_back(now);
  std::vector<TaskIndex> initials, seen;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    auto const& step = path_[steps[s]];
    if (contains(seen, step.task)) continue;
    seen.push_back(step.task);
    bool const free = std::none_of(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(s),
                                   [&](std::size_t k) { return step.before.of(path_[k].task) > k; });
    if (free) initials.push_back(step.task);
  }
  if (std::ranges::any_of(initials, [&](TaskIndex t) { return contains(node.backtrack, t); })) return;
  auto const choice = contains(initials, later.task) ? later.task : initials.front();
  if (!node.isEnabled(choice)) return allEnabled();
  addBacktrack(node, choice);
}

// The latest step was a write to what the task has looked at in vain. All else would be the same if it had not looked,
// so this run ends. What comes after it, and the races there, are to be seen where somebody else goes first: instead of
// the look, and, as the write may never come, instead of the write.
void ExhaustiveSearch::leaveLookOut(TaskIndex task) {
  if (lastStep_ == nobody) return;
  auto& write = path_[lastStepNode_];
  letOtherGoFirst(write);
  for (auto i = lastStepNode_; i-- > 0;) {
    auto& look = path_[i];
    if (look.options == 0 && look.task == task && dependent(look.effect, write.effect)) return letOtherGoFirst(look);
  }
}

void ExhaustiveSearch::letOtherGoFirst(Node& node) {
  auto const isRun = [&node](TaskIndex t) {
    return t != node.task && (contains(node.done, t) || !node.asleep.contains(t));
  };
  if (std::ranges::any_of(node.backtrack, isRun)) return;
  auto const other = std::ranges::find_if(node.enabled, [&](auto const& e) { return isRun(e.first); });
  if (other != node.enabled.end()) addBacktrack(node, other->first);
}

bool ExhaustiveSearch::next() {
  path_.resize(std::min(path_.size(), depth_));
  while (!path_.empty()) {
    auto& node = path_.back();
    if (node.options != 0) {
      if (++node.option < node.options) {
        firstNew_ = path_.size();
        return true;
      }
    } else {
      node.done.push_back(node.task);
      if (bound_ < 0) node.asleep.emplace(node.task, node.effect);
      auto const it = std::ranges::find_if(node.backtrack, [&](TaskIndex t) {
        return !contains(node.done, t) && !node.asleep.contains(t) && affordable(node, t);
      });
      if (it != node.backtrack.end()) {
        node.task = *it;
        firstNew_ = path_.size() - 1;
        return true;
      }
    }
    path_.pop_back();
  }
  return false;
}

}  // namespace mscclpp::sim
