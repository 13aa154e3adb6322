// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who watches a deterministic run, as the machine knows it: told of who takes part, of what orders them and of every
// access at the moment at which it takes effect. Carries out ordered accesses itself, so that these may see what a
// memory model allows; all others the machine makes once it has told of them.
//
// An agent is whoever accesses memory: a GPU thread, the host code of a rank, a stream's copies, a bulk copy. Only the
// observer knows what one is. Called by the thread that drives; instrumented code tells the observer by itself
// (hooks/hook_calls.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mscclpp/layout/watch.hpp"
#include "sim/memory/access.hpp"
#include "sim/memory/clock.hpp"

namespace mscclpp::sim {

struct Agent;

// Where an access stands: its code address, and the calls that have led there. 0: nowhere.
using Site = std::uint64_t;

// One lane's part in the access of a 128-byte line that the link delivers whole.
struct LinePart {
  Agent* agent;
  std::uint64_t* address;  // two words
  std::uint64_t halves[2];
  Site site;
};

struct BulkCopy {
  char const* what;
  void* target;
  std::size_t bytes;
  bool load = false;  // into the block's memory
};

class Observer {
 public:
  virtual ~Observer() = default;

  // ---- who takes part
  virtual Agent& addHost(int rank) = 0;
  // Another thread of the rank's host, which knows what `start` does.
  virtual Agent& addHostThread(int rank, std::string name, Clock const& start) = 0;
  virtual Agent& addStream(int device) = 0;
  // Copies on behalf of a rank's proxies: to other devices they are its own, also as senders of signals.
  virtual Agent& addProxyCopies(int rank) = 0;
  // The threads of a block that begins, knowing what `start` does, until endBlock() tells what its end makes known.
  virtual std::vector<Agent*> beginBlock(int device, std::string const& kernel, unsigned block, unsigned threads,
                                         Clock const& start) = 0;
  virtual Clock endBlock(std::span<Agent* const> threads) = 0;
  // A bulk copy: it knows what its thread knew when it started. endBulkCopy: its accesses have been made.
  virtual Agent& beginBulkCopy(Agent& issuer, BulkCopy const& copy, Site site) = 0;
  virtual void endBulkCopy(Agent const& issuer, Agent& copy) = 0;
  // The thread, or for a load its block, ends before the copy does.
  virtual void bytesInFlight(Agent const& issuer, BulkCopy const& copy, Site site) = 0;

  // ---- what orders them
  virtual Clock release(Agent& agent) = 0;  // what it has done until now
  virtual void acquire(Agent& agent, Clock const& clock) = 0;
  virtual void barrier(std::span<Agent* const> agents, char const* what) = 0;  // a barrier of just these
  virtual void fence(Agent& agent, Access const& fence, Site site) = 0;
  // What the agent knows of, bulk copies see that begin after it; accesses by another address of the memory, such as a
  // multicast one, once they know of the fence.
  virtual void proxyFence(Agent& agent) = 0;
  virtual void aliasFence(Agent& agent) = 0;
  // So do all with everything that came before a kernel.
  virtual void passProxies(Clock const& clock) = 0;

  // ---- accesses
  virtual Site siteOf(Agent const& agent, void const* code) const = 0;
  // One that finds memory as it is, and that the machine carries out.
  virtual void note(Agent& agent, Access const& access, Site site) = 0;
  // The same by host code that is not instrumented itself. `calls`: code addresses, innermost first.
  virtual void noteHost(Agent& agent, Access const& access, std::span<void* const> calls) = 0;
  virtual std::uint64_t load(Agent& agent, Access const& access, Site site) = 0;
  virtual void store(Agent& agent, Access const& access, std::uint64_t value, Site site) = 0;
  virtual std::uint64_t update(Agent& agent, Access const& access, WordUpdate const& update, Site site) = 0;
  virtual void storeLine(std::span<LinePart> lanes) = 0;
  virtual void loadLine(std::span<LinePart> lanes) = 0;
  virtual void tornLine(Agent& agent, void const* address, Site site) = 0;

  // ---- waits
  virtual void beginWait(Agent& agent) = 0;
  virtual void lookAgain(Agent& agent) = 0;
  virtual bool hasSeenOld(Agent& agent) = 0;  // an old value, since this was last asked
  virtual void endWait(Agent& agent, layout::WaitKind kind, std::uint64_t expected, Site site) = 0;

  // ---- memory
  virtual void memoryChanged() = 0;  // other memory is the machine's than before
  virtual void freeing(Agent* agent, std::uintptr_t address, std::size_t bytes) = 0;
  virtual void forget(std::uintptr_t address, std::size_t bytes) = 0;
};

}  // namespace mscclpp::sim
