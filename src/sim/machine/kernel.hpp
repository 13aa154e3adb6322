// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A launched kernel: its blocks, their warps and barriers, its threads.
//
// Only the host thread that drives the scheduler touches these. Blocks are made when the device has room for them and
// destroyed when their last thread has ended.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mscclpp/base/order.hpp"
#include "mscclpp/layout/launch_shape.hpp"
#include "mscclpp/sim/backend/thread_context.hpp"
#include "sim/memory/clock.hpp"
#include "sim/task/gpu_thread.hpp"

namespace mscclpp::sim {

inline constexpr unsigned lanesPerWarp = 32;
inline constexpr unsigned maxBlockThreads = 1024;
inline constexpr unsigned namedBarriers = 16;  // number 0 is the whole block's

class BulkCopies;
class Kernel;
class Machine;
class Stream;
class VirtualTime;

// One lane's part in something that lanes of a warp do together; lives on the lane's stack.
enum class WarpOperation : std::uint8_t { sync, shuffle, ballot, storeLines, loadLines };

struct WarpRequest {
  WarpOperation operation = WarpOperation::sync;
  bool predicate = false;      // ballot; or whether the lane's line access is active
  unsigned lane = 0;           // shuffle: whose value
  unsigned result = 0;         // ballot
  void const* in = nullptr;    // shuffle
  void* out = nullptr;         // shuffle
  std::size_t bytes = 0;       // shuffle
  Words4* address = nullptr;   // lines
  Words4 words{};              // lines: value to store, value loaded
  void const* code = nullptr;  // lines: where the access stands
};

class Block {
 public:
  Block(Kernel& kernel, unsigned index);
  ~Block();

  Kernel& kernel() { return kernel_; }
  unsigned index() const { return index_; }
  unsigned live() const { return live_; }
  GpuThread& thread(unsigned i) { return threads_[i]; }

  // Called by the running thread; they return once the others have come.
  // How many threads came.
  unsigned barrier(GpuThread& self);
  unsigned barrier(GpuThread& self, unsigned id, unsigned threads);
  void rendezvous(GpuThread& self, WarpRequest& request, unsigned mask);
  void* shared(void const* key, std::size_t bytes, std::size_t alignment);
  bool holdsShared(void const* begin, std::size_t bytes) const;
  // Of this block's cluster the one that runs and holds all of that in its shared memory; null where none does.
  Block* ofClusterHolding(void const* begin, std::size_t bytes) const;
  // Where another block of the cluster has what shared() gave this one at `own`. Fails the kernel if it has none.
  void* sharedOfCluster(void* own, unsigned rank);
  std::size_t sharedOffset(void const* address) const { return static_cast<std::byte const*>(address) - sharedBase_; }
  std::size_t sharedUsed() const { return sharedUsed_; }
  std::byte* dynamicShared() { return dynamicShared_; }
  BulkCopies& bulkCopies();
  bool finishLateCopies();
  void allowNext();

  void threadEnded(GpuThread& thread);  // may destroy the block
  void cancel();
  unsigned barrierArrivals(unsigned id) const { return static_cast<unsigned>(barriers_[id].waiting.size()); }
  unsigned barrierThreads(unsigned id) const { return id == 0 ? live_ : barriers_[id].threads; }

 private:
  struct Barrier {
    unsigned threads = 0;  // as the first arrival said
    std::vector<GpuThread*> waiting;
    std::array<std::uint32_t, maxBlockThreads / lanesPerWarp> arrived{};  // lanes, by warp
    std::uint32_t members = 0;                                            // warps of the last phase
  };
  struct Rendezvous {
    unsigned mask = 0;
    unsigned arrived = 0;  // 0: free
    std::array<WarpRequest*, lanesPerWarp> requests{};
  };
  struct Warp {
    unsigned live = 0;
    std::vector<Rendezvous> pending;
  };

  bool complete(Barrier const& barrier) const;
  void release(Barrier& barrier, GpuThread const* except);
  // The observer learns that all of these have met.
  void tellBarrier(std::span<GpuThread* const> threads, char const* what);
  std::vector<GpuThread*> lanesOf(unsigned warp, unsigned mask);
  void passTime(VirtualTime& time, unsigned warp, Rendezvous const& rendezvous, unsigned arrived,
                WarpOperation operation);
  void accessLines(unsigned warp, Rendezvous& rendezvous, unsigned arrived, bool write);
  // Carries the operation out for all who came and wakes them; a text where they do not fit together.
  std::string finish(unsigned warp, Rendezvous& rendezvous, GpuThread const* except);

  Kernel& kernel_;
  unsigned index_;
  unsigned live_;
  bool allowed_ = false;
  std::unique_ptr<GpuThread[]> threads_;
  std::array<Barrier, namedBarriers> barriers_;
  std::vector<Warp> warps_;
  std::vector<Agent*> agents_;  // of an observed run
  std::byte* sharedBase_ = nullptr;
  std::size_t sharedUsed_ = 0;
  std::vector<std::pair<void const*, void*>> sharedSlots_;
  std::byte* dynamicShared_ = nullptr;
  std::unique_ptr<BulkCopies> bulkCopies_;
};

class Kernel {
 public:
  Kernel(Machine& machine, Stream& stream, LaunchShape const& shape, std::string name, std::function<void()> perThread);
  // A thread of the host that the scheduler runs like a kernel's: it takes no room on the device, and to the observer
  // it is none of its threads.
  ~Kernel();
  static std::shared_ptr<Kernel> ofHost(Machine& machine, Stream& stream, std::string name, std::function<void()> main);
  bool isHost() const { return isHost_; }

  Machine& machine() { return machine_; }
  Stream& stream() { return stream_; }
  LaunchShape const& shape() const { return shape_; }
  std::string const& name() const { return name_; }
  unsigned number() const { return number_; }  // among those launched on its device in a deterministic run
  void runThread() const { perThread_(); }

  // `previous` has not ended; null: nothing to wait for. `launch`: what the launching host code knew, and when.
  void start(std::shared_ptr<Kernel> previous, Clock const& launch, Picoseconds submitTime);
  bool started() const { return started_; }
  bool hasEnded() const { return started_ && blocksEnded_ == shape_.blocks; }
  // False once it has ended, also when it is gone: for those who must not keep it.
  std::shared_ptr<std::atomic<bool> const> running() const { return running_; }
  bool allowsNext() const { return started_ && blocksAllowing_ == shape_.blocks; }
  bool allBlocksStarted() const { return nextBlock_ == shape_.blocks; }
  void startBlock();  // the next one, its room is taken already

  // Clocks of an observed run: what the first threads know; what the end makes known.
  Clock const& startClock() const { return startClock_; }
  Clock const& endClock() const { return endClock_; }
  void noteBlockEnd(Clock const& clock) { endClock_.join(clock); }

  // Of a timed run: when its first threads may begin; when its end is known.
  Picoseconds startTime() const { return startTime_; }
  Picoseconds endTime() const { return endTime_; }
  int lane() const { return lane_; }     // of the time line
  void noteEnd(TaskTime const& thread);  // of one that has ended

  void waitForPrevious(GpuThread& self);
  void fail(std::string const& text);  // the first text is kept; all threads have to end
  void cancel();
  bool cancelled() const { return cancelled_; }
  std::string const& failure() const { return failure_; }

  // The blocks of a cluster start together. A thread returns once all those of its cluster that live have come.
  void clusterBarrier(GpuThread& self);
  // In two parts, which order no memory.
  void arriveAtCluster(GpuThread& self);
  void awaitCluster(GpuThread& self);
  void threadLeft(unsigned block);  // the kernel
  std::size_t clusterArrivals(unsigned block) const;
  std::size_t clusterThreads(unsigned block) const;

  void blockAllowed();
  void blockEnded(unsigned index);  // destroys it

  std::map<unsigned, std::unique_ptr<Block>> const& blocks() const { return blocks_; }
  unsigned firstWaitingBlock() const { return nextBlock_; }

 private:
  Machine& machine_;
  Stream& stream_;
  LaunchShape shape_;
  std::string name_;
  unsigned number_;
  void releaseCluster(unsigned block, GpuThread const* except);

  // Of a cluster's meeting in two parts, which orders no memory.
  struct Arrivals {
    std::size_t come = 0;
    Picoseconds time = 0;  // the latest's
    std::vector<GpuThread*> waiting;
  };
  void completeArrivals(unsigned block, Arrivals& arrivals);

  std::function<void()> perThread_;
  std::map<unsigned, std::unique_ptr<Block>> blocks_;  // that run
  unsigned nextBlock_ = 0;
  unsigned blocksEnded_ = 0;
  unsigned blocksAllowing_ = 0;
  std::shared_ptr<std::atomic<bool>> const running_ = std::make_shared<std::atomic<bool>>(true);
  bool started_ = false;
  bool cancelled_ = false;
  bool isHost_ = false;
  std::string failure_;
  Clock startClock_;
  Clock endClock_;
  Picoseconds startTime_ = 0;
  Picoseconds endTime_ = 0;     // until that is known, of the threads that have ended
  Picoseconds storedTime_ = 0;  // likewise
  int lane_ = 0;
  std::shared_ptr<Kernel> previous_;
  std::vector<GpuThread*> waitingForThis_;                      // threads of the next kernel
  std::map<unsigned, std::vector<GpuThread*>> clusterWaiting_;  // by cluster
  std::map<unsigned, std::vector<Arrivals>> clusterArrivals_;   // by cluster, the first ones first
};

// The GPU thread that is running; throws invalidUsage elsewhere, naming the operation.
GpuThread& currentGpuThread(char const* operation);
// The running thread's kernel fails, and says so of this thread.
[[noreturn]] void failKernel(GpuThread& self, std::string const& why);

}  // namespace mscclpp::sim
