// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The clocks of a timed run: what each access costs its thread, when its store is seen, and who runs next, which is
// always the task whose clock is furthest behind.
//
// Bytes take their turn at a multiprocessor, a memory or a link in the order in which tasks come, which is that of
// their clocks up to `slack`. A condition in memory is looked at again once one of the words that it has read is
// written, at the moment at which the write is seen. Only the scheduler and the machine call in.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <queue>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mscclpp/sim/timing.hpp"
#include "sim/memory/access.hpp"
#include "sim/task/task_time.hpp"

namespace mscclpp::sim {

class GpuThread;
class Heap;
class Task;

class VirtualTime {
 public:
  // Of the run in progress, for the compiler's hooks; null where none is timed.
  static inline VirtualTime* running = nullptr;

  // `devicesPerNode`: 0: all.
  VirtualTime(TimingModel const& model, Heap const& heap, int devices, int devicesPerNode);
  ~VirtualTime() { running = nullptr; }
  VirtualTime(VirtualTime const&) = delete;
  VirtualTime& operator=(VirtualTime const&) = delete;

  Picoseconds now() const;                        // the running task's clock, or that of the last
  Picoseconds latest() const { return latest_; }  // that any clock has shown

  // ---- who runs
  void ready(Task& task);    // from now() on, or its own clock if that is later
  void giveWay(Task& task);  // to those that are further behind
  Task* next();              // null: nobody can go on by itself
  bool isLate(Task const& task) const;
  void begins(Task& task);
  void stops(Task const& task);
  std::vector<Task*> takeAll();  // that are ready or wait; somebody else runs them

  // ---- waits
  void beginLooks(Task& task);  // what it loads from now on is what its wait depends on
  void endLooks(Task& task);
  void sleep(Task& task);  // the condition was found false; called before the task is suspended
  void woken(Task& task);  // and afterwards
  void wake(Task& task, Picoseconds at);
  void wakeAll();    // anything may have changed
  void wakeHosts();  // work of a stream has ended, or a rank has done something

  // ---- what tasks do
  // An access, in two steps: first the thread's clock moves to where it begins. Then those that are further behind have
  // to run before it takes its turn at what it passes.
  void issue(GpuThread& thread, Access const& access);
  void access(GpuThread& thread, Access const& access);
  // Plain ones, of the running task.
  struct Plain {
    GpuThread* thread = nullptr;  // null: it takes no time
    int owner = 0;
    bool late = false;
  };
  Plain issuePlain(std::uintptr_t address, bool write);
  void plain(Plain const& issued, std::uintptr_t address, std::size_t bytes, bool write);
  // A bulk copy between the block's shared memory and `global`, which goes on by itself: when it has read its source,
  // and when it is done.
  std::pair<Picoseconds, Picoseconds> bulk(GpuThread& thread, void const* global, std::size_t bytes, bool write);
  // They wait for each other, until the latest one's clock.
  enum class Barrier : std::uint8_t { block, warp, cluster };
  void barrier(std::span<GpuThread* const> threads, Barrier what);
  // A copy engine of `device` copies to `dst` from then on. Returns when that has ended.
  Picoseconds copy(int device, void const* dst, std::size_t bytes, Picoseconds from);
  // For the time line: the first lane of the device that no kernel has at that time.
  static constexpr int mostLanes = 64;
  int takeLane(int device, Picoseconds begin);
  void giveBackLane(int device, int lane, Picoseconds end);
  // No task has written this, and it is seen then.
  void written(void const* address, std::size_t bytes, Picoseconds seen);

  TimingModel const& model() const { return model_; }
  static Picoseconds picoseconds(double nanoseconds) { return static_cast<Picoseconds>(nanoseconds * 1000); }

 private:
  static constexpr Picoseconds never = std::numeric_limits<Picoseconds>::max();

  // Serves one after the other. What comes from before the latest who came takes its turn behind what is left over
  // then.
  struct Server {
    Picoseconds latest = 0;
    Picoseconds backlog = 0;
    // Returns when it has served.
    Picoseconds take(Picoseconds at, Picoseconds time);
  };
  struct Device {
    std::vector<Server> multiprocessors;
    std::vector<Server> bulkEngines;  // one in each
    Server memory;
    Server out;
    Server in;
    Server networkOut;
    Server networkIn;
    std::vector<Picoseconds> lanes;  // since when each is free
  };
  struct Word {
    Picoseconds seen = 0;
    std::uint64_t by = 0;  // the task that has written it, which sees it at once
    std::uint64_t writes = 0;
    std::vector<Task*> watchers;
  };
  struct Entry {
    Picoseconds at;
    std::uint64_t order;
    Task* task;
    bool operator<(Entry const& other) const {  // the queue's top is the largest
      return at != other.at ? at > other.at : order > other.order;
    }
  };
  struct Page {
    std::uintptr_t number = 0;
    int owner = 0;
  };
  struct Way {
    Picoseconds round = 0;
    Picoseconds store = 0;
  };

  int ownerOf(std::uintptr_t address);
  Way wayTo(int owner, GpuThread const& thread) const;
  static Picoseconds cost(std::size_t bytes, double rate);
  // The bytes pass all that is on their way; returns when the last has.
  Picoseconds pass(GpuThread& thread, int owner, std::size_t bytes, bool write, bool again, bool bulk = false);
  void keepUp(TaskTime& time, Picoseconds passed) const;
  void load(GpuThread& thread, int owner, std::uintptr_t address, std::size_t bytes, bool again, bool ordered);
  void store(GpuThread& thread, int owner, std::uintptr_t address, std::size_t bytes, bool again, bool ordered);
  void note(std::uintptr_t address, std::size_t bytes, Picoseconds seen, std::uint64_t by);

  TimingModel model_;
  Heap const& heap_;
  int devicesPerNode_;
  std::vector<Device> devices_;
  std::unordered_map<std::uintptr_t, Word> words_;
  std::priority_queue<Entry> queue_;
  std::map<std::uint64_t, Task*> asleep_;  // by id: host code comes first
  std::uint64_t order_ = 0;
  std::uint64_t changes_ = 1;  // of what a condition may depend on
  Task* runner_ = nullptr;
  Picoseconds now_ = 0;
  Picoseconds latest_ = 0;
  std::array<Page, 1024> pages_{};
  std::uint64_t heapGeneration_ = 0;
  bool inside_ = false;  // a call from the hooks, what that calls may be instrumented itself
};

}  // namespace mscclpp::sim
