// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A stream of the simulated machine: work in order, and what its end makes known; and what a capture keeps of it.
//
// All but the functions that say otherwise belong to the thread that drives the machine.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "mscclpp/layout/launch_shape.hpp"
#include "sim/memory/clock.hpp"
#include "sim/task/task_time.hpp"

namespace mscclpp::sim {

class Kernel;
class Machine;
class Stream;
struct Agent;
struct Capture;

struct CopyWork {
  void* dst;
  void const* src;
  std::size_t bytes;
};

// A point in one stream that another waits for.
struct StreamMark {
  bool reached = false;
  Clock clock;               // what it makes known
  Picoseconds time = 0;      // of a timed run: when it was reached
  Stream* waiter = nullptr;  // that stands at it
};
struct ReachMark {
  std::shared_ptr<StreamMark> mark;
};
struct AwaitMark {
  std::shared_ptr<StreamMark> mark;
};

struct Work {
  std::variant<std::shared_ptr<Kernel>, CopyWork, ReachMark, AwaitMark> what;
  Clock clock{};  // what the submitting host code knew
  Picoseconds submitTime = 0;
};

class Stream {
 public:
  // `ofHost`: runs a thread of the host, and is nobody's to wait for.
  Stream(Machine& machine, int device, bool ofHost, std::uint64_t id)
      : machine_(machine), device_(device), ofHost_(ofHost), id_(id) {}

  int device() const { return device_; }
  std::uint64_t id() const { return id_; }
  bool ofHost() const { return ofHost_; }

  // ---- any thread
  bool idle() const { return completed_.load(std::memory_order_acquire) == submitted_.load(std::memory_order_acquire); }
  void noteSubmitted() { submitted_.fetch_add(1, std::memory_order_acq_rel); }
  std::string takeFailure();                                                     // of a kernel, once; empty: none
  Capture* capture() const { return capture_.load(std::memory_order_acquire); }  // that it takes part in; null: none
  void takePart(Capture* capture) { capture_.store(capture, std::memory_order_release); }

  // ---- the driver
  void push(Work work) { queue_.push_back(std::move(work)); }
  void advance();  // starts what may start, drops what has ended
  void discard();  // ends what runs, drops the rest
  std::deque<Work> const& queue() const { return queue_; }
  Clock const& clock() const { return clock_; }  // what the end of all completed work makes known
  Picoseconds time() const { return time_; }     // of a timed run: when that work ended
  void forgetOrder();
  void forgetTime() { time_ = 0; }

 private:
  // Whether it has been done; otherwise the stream stands.
  bool carryOut(Work const& work, std::shared_ptr<Kernel> const& kernel);
  bool carryOut(Work const& work, CopyWork const& copy);
  bool carryOut(Work const& work, ReachMark const& reach);
  bool carryOut(Work const& work, AwaitMark const& await);
  void overlap();
  void drop();  // what has not begun; whoever waits for a mark among it waits no more
  void reach(StreamMark& mark);
  void complete();

  Machine& machine_;
  int const device_;
  bool const ofHost_;
  std::uint64_t const id_;
  std::deque<Work> queue_;
  std::atomic<std::uint64_t> submitted_{0};
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<Capture*> capture_{nullptr};
  std::mutex failureMutex_;
  std::string failure_;
  Clock clock_;
  Picoseconds time_ = 0;
  Agent* agent_ = nullptr;  // that copies
};

// The kernel that it runs; null for other work.
Kernel* kernelOf(Work const& work);

struct KernelWork {
  LaunchShape shape;
  std::string name;
  std::function<void()> perThread;
};

// Streams of a capture are numbered as they came; 0 is the one that it began with.
struct AfterStream {
  std::size_t earlier;
};

struct CapturedWork {
  std::size_t stream;
  std::variant<KernelWork, CopyWork, AfterStream> what;
};

// What host code has put into streams during a capture.
struct Capture {
  std::uint64_t number;  // among those of this process, from 1 on
  std::vector<Stream*> streams;
  std::vector<CapturedWork> work{};

  std::size_t indexOf(Stream const& stream) const {
    return static_cast<std::size_t>(std::ranges::find(streams, &stream) - streams.begin());
  }
  void add(Stream const& stream, decltype(CapturedWork::what) what) {
    work.push_back({indexOf(stream), std::move(what)});
  }
};

}  // namespace mscclpp::sim
