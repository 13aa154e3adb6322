// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Watches every access of a deterministic run: which accesses race, which values ordered accesses may see, which
// signals and packets go wrong. Follows the PTX memory model's causality order with one vector clock per thread.
//
// The machine calls it as its observer (machine/observer.hpp), instrumented code by way of hook_calls.hpp. A plain
// access costs some ten nanoseconds; findings are rare and may cost more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "mscclpp/layout/watch.hpp"
#include "mscclpp/sim/finding.hpp"
#include "sim/checker/agent.hpp"
#include "sim/checker/shadow.hpp"
#include "sim/checker/words.hpp"
#include "sim/machine/observer.hpp"
#include "sim/memory/access.hpp"

namespace mscclpp::sim {

class Machine;

struct CheckerOptions {
  bool races = true;
  bool weakMemory = true;
  bool lostSignals = true;
};

class Checker final : public Observer {
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

  // ---- what instrumented code does
  void plain(Agent& agent, std::uintptr_t address, std::size_t bytes, bool write, Site site) {
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
    record(agent, *cell, address - offset,
           slotOf(agent, ((1u << bytes) - 1) << offset, write ? trait::write : 0u, site));
  }
  void enterCall(Agent& agent, void const* code);
  void leaveCall(Agent& agent);
  static Site siteHere(Agent const& agent, void const* code) {
    return (reinterpret_cast<std::uintptr_t>(code) & 0xffff'ffff'ffff) | Site{agent.calls} << 48;
  }
  static std::uintptr_t codeOf(Site site) { return site & 0xffff'ffff'ffff; }
  // Ordered accesses of host code to its own memory.
  bool follows(void const* address) { return shadow_.find(reinterpret_cast<std::uintptr_t>(address)) != nullptr; }
  void hostSynchronize(Agent& agent, void const* address, bool acquire, bool release);

  // ---- what the machine tells
  Agent& addHost(int rank) override;
  Agent& addHostThread(int rank, std::string name, Clock const& start) override;
  Agent& addStream(int device) override;
  Agent& addProxyCopies(int rank) override;
  std::vector<Agent*> beginBlock(int device, std::string const& kernel, unsigned block, unsigned threads,
                                 Clock const& start) override;
  Clock endBlock(std::span<Agent* const> threads) override;
  Agent& beginBulkCopy(Agent& issuer, BulkCopy const& copy, Site site) override;
  void endBulkCopy(Agent const& issuer, Agent& copy) override;
  void bytesInFlight(Agent const& issuer, BulkCopy const& copy, Site site) override;

  Clock release(Agent& agent) override;
  void acquire(Agent& agent, Clock const& clock) override { agent.known.join(clock); }
  void barrier(std::span<Agent* const> agents, char const* what) override;
  void fence(Agent& agent, Access const& fence, Site site) override;
  void proxyFence(Agent& agent) override;
  void aliasFence(Agent& agent) override;
  void passProxies(Clock const& clock) override {
    proxyFenced_.join(clock);
    aliasFenced_.join(clock);
  }

  Site siteOf(Agent const& agent, void const* code) const override { return siteHere(agent, code); }
  void note(Agent& agent, Access const& access, Site site) override {
    record(agent, access.address, access.bytes, traitsOf(access), site);
  }
  void noteHost(Agent& agent, Access const& access, std::span<void* const> calls) override;
  std::uint64_t load(Agent& agent, Access const& access, Site site) override;
  void store(Agent& agent, Access const& access, std::uint64_t value, Site site) override;
  std::uint64_t update(Agent& agent, Access const& access, WordUpdate const& update, Site site) override;
  void storeLine(std::span<LinePart> lanes) override;
  void loadLine(std::span<LinePart> lanes) override;
  void tornLine(Agent& agent, void const* address, Site site) override;

  void beginWait(Agent& agent) override;
  bool hasSeenOld(Agent& agent) override { return std::exchange(agent.sawStale, false); }
  void lookAgain(Agent& agent) override { agent.looks.clear(); }
  void endWait(Agent& agent, layout::WaitKind kind, std::uint64_t expected, Site site) override;

  void memoryChanged() override { shadow_.invalidate(); }
  void freeing(Agent* agent, std::uintptr_t address, std::size_t bytes) override;
  void forget(std::uintptr_t address, std::size_t bytes) override;

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
    Site site;
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
  bool sameLaunch(Occupant const& a, Agent const& b) const;  // as far as names and blocks tell

  static unsigned traitsOf(Access const& access);
  static Slot slotOf(Agent const& agent, unsigned mask, unsigned traits, Site site) {
    return Slot::of(agent.id, agent.epoch, mask, traits, site);
  }
  void record(Agent& agent, std::uintptr_t address, std::size_t bytes, unsigned traits, Site site);
  // `mine`: the agent's access, in the granule of the cell. So below.
  void record(Agent& agent, Cell& cell, std::uintptr_t granule, Slot mine);
  // Whether the new access makes it needless to remember the one in `slot`; reports it if they race.
  bool examine(Agent& agent, Cell const& cell, Slot const& slot, std::uintptr_t granule, Slot mine);
  // The same of a crowd: those lanes of it.
  std::uint64_t needless(Agent& agent, Cell const& cell, Crowd const& crowd, std::uintptr_t granule, Slot mine);
  // Whether a look at the value that the access in `slot` wrote orders it before what `agent` does now.
  bool seen(Agent const& agent, Cell const& cell, Slot const& slot);
  void remember(Agent& agent, Cell& cell, std::uintptr_t granule, Slot mine);
  Word* wordAt(std::uintptr_t address, std::size_t bytes, bool create);
  Message const* twinOf(WaitLook const& look, std::uint64_t flag);
  Word* wordAt(Access const& access, bool create) { return wordAt(access.address, access.bytes, create); }
  void receive(Agent& agent, Message const& message, Order order, Scope scope) {
    receive(agent, message, order, scope, scope);
  }
  // As above, for an acquire of another scope than the load that saw the value.
  void receive(Agent& agent, Message const& message, Order order, Scope scope, Scope acquireScope);
  std::size_t replaceable(Agent& agent, Word const& word, Access const& access, WordUpdate const& update);
  bool aliasFenced(Agent const& agent, Slot const& earlier) const;
  std::uint64_t take(Agent& agent, Word& word, std::size_t index, Access const& access);
  Message& append(Agent& agent, Word& word, std::size_t position, std::uint64_t value, Access const& access, Site site);
  // Whether there is no old value to be shown: the thread has been shown some in a row.
  bool seesNewest(Agent const& agent, std::uintptr_t address) const;
  void reportConflict(Agent& agent, Slot const& earlier, std::uintptr_t granule, Slot mine);
  void reportMissingFence(Slot const& earlier, std::uintptr_t granule, Slot mine);
  void reportMissingAliasFence(Slot const& earlier, std::uintptr_t granule, Slot mine);
  // What finding the slot's access and this one are, both described; null: known already.
  Finding* addConflict(FindingKind kind, Slot const& earlier, std::uintptr_t granule, Slot mine);
  void hostLooks(Access const& access);  // at the signals there
  void markSignal(Agent const& agent, Message& message, std::uintptr_t address);
  void checkSignals(std::uintptr_t address, Cell& cell);

  AccessRecord describe(Slot const& access, std::size_t bytes, std::uintptr_t address) const;
  AccessRecord describe(Agent const& agent, Access const& access, Site site) const {
    return describe(slotOf(agent, 0, traitsOf(access), site), access.bytes, access.address);
  }
  std::vector<std::uintptr_t> callsOf(Site site) const;
  std::string memoryOf(std::uintptr_t address) const;
  Finding* addFinding(FindingKind kind, std::uint64_t place);  // null: known already
  std::vector<std::string> timeline() const;
  Step& addStep(Agent const& agent, Access const& access, std::uint64_t value, Site site);
  void addStep(Agent const& agent, char const* what, unsigned count);

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
  std::unordered_map<std::uint32_t, std::vector<Agent>> blocks_;  // that run, by number
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
