// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bulk copies that a block's threads have started, and the barriers that wait for them.
//
// Made when a block first asks for one. A copy reads its source and writes its target at once, or as late as somebody
// waits for it, or as its thread ends; outside of deterministic runs always at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "sim/machine/kernel.hpp"
#include "sim/machine/observer.hpp"
#include "sim/memory/access.hpp"
#include "sim/memory/clock.hpp"

namespace mscclpp::sim {

class BulkCopies {
 public:
  // What a store does to its target in place of writing it; nothing where there is no function.
  struct Reduction {
    unsigned unit = 0;
    std::uint64_t (*combine)(std::uint64_t found, std::uint64_t operand) = nullptr;

    char const* name() const { return combine == nullptr ? "bulkStore" : "bulkReduceAdd"; }
    AccessKind kind() const { return combine == nullptr ? AccessKind::store : AccessKind::update; }
  };

  explicit BulkCopies(Block& block) : block_(block) {}

  // Called by the running thread. `code` is where the call stands.
  void store(GpuThread& self, void* dst, void const* src, std::size_t bytes, Reduction reduction, void const* code);
  void commit(GpuThread& self);
  void wait(GpuThread& self, std::size_t newest, bool onlySources);
  void load(GpuThread& self, void* dst, void const* src, std::size_t bytes, std::uint64_t* barrier, void const* code);
  // Into the memory of any block of the cluster, whose barriers count it.
  void put(GpuThread& self, void* dst, void const* value, std::size_t bytes, std::uint64_t* barrier, void const* code);
  void initBarrier(GpuThread& self, std::uint64_t* word, unsigned count, void const* code);
  void invalidateBarrier(GpuThread& self, std::uint64_t* word, void const* code);
  void arrive(GpuThread& self, std::uint64_t* word, unsigned expectedBytes, void const* code);
  bool test(GpuThread& self, std::uint64_t* word, unsigned parity, void const* code);

  // Carries out what has been left for later; false if there was nothing.
  bool finishLate();
  // Called while the thread is still counted among the live ones.
  void threadEnded(GpuThread& thread);

 private:
  struct Copy {
    std::byte* dst = nullptr;
    std::byte const* src = nullptr;
    std::size_t bytes = 0;
    bool load = false;
    Reduction reduction = {};
    bool sourceAwaited = false;
    bool hasRead = false;
    bool hasWritten = false;
    std::vector<std::byte> held;  // read and not written yet
    Site site = 0;
    // Of an observed run.
    Agent* issuer = nullptr;
    Agent* agent = nullptr;
    Clock readClock;  // for who knows that it has read
    Clock doneClock;
    // Of a timed run.
    Picoseconds readTime = 0;
    Picoseconds doneTime = 0;
  };
  using Group = std::vector<Copy>;
  struct Issuer {
    Group open;
    std::deque<Group> groups;
  };
  struct Load {
    Copy copy;
    std::uint64_t phase = 0;  // of the barrier, when its bytes came
    bool delivered = false;
  };
  struct Barrier {
    unsigned count = 0;
    unsigned pending = 0;    // arrivals that the phase still needs
    std::int64_t bytes = 0;  // announced and not come; below zero: come and not announced yet
    std::uint64_t phase = 0;
    std::list<Load> loads;  // that nobody knows to have ended
    Clock arrived;
    Clock ended;  // of the phases before
  };

  void receive(GpuThread& self, void* dst, void const* value, std::size_t bytes, std::uint64_t* word, void const* code);
  Copy begin(GpuThread& self, char const* operation, void* dst, void const* src, std::size_t bytes, bool load,
             void const* code);
  void checkRange(GpuThread& self, char const* operation, void const* global, void const* shared, std::size_t bytes);
  void read(Copy& copy);
  void write(Copy& copy);
  void reduce(Copy const& copy);
  void passTime(GpuThread& self, Copy& copy);  // in a timed run
  bool globalIsThere(Copy const& copy);        // fails the kernel where it is not
  bool finish(Copy& copy);                     // whether there was anything to do
  void deliver(std::uint64_t* word, Barrier& barrier, Load& load);
  void settle(std::uint64_t* word, Barrier& barrier);  // after a change
  Barrier& barrierAt(GpuThread& self, std::uint64_t* word, char const* operation);
  void step(GpuThread& self, void const* address, std::size_t bytes, AccessKind kind, Order order);

  Block& block_;
  std::map<unsigned, Issuer> issuers_;  // by thread
  std::map<std::uint64_t*, Barrier> barriers_;
};

}  // namespace mscclpp::sim
