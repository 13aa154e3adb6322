// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Watches every access of a deterministic run: which accesses race, which values ordered accesses may see, which
// signals and packets go wrong. Follows the PTX memory model's causality order with one vector clock per thread.
//
// Called by the simulated machine, at the moment at which an access takes effect. A plain access costs some ten
// nanoseconds; findings are rare and may cost more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "mscclpp/layout/watch.hpp"
#include "mscclpp/sim/finding.hpp"
#include "sim/checker/agent.hpp"
#include "sim/checker/hook_calls.hpp"
#include "sim/checker/shadow.hpp"
#include "sim/checker/words.hpp"
#include "sim/memory/access.hpp"

namespace mscclpp::sim {

class Machine;

struct CheckerOptions {
  bool races = true;
  bool weakMemory = true;
  bool lostSignals = true;
};

// What an update makes of the value that it finds; false where it leaves the word alone.
using WordChange = std::function<bool(std::uint64_t found, std::uint64_t& value)>;

// What an update makes of the word; false where a compareExchange leaves it.
bool updatedWord(UpdateKind kind, std::uint64_t found, std::uint64_t operand, std::uint64_t expected, unsigned bytes,
                 std::uint64_t& value);

class Checker {
 public:
  // Of the run in progress; there is one at a time.
  static inline Checker* running = nullptr;

  explicit Checker(Machine& machine);

  void begin(CheckerOptions const& options);
  std::vector<Finding> end();  // what the run has shown; nothing of it is kept
  bool active() const { return active_; }
  std::size_t findings() const { return findings_.size(); }
  std::uint64_t accesses() const { return accesses_; }
  std::uint64_t forgotten() const { return shadow_.forgotten(); }

  // ---- who
  Agent& addHost(int rank);
  Agent& addStream(int device);
  // Another thread of the rank's host, which knows what `start` does.
  Agent& addHostThread(int rank, std::string name, Clock const& start);
  // Copies on behalf of a rank's proxies: to other devices they are its own, also as senders of signals.
  Agent& addProxyCopies(int rank);
  // The threads of a block that begins, knowing what `start` does. They stay until endBlock.
  std::vector<Agent> beginBlock(int device, std::string const& kernel, unsigned block, unsigned threads,
                                Clock const& start);
  Clock endBlock(std::vector<Agent>& threads);  // what the block's end makes known

  // ---- order
  Clock release(Agent& agent);  // what it has done until now
  void acquire(Agent& agent, Clock const& clock) { agent.known.join(clock); }
  void meet(std::span<Agent* const> agents, char const* what);  // a barrier of just these

  // ---- accesses; `site` is made by siteOf()
  void plain(Agent& agent, std::uintptr_t address, std::size_t bytes, bool write, std::uint64_t site) {
    auto const offset = address % Shadow::granule;
    if (offset + bytes > Shadow::granule) return record(agent, address, bytes, write ? trait::write : 0u, site);
    auto* const cell = shadow_.find(address);
    if (cell == nullptr) return;
    if (write || address != agent.lastRead) {
      agent.lastRead = write ? 0 : address;
      agent.readsInRow = 0;
    } else if (++agent.readsInRow >= readsOfSpin) [[unlikely]] {
      spin(agent);
    }
    record(agent, *cell, address - offset, ((1u << bytes) - 1) << offset, write ? trait::write : 0u, site);
  }
  // `way`: trait::multicast for an access by a multicast address, `address` being that of one rank's memory.
  std::uint64_t load(Agent& agent, void const* address, unsigned bytes, Order order, Scope scope, std::uint64_t site,
                     unsigned way = 0);
  void store(Agent& agent, void* address, unsigned bytes, std::uint64_t value, Order order, Scope scope,
             std::uint64_t site, unsigned way = 0);
  // Return the value found.
  std::uint64_t update(Agent& agent, void* address, unsigned bytes, UpdateKind kind, std::uint64_t operand,
                       std::uint64_t expected, Order order, Scope scope, std::uint64_t site);
  std::uint64_t update(Agent& agent, void* address, unsigned bytes, WordChange const& change, Order order, Scope scope,
                       std::uint64_t site, unsigned way = 0);
  void fence(Agent& agent, Order order, Scope scope, std::uint64_t site);

  // One lane's part in the access of a 128-byte line that the link delivers whole.
  struct LanePart {
    Agent* agent;
    std::uint64_t* address;  // two words
    std::uint64_t halves[2];
    std::uint64_t site;
  };
  void storeLine(std::span<LanePart> lanes);
  void loadLine(std::span<LanePart> lanes);
  void tornLine(Agent& agent, void const* address, std::uint64_t site);

  // ---- bulk copies: each has an agent of its own, which knows what its thread knew when it started
  Agent& beginCopy(Agent& issuer, char const* what, void const* target, std::size_t bytes, std::uint64_t site);
  void endCopy(Agent const& issuer, Agent& copy);  // its accesses have been made
  void copyAccess(Agent& copy, void const* address, std::size_t bytes, bool write, std::uint64_t site) {
    record(copy, reinterpret_cast<std::uintptr_t>(address), bytes, trait::bulk | (write ? trait::write : 0u), site);
  }
  // What the agent knows of, copies see that begin after it.
  void proxyFence(Agent& agent);
  // So do copies with everything that came before a kernel, and accesses by other addresses.
  void passProxies(Clock const& clock) {
    proxyFenced_.join(clock);
    aliasFenced_.join(clock);
  }

  // ---- multicast addresses: what the agent knows of, others see by another address of the memory once they know of
  // the fence
  void aliasFence(Agent& agent);
  // An atomic access to a barrier of the block.
  void barrierAccess(Agent& agent, void const* word, bool write, std::uint64_t site) {
    record(agent, reinterpret_cast<std::uintptr_t>(word), 8, trait::ofOrdered(write, Scope::block), site);
  }
  // The thread, or for a load its block, ends before the copy does.
  void bytesInFlight(Agent const& issuer, void const* target, std::size_t bytes, bool load, std::uint64_t site);

  // ---- calls, for reports
  static std::uint64_t siteOf(Agent const& agent, void const* code) {
    return (reinterpret_cast<std::uintptr_t>(code) & 0xffff'ffff'ffff) | std::uint64_t{agent.calls} << 48;
  }
  static std::uintptr_t codeOf(std::uint64_t site) { return site & 0xffff'ffff'ffff; }
  void enterCall(Agent& agent, void const* code);
  void leaveCall(Agent& agent);

  // ---- ordered accesses of host code to its own memory
  bool follows(void const* address) { return shadow_.find(reinterpret_cast<std::uintptr_t>(address)) != nullptr; }
  void hostSynchronize(Agent& agent, void const* address, bool acquire, bool release);

  // ---- waits
  void beginWait(Agent& agent);
  void lookAgain(Agent& agent) { agent.looks.clear(); }
  void endWait(Agent& agent, layout::WaitKind kind, std::uint64_t expected, std::uint64_t site);

  // ---- memory
  void hostLooks(std::uintptr_t address, std::size_t bytes);  // at the signals there
  void memoryChanged() { shadow_.invalidate(); }
  void freeing(Agent* agent, std::uintptr_t address, std::size_t bytes);
  void forget(std::uintptr_t address, std::size_t bytes);

 private:
  struct Occupant {
    Epoch since = 0;
    std::uint32_t block = 0;
    unsigned blockIndex = 0;
    unsigned firstThread = 0;
    std::uint32_t name = 0;
    int only = -1;  // the number in the chunk whose occupant this is; -1: all 64
  };
  // 64 thread numbers: part of a block, single agents, or a device's bulk copies.
  struct ChunkInfo {
    int device = -1;
    bool single = false;
    Epoch next = 1;
    std::array<Epoch, threadsPerChunk> last{};
    std::vector<Occupant> occupants;
  };
  struct Step {
    int rank;
    bool host;
    unsigned block;
    unsigned thread;
    char const* what;  // or null: an ordered access
    Access access;
    std::uint64_t value;
    std::uint64_t site;
    unsigned count;
  };
  struct ProxyFence {
    ThreadId thread;
    Epoch epoch;
    Clock clock;
  };
  // The chunk whose numbers a device's bulk copies take.
  struct CopyChunk {
    std::uint32_t number = 0;
    unsigned used = threadsPerChunk;
  };
  struct Consumption {
    ThreadId thread;
    Epoch epoch;
    std::uint64_t site;
  };

  static std::uint64_t mix(std::uint64_t a, std::uint64_t b);  // a hash of both

  // A thread that reads one place so often in a row waits for it, and must let others run.
  static constexpr std::uint32_t readsOfSpin = 1024;
  void spin(Agent& agent);

  Agent& addSingle(int rank, int device, std::string name);
  void forgetCopies();
  std::uint32_t addChunk(int device);
  std::uint32_t takeChunk(int device, Clock const& start);
  Occupant const* occupantOf(ThreadId thread, Epoch epoch) const;

  void record(Agent& agent, std::uintptr_t address, std::size_t bytes, unsigned traits, std::uint64_t site);
  void record(Agent& agent, Cell& cell, std::uintptr_t granule, unsigned mask, unsigned traits, std::uint64_t site);
  // Whether the new access makes it needless to remember the one in `slot`; reports it if they race.
  bool examine(Agent& agent, Cell const& cell, Slot const& slot, std::uintptr_t granule, unsigned mask, unsigned traits,
               std::uint64_t site);
  // Whether a look at the value that the access in `slot` wrote orders it before what `agent` does now.
  bool seen(Agent const& agent, Cell const& cell, Slot const& slot);
  void remember(Agent& agent, Cell& cell, std::uintptr_t granule, unsigned mask, unsigned traits, std::uint64_t site);
  Word* wordAt(void const* address, unsigned bytes, bool create);
  void receive(Agent& agent, Message const& message, Order order, Scope scope) {
    receive(agent, message, order, scope, scope);
  }
  // As above, for an acquire of another scope than the load that saw the value.
  void receive(Agent& agent, Message const& message, Order order, Scope scope, Scope acquireScope);
  std::size_t replaceable(Agent& agent, Word const& word, std::uintptr_t where,
                          std::function<bool(std::uint64_t found)> const& writes);
  bool aliasFenced(Agent const& agent, Slot const& earlier) const;
  void reportMissingAliasFence(Agent const& agent, Slot const& earlier, std::uintptr_t granule, unsigned mask,
                               unsigned traits, std::uint64_t site);
  std::uint64_t take(Agent& agent, Word& word, std::size_t index, void const* address, Order order, Scope scope);
  Message& append(Agent& agent, Word& word, std::size_t position, std::uint64_t value, Order order, Scope scope,
                  std::uint64_t site);
  void reportConflict(Agent& agent, Slot const& earlier, std::uintptr_t granule, unsigned mask, unsigned traits,
                      std::uint64_t site);
  // What finding the slot's access and this one are, both described; null: known already.
  Finding* addConflict(FindingKind kind, Agent const& agent, Slot const& earlier, std::uintptr_t granule, unsigned mask,
                       unsigned traits, std::uint64_t site);
  void reportMissingFence(Agent const& copy, Slot const& earlier, std::uintptr_t granule, unsigned mask,
                          unsigned traits, std::uint64_t site);
  void markSignal(Agent const& agent, Message& message, std::uintptr_t address);
  void checkSignals(std::uintptr_t address, Cell& cell);

  AccessRecord describe(ThreadId thread, Epoch epoch, unsigned traits, unsigned bytes, std::uint64_t site,
                        std::uintptr_t address) const;
  std::vector<std::uintptr_t> callsOf(std::uint64_t site) const;
  std::string memoryOf(std::uintptr_t address) const;
  Finding* addFinding(FindingKind kind, std::uint64_t place);  // null: known already
  std::vector<std::string> timeline() const;
  Step& note(Agent const& agent, Access const& access, std::uint64_t value, std::uint64_t site);
  void note(Agent const& agent, char const* what, unsigned count);

  Machine& machine_;
  CheckerOptions options_;
  bool active_ = false;
  Shadow shadow_;
  Words words_;
  std::vector<ChunkInfo> chunks_;
  std::deque<Agent> singles_;
  std::vector<std::string> names_;
  std::unordered_map<int, std::vector<std::uint32_t>> endedChunks_;  // by device
  std::uint32_t singleChunk_ = 0;
  unsigned singlesInChunk_ = 0;
  std::uint32_t nextBlock_ = 1;
  std::uint64_t nextStamp_ = 1;
  std::uint64_t accesses_ = 0;
  std::uint64_t signals_ = 0;  // ever sent

  std::deque<Agent> copies_;
  std::unordered_map<int, CopyChunk> copyChunks_;                 // by device
  std::unordered_map<ThreadId, std::deque<Agent*>> endedCopies_;  // by thread; it may not know yet
  std::deque<ProxyFence> proxyFences_;                            // the latest
  Clock proxyFenced_;                                             // by all before them
  std::deque<ProxyFence> aliasFences_;                            // the latest of multicast addresses
  Clock aliasFenced_;                                             // by all before them

  Clock sequentialSystem_;
  std::unordered_map<int, Clock> sequentialDevice_;
  std::unordered_map<std::uint32_t, Clock> sequentialBlock_;

  std::unordered_map<void const*, Clock> hostWords_;
  std::unordered_map<std::uint64_t, Consumption> consumed_;  // packets, by store and word

  struct Call {
    std::uint16_t parent = 0;
    std::uintptr_t code = 0;
  };
  std::vector<Call> calls_{1};
  std::unordered_map<std::uint64_t, std::uint16_t> callNodes_;

  std::vector<std::deque<Step>> steps_;  // by rank
  std::vector<Finding> findings_;
  std::unordered_set<std::uint64_t> findingKeys_;
};

}  // namespace mscclpp::sim
