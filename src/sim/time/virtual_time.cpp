// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/time/virtual_time.hpp"

#include <algorithm>
#include <cmath>

#include "sim/memory/heap.hpp"
#include "sim/task/gpu_thread.hpp"

namespace mscclpp::sim {
namespace {

// How far a task may run ahead of the others between two accesses. Less costs more switches.
constexpr Picoseconds slack = 20'000;
constexpr Picoseconds askAgain = 1'000'000;  // of host code that waits in a loop of its own
constexpr std::uintptr_t pageBytes = 4096;
constexpr int nobody = -2;  // owner of what is no memory of the machine, such as a block's shared memory

std::uintptr_t wordOf(std::uintptr_t address) { return address & ~std::uintptr_t{7}; }

}  // namespace

VirtualTime::VirtualTime(TimingModel const& model, Heap const& heap, int devices, int devicesPerNode)
    : model_(model), heap_(heap), devicesPerNode_(devicesPerNode) {
  devices_.resize(static_cast<std::size_t>(devices));
  for (auto& device : devices_) {
    device.multiprocessors.resize(static_cast<std::size_t>(model.multiprocessors));
    device.bulkEngines.resize(static_cast<std::size_t>(model.multiprocessors));
  }
  running = this;
}

// ---- who runs
// --------------------------------------------------------------------------------------------------------

Picoseconds VirtualTime::now() const { return runner_ == nullptr ? now_ : runner_->time.now; }

void VirtualTime::ready(Task& task) {
  task.time.now = std::max(task.time.now, now());
  giveWay(task);
}

void VirtualTime::giveWay(Task& task) { queue_.push({task.time.now, ++order_, &task}); }

void VirtualTime::wake(Task& task, Picoseconds at) {
  if (asleep_.erase(task.id) == 0) return;
  task.time.now = std::max(task.time.now, at);
  giveWay(task);
}

Task* VirtualTime::next() {
  if (queue_.empty()) {
    // What a condition depends on need not be known.
    for (auto it = asleep_.begin(); it != asleep_.end();) {
      auto* const task = (it++)->second;
      if (task->time.looked != changes_) wake(*task, now_);
    }
  }
  if (queue_.empty()) return nullptr;
  auto* const task = queue_.top().task;
  queue_.pop();
  return task;
}

bool VirtualTime::isLate(Task const& task) const { return !queue_.empty() && queue_.top().at + slack < task.time.now; }

void VirtualTime::begins(Task& task) {
  runner_ = &task;
  task.time.looked = changes_;
}

void VirtualTime::stops(Task const& task) {
  now_ = task.time.now;
  latest_ = std::max(latest_, now_);
  runner_ = nullptr;
  // Other ranks may wait for what this one has done, if it did more than ask for the same again.
  if (!task.isGpuThread() && (task.state != TaskState::polling || task.evaluatedAt == 0)) wakeHosts();
}

std::vector<Task*> VirtualTime::takeAll() {
  std::vector<Task*> tasks;
  for (auto const& [id, task] : asleep_) tasks.push_back(task);
  for (; !queue_.empty(); queue_.pop()) tasks.push_back(queue_.top().task);
  asleep_.clear();
  return tasks;
}

// ---- waits
// -----------------------------------------------------------------------------------------------------------

void VirtualTime::beginLooks(Task& task) {
  task.time.looking = true;
  task.time.looks.clear();
}

void VirtualTime::endLooks(Task& task) {
  task.time.looking = false;
  task.time.now = std::max(task.time.now, task.time.loaded);
}

void VirtualTime::sleep(Task& task) {
  auto& time = task.time;
  time.now = std::max(time.now, time.loaded);
  if (!task.isGpuThread() && task.hostWait == nullptr) {  // it asks by itself, again and again
    time.now += askAgain;
    return giveWay(task);
  }
  asleep_.emplace(task.id, &task);
  auto soonest = never;
  for (auto const& [address, writes] : time.looks) {
    auto& word = words_[address];
    if (word.writes != writes) soonest = std::min(soonest, word.seen);
    word.watchers.push_back(&task);
  }
  if (soonest != never) wake(task, soonest);
}

void VirtualTime::woken(Task& task) {
  for (auto const& [address, writes] : task.time.looks) {
    auto& watchers = words_[address].watchers;
    *std::ranges::find(watchers, &task) = watchers.back();
    watchers.pop_back();
  }
  task.time.looks.clear();
}

void VirtualTime::wakeAll() {
  ++changes_;
  while (!asleep_.empty()) wake(*asleep_.begin()->second, now());
}

void VirtualTime::wakeHosts() {
  ++changes_;
  while (!asleep_.empty() && !asleep_.begin()->second->isGpuThread()) wake(*asleep_.begin()->second, now());
}

// ---- what tasks do
// ---------------------------------------------------------------------------------------------------

int VirtualTime::ownerOf(std::uintptr_t address) {
  if (auto const generation = heap_.generation(); heapGeneration_ != generation) {
    heapGeneration_ = generation;
    pages_ = {};
  }
  auto const number = address / pageBytes;
  auto& page = pages_[number % pages_.size()];
  if (page.number != number) page = {number, heap_.ownerOf(address)};
  return page.owner;
}

VirtualTime::Way VirtualTime::wayTo(int owner, GpuThread const& thread) const {
  auto const way = [](double round, double store) { return Way{picoseconds(round), picoseconds(store)}; };
  bool const host = thread.ofHost;
  if (host && owner < 0) return {};
  if (host || owner == hostMemory) return way(model_.hostRound, model_.hostStore);
  if (owner == thread.context.device) return way(model_.nearRound, model_.nearStore);
  if (owner >= 0) return way(model_.farRound, model_.farStore);
  return way(model_.sharedRound, model_.sharedRound);
}

Picoseconds VirtualTime::cost(std::size_t bytes, double rate) {
  return static_cast<Picoseconds>(std::llround(static_cast<double>(bytes) * 1000 / rate));
}

Picoseconds VirtualTime::Server::take(Picoseconds at, Picoseconds time) {
  if (at > latest) {
    backlog -= std::min(backlog, at - latest);
    latest = at;
  }
  backlog += time;
  return at + backlog;
}

Picoseconds VirtualTime::pass(GpuThread& thread, int owner, std::size_t bytes, bool write, bool again, bool bulk) {
  auto const now = thread.time.now;
  if (thread.ofHost) return now;
  auto& own = devices_[static_cast<std::size_t>(thread.context.device)];
  auto& engines = bulk ? own.bulkEngines : own.multiprocessors;
  auto passed = now;
  auto const rate = write ? model_.multiprocessorStoreRate : model_.multiprocessorLoadRate;
  if (!again) passed = engines[thread.context.block % engines.size()].take(now, cost(bytes, rate));
  if (owner < 0) return passed;
  auto& other = devices_[static_cast<std::size_t>(owner)];
  if (&other != &own) {
    auto const time = cost(bytes, write ? model_.storeRate : model_.loadRate);
    // Through the switch, what goes to all leaves once, and what comes from all arrives once.
    if (!again || !write) passed = std::max(passed, (write ? own.out : other.out).take(now, time));
    if (!again || write) passed = std::max(passed, (write ? other.in : own.in).take(now, time));
  }
  return std::max(passed, other.memory.take(now, cost(bytes, model_.memoryRate)));
}

void VirtualTime::keepUp(TaskTime& time, Picoseconds passed) const {
  auto const inFlight = picoseconds(model_.inFlight);
  if (passed > time.now + inFlight) time.now = passed - inFlight;
}

void VirtualTime::load(GpuThread& thread, int owner, std::uintptr_t address, std::size_t bytes, bool again,
                       bool ordered) {
  auto& time = thread.time;
  auto at = pass(thread, owner, bytes, false, again);
  keepUp(time, at);
  if (ordered) {
    for (auto place = wordOf(address); place < address + bytes; place += 8) {
      auto const word = words_.find(place);
      bool const known = word != words_.end();
      if (known && word->second.by != thread.id) at = std::max(at, word->second.seen);
      if (time.looking) time.looks.emplace_back(place, known ? word->second.writes : 0);
    }
  }
  time.loaded = std::max(time.loaded, at + wayTo(owner, thread).round);
}

void VirtualTime::store(GpuThread& thread, int owner, std::uintptr_t address, std::size_t bytes, bool again,
                        bool ordered) {
  auto& time = thread.time;
  auto const way = wayTo(owner, thread);
  auto const done = pass(thread, owner, bytes, true, again);
  keepUp(time, done);
  time.stored = std::max(time.stored, done + way.round);
  if (ordered) note(address, bytes, done + way.store, thread.id);
}

void VirtualTime::note(std::uintptr_t address, std::size_t bytes, Picoseconds seen, std::uint64_t by) {
  ++changes_;
  for (auto place = wordOf(address); place < address + bytes; place += 8) {
    auto& word = words_[place];
    if (seen >= word.seen) {
      word.seen = seen;
      word.by = by;
    }
    ++word.writes;
    for (auto* const watcher : word.watchers) wake(*watcher, seen);
  }
}

void VirtualTime::written(void const* address, std::size_t bytes, Picoseconds seen) {
  note(reinterpret_cast<std::uintptr_t>(address), bytes, seen, 0);
}

void VirtualTime::issue(GpuThread& thread, Access const& access) {
  auto& time = thread.time;
  bool const fence = access.kind == AccessKind::fence;
  if (access.again || (access.address == 0 && !fence)) return;  // a barrier
  bool const wide = access.scope == Scope::device || access.scope == Scope::system;
  if (!fence) time.now += picoseconds(model_.issue + model_.arithmetic);
  if (fence || access.writes()) time.now = std::max(time.now, time.loaded);
  if ((fence || (access.writes() && releases(access.order))) && wide) {
    auto const least = access.scope == Scope::system ? model_.fence : model_.deviceFence;
    time.now = std::max(time.now + picoseconds(least), time.stored);
  }
}

void VirtualTime::access(GpuThread& thread, Access const& access) {
  if (access.kind == AccessKind::fence || access.address == 0) return;
  auto& time = thread.time;
  auto const owner = ownerOf(access.address);
  if (access.writes()) {
    store(thread, owner, access.address, access.bytes, access.again, true);
    if (access.kind == AccessKind::update) time.loaded = std::max(time.loaded, time.stored);
  } else {
    load(thread, owner, access.address, access.bytes, access.again, true);
  }
  if (acquires(access.order)) time.now = std::max(time.now, time.loaded);
}

VirtualTime::Plain VirtualTime::issuePlain(std::uintptr_t address, bool write) {
  if (inside_ || runner_ == nullptr || !runner_->isGpuThread() || runner_->cancelled) return {};
  if (runner_->time.looking) return {};  // what a wait would say of itself; its condition reads by ordered loads
  inside_ = true;
  Plain result;
  auto& thread = static_cast<GpuThread&>(*runner_);
  auto const owner = ownerOf(address);
  if (owner > nobody && !thread.ofHost) {
    auto& time = thread.time;
    // What an instruction could do at once takes no second one.
    auto const chunk = address / 16;
    if (chunk != time.chunk || write != time.chunkWritten) time.now += picoseconds(model_.issue + model_.arithmetic);
    time.chunk = chunk;
    time.chunkWritten = write;
    if (write) time.now = std::max(time.now, time.loaded);
    result = {&thread, owner, isLate(thread)};
  }
  inside_ = false;
  return result;
}

void VirtualTime::plain(Plain const& issued, std::uintptr_t address, std::size_t bytes, bool write) {
  inside_ = true;
  if (write) {
    store(*issued.thread, issued.owner, address, bytes, false, false);
  } else {
    load(*issued.thread, issued.owner, address, bytes, false, false);
  }
  inside_ = false;
}

std::pair<Picoseconds, Picoseconds> VirtualTime::bulk(GpuThread& thread, void const* global, std::size_t bytes,
                                                      bool write) {
  thread.time.now += picoseconds(model_.issue);
  auto const owner = ownerOf(reinterpret_cast<std::uintptr_t>(global));
  auto const passed = pass(thread, owner, bytes, write, false, true);
  return {passed, passed + wayTo(owner, thread).round};
}

void VirtualTime::barrier(std::span<GpuThread* const> threads, Barrier what) {
  Picoseconds last = 0;
  Picoseconds stored = 0;
  for (auto const* thread : threads) {
    last = std::max({last, thread->time.now, thread->time.loaded});
    stored = std::max(stored, thread->time.stored);
  }
  last += picoseconds(what == Barrier::warp ? model_.warp : what == Barrier::block ? model_.barrier : model_.cluster);
  for (auto* thread : threads) {
    thread->time.now = last;
    thread->time.stored = stored;
  }
}

Picoseconds VirtualTime::copy(int device, void const* dst, std::size_t bytes, Picoseconds from) {
  auto const to = ownerOf(reinterpret_cast<std::uintptr_t>(dst));
  bool const network = to >= 0 && devicesPerNode_ != 0 && to / devicesPerNode_ != device / devicesPerNode_;
  auto const begin = from + picoseconds(network ? model_.networkStart : model_.copyStart);
  auto const time = cost(bytes, network ? model_.networkRate : model_.copyRate);
  if (to < 0) return begin + time;
  auto& sender = devices_[static_cast<std::size_t>(device)];
  auto& receiver = devices_[static_cast<std::size_t>(to)];
  if (to == device) return sender.memory.take(begin, 2 * cost(bytes, model_.memoryRate));
  return std::max((network ? sender.networkOut : sender.out).take(begin, time),
                  (network ? receiver.networkIn : receiver.in).take(begin, time));
}

int VirtualTime::takeLane(int device, Picoseconds begin) {
  auto& lanes = devices_[static_cast<std::size_t>(device)].lanes;
  auto const isFree = [begin](Picoseconds since) { return since <= begin; };
  auto const found = std::ranges::find_if(lanes, isFree);
  auto const lane = static_cast<int>(found - lanes.begin());
  if (lane == mostLanes) return mostLanes - 1;
  if (found == lanes.end()) lanes.push_back(0);
  lanes[static_cast<std::size_t>(lane)] = never;
  return lane;
}

void VirtualTime::giveBackLane(int device, int lane, Picoseconds end) {
  devices_[static_cast<std::size_t>(device)].lanes[static_cast<std::size_t>(lane)] = end;
}

}  // namespace mscclpp::sim
