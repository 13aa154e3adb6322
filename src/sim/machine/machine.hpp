// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The simulated machine of this process: devices, their memory, and streams of work.
//
// Either a deterministic run owns the machine (rank_run.hpp), or host threads take turns at driving it (driver.hpp).
// Stream queues, kernels and the scheduler belong to the thread that drives; everything else submits through an inbox.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/sim/runtime.hpp"
#include "sim/machine/block_memory.hpp"
#include "sim/machine/devices.hpp"
#include "sim/machine/driver.hpp"
#include "sim/machine/stream.hpp"
#include "sim/memory/heap.hpp"
#include "sim/memory/multicasts.hpp"
#include "sim/schedule/scheduler.hpp"
#include "sim/task/stack_pool.hpp"
#include "sim/time/time_line.hpp"

namespace mscclpp::sim {

class Observer;
class RankRun;
struct RankRunOptions;

class Machine {
 public:
  static Machine& instance();

  // ---- options and devices
  void install(MachineOptions const& options);
  MachineOptions options();
  int deviceCount();
  void checkDevice(int device, char const* operation);
  bool linesArriveWhole() const { return linesArriveWhole_; }

  // ---- memory
  void* allocate(int device, std::size_t bytes);
  void release(void* base) noexcept;
  void releaseImport(void* base) noexcept { heap_.release(base, mayStillUse()); }
  std::byte* takeShared();  // for a block
  void giveBackShared(std::byte* base) { blockMemory_.giveBack(base); }
  Heap& heap() { return heap_; }
  Multicasts& multicasts() { return multicasts_; }
  bool followsMemory(std::uintptr_t begin, std::uintptr_t end);  // whether some of it is the machine's
  std::string placeOf(std::uintptr_t address);
  // Host code reads or writes device memory itself.
  void hostAccess(void const* address, std::size_t bytes, bool write);

  // ---- streams, for host code
  Stream* createStream(int device, bool ofHost);
  void destroyStream(void* stream) noexcept;
  Stream& checkStream(void* stream, char const* operation);
  std::vector<void*> streamsOf(int device);
  std::uint64_t streamId(void* stream) { return checkStream(stream, "streamId").id(); }
  std::size_t streamCount();
  // What these three put into a stream that is captured, the capture keeps.
  void launch(Stream& stream, KernelWork kernel);
  void copy(Stream& stream, CopyWork const& copy);
  void orderAfter(Stream& stream, Stream& earlier);
  void synchronize(void* stream, std::chrono::nanoseconds limit);
  bool idle(void* stream);
  void submit(Stream& stream, decltype(Work::what) what);  // which cannot be captured
  void beginCapture(Stream& stream);
  Capture endCapture(Stream& stream);
  bool captures(int device);  // some stream of it
  // Whether any stream may be captured; takes no lock, since every call of a collective asks.
  bool mayCapture() const { return captureCount_.load(std::memory_order_acquire) != 0; }

  // ---- for whoever drives, and what runs
  Scheduler& scheduler() { return scheduler_; }
  Devices& devices() { return devices_; }
  std::vector<std::unique_ptr<Stream>> const& streams() const { return streams_; }
  StackPool& stacksOf(Kernel const& kernel);
  void noteCompleted() { driver_.noteCompleted(); }
  void noteIdle() { driver_.noteIdle(); }
  Observer* observer() { return observer_; }  // null: none

  // ---- deterministic runs
  bool deterministic() const { return deterministic_.load(std::memory_order_acquire); }
  RankRun* run() { return run_; }  // null: none
  void beginRun(RankRun& run, RankRunOptions const& options);
  void endRun() noexcept;
  // Of the runs that begin from now on; null: none any more.
  void observe(Observer* observer);

 private:
  Machine();
  ~Machine();

  bool mayStillUse() const noexcept;  // kernels, memory that is released now
  void captureOrder(Stream& stream, Stream& earlier);
  static void requireNoCapture(Stream const& stream, char const* operation);
  void acquireStream(Stream& stream);  // the running host code knows of its work's end
  void applyOptions();                 // under the lock
  void requireOwner(char const* operation) const;
  static void throwFailure(Stream& stream);

  MachineOptions options_;
  bool applied_ = false;
  bool linesArriveWhole_ = true;
  Heap heap_;
  Multicasts multicasts_;
  BlockMemory blockMemory_;
  Devices devices_{heap_};
  std::unique_ptr<StackPool> stacks_;
  std::unique_ptr<StackPool> hostThreadStacks_;
  std::unique_ptr<VirtualTime> time_;
  std::optional<TracedTime> traced_;
  Scheduler scheduler_;
  Driver driver_{*this};
  std::vector<std::unique_ptr<Stream>> streams_;
  std::uint64_t lastStream_ = 0;                    // its number
  std::vector<std::unique_ptr<Capture>> captures_;  // that have not ended
  std::atomic<std::size_t> captureCount_{0};
  std::uint64_t lastCapture_ = 0;
  std::atomic<bool> deterministic_{false};
  std::thread::id runThread_;
  RankRun* run_ = nullptr;
  std::vector<void*> abandoned_;  // by ranks that a fault has ended, for as long as the run lasts
  Observer* observer_ = nullptr;
};

}  // namespace mscclpp::sim
