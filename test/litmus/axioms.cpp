// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "axioms.hpp"

#include <array>
#include <bit>
#include <optional>
#include <stdexcept>
#include <vector>

namespace litmus {
namespace {

constexpr int maxEvents = 64;
constexpr int initialWrite = -1;

enum class Kind : std::uint8_t { read, write, fence, barrier };

struct Event {
  Kind kind;
  int thread;
  int step;  // index of the instruction
  Place place;
  Instruction const* instruction;
  int partner = -1;  // the other half of an update

  bool memory() const { return kind == Kind::read || kind == Kind::write; }
  bool strong() const { return kind == Kind::fence || (memory() && instruction->strength != Strength::weak); }
  bool acquires() const {
    auto const s = instruction->strength;
    return kind == Kind::read && (s == Strength::acquire || s == Strength::acquireRelease);
  }
  bool releases() const {
    auto const s = instruction->strength;
    return kind == Kind::write && (s == Strength::release || s == Strength::acquireRelease);
  }
  bool sequential() const { return kind == Kind::fence && instruction->strength == Strength::sequential; }
};

class Relation {
 public:
  bool operator()(int a, int b) const { return rows_[a] >> b & 1; }
  void add(int a, int b) { rows_[a] |= std::uint64_t{1} << b; }
  void addBoth(int a, int b) {
    add(a, b);
    add(b, a);
  }
  // Transitive closure over the first n events.
  Relation closed(int n) const {
    Relation r = *this;
    for (int k = 0; k < n; ++k) {
      for (int i = 0; i < n; ++i) {
        if (r(i, k)) r.rows_[i] |= r.rows_[k];
      }
    }
    return r;
  }
  bool cyclic(int n) const {
    Relation const r = closed(n);
    for (int i = 0; i < n; ++i) {
      if (r(i, i)) return true;
    }
    return false;
  }
  Relation& operator|=(Relation const& other) {
    for (int i = 0; i < maxEvents; ++i) rows_[i] |= other.rows_[i];
    return *this;
  }
  // First this, then `next`.
  Relation then(Relation const& next, int n) const {
    Relation r;
    for (int i = 0; i < n; ++i) {
      for (auto rest = rows_[i]; rest != 0; rest &= rest - 1) r.rows_[i] |= next.rows_[std::countr_zero(rest)];
    }
    return r;
  }

 private:
  std::array<std::uint64_t, maxEvents> rows_{};
};

// The candidate executions in which a fixed set of instructions is done: which guarded ones, and which
// compare-exchanges succeed.
class Candidates {
 public:
  Candidates(Program const& program, std::vector<std::vector<bool>> const& done,
             std::vector<std::vector<bool>> const& succeeds, Judgement& judgement)
      : program_(program), done_(done), succeeds_(succeeds), judgement_(judgement) {
    buildEvents();
    buildFixedRelations();
  }

  void judge() { chooseReadsFrom(0); }

 private:
  int count() const { return static_cast<int>(events_.size()); }
  Location locationOf(int e) const { return events_[e].instruction->location; }
  bool sameLocation(int a, int b) const {
    return events_[a].memory() && events_[b].memory() && locationOf(a) == locationOf(b);
  }

  void buildEvents() {
    for (int t = 0; t < static_cast<int>(program_.threads.size()); ++t) {
      auto const& thread = program_.threads[t];
      for (int step = 0; step < static_cast<int>(thread.code.size()); ++step) {
        Instruction const& instruction = thread.code[step];
        if (!done_[t][step]) continue;
        auto add = [&](Kind kind) {
          events_.push_back({kind, t, step, thread.place, &instruction});
          return count() - 1;
        };
        switch (instruction.operation) {
          case Operation::load:
            reads_.push_back(add(Kind::read));
            break;
          case Operation::store:
            add(Kind::write);
            break;
          case Operation::fence:
            add(Kind::fence);
            break;
          case Operation::barrier:
            add(Kind::barrier);
            break;
          default: {
            int const read = add(Kind::read);
            reads_.push_back(read);
            if (instruction.operation == Operation::compareExchange && !succeeds_[t][step]) break;
            int const write = add(Kind::write);
            events_[read].partner = write;
            events_[write].partner = read;
          }
        }
      }
    }
    if (count() > maxEvents) throw std::invalid_argument("a litmus test has more than 64 events");
    readsFrom_.assign(events_.size(), initialWrite);
  }

  void buildFixedRelations() {
    for (int a = 0; a < count(); ++a) {
      for (int b = 0; b < count(); ++b) {
        auto const &first = events_[a], &second = events_[b];
        if (a < b && first.thread == second.thread) programOrder_.add(a, b);
        bool const overlap = !first.memory() || !second.memory() || sameLocation(a, b);
        bool const related =
            first.thread == second.thread ||
            (first.strong() && second.strong() && reaches(first.instruction->scope, first.place, second.place) &&
             reaches(second.instruction->scope, second.place, first.place));
        if (a != b && overlap && related) morallyStrong_.add(a, b);
        if (first.kind == Kind::barrier && second.kind == Kind::barrier && first.thread != second.thread &&
            first.place == second.place && first.instruction->barrier == second.instruction->barrier &&
            phase(a) == phase(b)) {
          barriers_.add(a, b);
        }
        if (a < b && first.sequential() && second.sequential() && first.thread != second.thread &&
            morallyStrong_(a, b)) {
          fencePairs_.push_back({a, b});
        }
      }
    }
  }

  // How often the thread has met at this barrier before.
  int phase(int barrier) const {
    int met = 0;
    for (int e = 0; e < barrier; ++e) {
      met += events_[e].kind == Kind::barrier && events_[e].thread == events_[barrier].thread &&
             events_[e].instruction->barrier == events_[barrier].instruction->barrier;
    }
    return met;
  }

  void chooseReadsFrom(std::size_t next) {
    if (next == reads_.size()) {
      considerValues();
      return;
    }
    int const read = reads_[next];
    readsFrom_[read] = initialWrite;
    chooseReadsFrom(next + 1);
    for (int write = 0; write < count(); ++write) {
      if (events_[write].kind != Kind::write || !sameLocation(read, write) || programOrder_(read, write)) continue;
      readsFrom_[read] = write;
      chooseReadsFrom(next + 1);
    }
  }

  // ---- values, and the axiom that none comes out of thin air

  // The read that gave the register its value before the instruction; -1: it still is 0.
  int sourceOf(Register source, int thread, int step) const {
    for (int e = count() - 1; e >= 0; --e) {
      if (events_[e].kind == Kind::read && events_[e].thread == thread && events_[e].step < step &&
          events_[e].instruction->result.number == source.number) {
        return e;
      }
    }
    return -1;
  }

  int registerAt(Register source, int thread, int step) {
    if (source.none()) return 0;
    int const read = sourceOf(source, thread, step);
    return read < 0 ? 0 : valueOf(read);
  }

  bool guardHolds(Guard const& guard, int thread, int step) {
    if (guard.kind == Guard::Kind::always) return true;
    int const left = registerAt(guard.left, thread, step);
    int const right = registerAt(guard.right.base, thread, step) + guard.right.plus;
    return (left == right) == (guard.kind == Guard::Kind::equal);
  }

  int initialValue(Location location) const {
    for (auto const& initial : program_.initial) {
      if (initial.location == location) return initial.value;
    }
    return 0;
  }

  // Follows dependencies and reads-from; a cycle of these is noted in thinAir_.
  int valueOf(int e) {
    if (evaluation_[e] == Evaluation::done) return values_[e];
    if (evaluation_[e] == Evaluation::begun) {
      thinAir_ = true;
      return 0;
    }
    evaluation_[e] = Evaluation::begun;
    auto const& event = events_[e];
    auto const& instruction = *event.instruction;
    guardHolds(instruction.guard, event.thread, event.step);
    int value = 0;
    if (event.kind == Kind::read) {
      value = readsFrom_[e] == initialWrite ? initialValue(instruction.location) : valueOf(readsFrom_[e]);
    } else {
      value = registerAt(instruction.value.base, event.thread, event.step) + instruction.value.plus;
      if (instruction.operation == Operation::add) value += valueOf(event.partner);
      if (instruction.operation == Operation::compareExchange) valueOf(event.partner);
    }
    evaluation_[e] = Evaluation::done;
    return values_[e] = value;
  }

  void considerValues() {
    values_.assign(events_.size(), 0);
    evaluation_.assign(events_.size(), Evaluation::none);
    thinAir_ = false;
    for (int e = 0; e < count(); ++e) {
      if (events_[e].memory()) valueOf(e);
    }
    if (thinAir_) return;
    for (int t = 0; t < static_cast<int>(program_.threads.size()); ++t) {
      auto const& code = program_.threads[t].code;
      for (int step = 0; step < static_cast<int>(code.size()); ++step) {
        if (guardHolds(code[step].guard, t, step) != done_[t][step]) return;
      }
    }
    for (int read : reads_) {
      auto const& event = events_[read];
      if (event.instruction->operation == Operation::compareExchange &&
          (values_[read] == event.instruction->expected) != (event.partner >= 0)) {
        return;
      }
    }
    observe();
    chooseFenceOrder(0, {});
  }

  // ---- order between threads

  void observe() {
    Relation steps;
    for (int read : reads_) {
      int const write = readsFrom_[read];
      if (write != initialWrite && morallyStrong_(write, read)) steps.add(write, read);
      if (events_[read].partner >= 0) steps.add(read, events_[read].partner);
    }
    Relation const reachable = steps.closed(count());
    observation_ = {};
    for (int w = 0; w < count(); ++w) {
      for (int r : reads_) {
        if (events_[w].kind == Kind::write && reachable(w, r)) observation_.add(w, r);
      }
    }
    // A release pattern is its first operation and the write that others see; an acquire pattern is the read that sees
    // and its last operation.
    auto const releasedBy = [&](int first, int write) {
      if (events_[write].kind != Kind::write || !events_[write].strong()) return false;
      if (first == write) return events_[first].releases();
      if (!programOrder_(first, write)) return false;
      return events_[first].kind == Kind::fence || (events_[first].releases() && sameLocation(first, write));
    };
    auto const acquiredBy = [&](int last, int read) {
      if (!events_[read].strong()) return false;
      if (last == read) return events_[last].acquires();
      if (!programOrder_(read, last)) return false;
      return events_[last].kind == Kind::fence || (events_[last].acquires() && sameLocation(last, read));
    };
    synchronizes_ = barriers_;
    for (int write = 0; write < count(); ++write) {
      for (int read : reads_) {
        if (!observation_(write, read)) continue;
        for (int first = 0; first < count(); ++first) {
          if (!releasedBy(first, write)) continue;
          for (int last = 0; last < count(); ++last) {
            if (acquiredBy(last, read) && morallyStrong_(first, last)) synchronizes_.add(first, last);
          }
        }
      }
    }
  }

  void chooseFenceOrder(std::size_t next, Relation const& fenceOrder) {
    if (next < fencePairs_.size()) {
      auto const [a, b] = fencePairs_[next];
      for (bool const swapped : {false, true}) {
        Relation chosen = fenceOrder;
        chosen.add(swapped ? b : a, swapped ? a : b);
        chooseFenceOrder(next + 1, chosen);
      }
      return;
    }
    Relation edges = programOrder_;
    edges |= synchronizes_;
    edges |= fenceOrder;
    Relation const base = edges.closed(count());
    for (auto const& [a, b] : fencePairs_) {
      if (base(a, b) && base(b, a)) return;  // Fence-SC
    }
    causality_ = base;
    causality_ |= observation_.then(base, count());
    for (int read : reads_) {
      if (readsFrom_[read] != initialWrite && causality_(read, readsFrom_[read])) return;  // Causality, first half
    }
    considerCoherence(fenceOrder);
  }

  // ---- coherence: each location on its own

  void considerCoherence(Relation const& fenceOrder) {
    std::array<std::set<int>, maxLocations> last;
    for (int l = 0; l < maxLocations; ++l) {
      auto const location = static_cast<Location>(l);
      writes_.clear();
      for (int e = 0; e < count(); ++e) {
        if (events_[e].kind == Kind::write && locationOf(e) == location) writes_.push_back(e);
      }
      Relation given;
      std::vector<std::array<int, 2>> open;
      for (int a : writes_) {
        for (int b : writes_) {
          if (a != b && causality_(a, b)) {
            given.add(a, b);
          } else if (a < b && morallyStrong_(a, b) && !causality_(b, a)) {
            open.push_back({a, b});
          }
        }
      }
      chooseCoherence(location, open, 0, given, last[l]);
      if (last[l].empty()) return;
    }
    record(fenceOrder, last);
  }

  void chooseCoherence(Location location, std::vector<std::array<int, 2>> const& open, std::size_t next,
                       Relation const& soFar, std::set<int>& last) {
    Relation const coherence = soFar.closed(count());
    for (int w : writes_) {
      if (coherence(w, w)) return;  // Coherence
    }
    if (next < open.size()) {
      auto const [a, b] = open[next];
      for (bool const swapped : {false, true}) {
        Relation chosen = coherence;
        chosen.add(swapped ? b : a, swapped ? a : b);
        chooseCoherence(location, open, next + 1, chosen, last);
      }
      return;
    }
    if (!coherent(location, coherence)) return;
    if (writes_.empty()) last.insert(initialValue(location));
    for (int w : writes_) {
      bool newest = true;
      for (int later : writes_) newest = newest && !coherence(w, later);
      if (newest) last.insert(values_[w]);
    }
  }

  bool coherent(Location location, Relation const& coherence) const {
    Relation perLocation;
    auto const relate = [&](int a, int b) {
      if (morallyStrong_(a, b)) perLocation.add(a, b);
    };
    for (int a = 0; a < count(); ++a) {
      for (int b = 0; b < count(); ++b) {
        if (sameLocation(a, b) && locationOf(a) == location && programOrder_(a, b)) perLocation.add(a, b);
        if (coherence(a, b)) relate(a, b);
      }
    }
    for (int read : reads_) {
      if (locationOf(read) != location) continue;
      int const source = readsFrom_[read];
      if (source != initialWrite) relate(source, read);
      int const partner = events_[read].partner;
      for (int write : writes_) {
        bool const fromRead = write != partner && (source == initialWrite || coherence(source, write));
        if (!fromRead) continue;
        relate(read, write);
        if (causality_(write, read)) return false;  // Causality, second half
        if (partner >= 0 && morallyStrong_(read, write) && coherence(write, partner) &&
            morallyStrong_(write, partner)) {
          return false;  // Atomicity
        }
      }
    }
    return !perLocation.cyclic(count());  // SC-per-location
  }

  // ---- what follows

  void record(Relation const& fenceOrder, std::array<std::set<int>, maxLocations> const& last) {
    Relation effect = programOrder_;
    effect |= fenceOrder;
    for (int read : reads_) {
      if (readsFrom_[read] != initialWrite) effect.add(readsFrom_[read], read);
    }
    // Threads leave a barrier after all have come: whatever is before it in one is before what follows it in another.
    effect |= programOrder_.then(barriers_, count()).then(programOrder_, count());
    bool const inOrder = !effect.cyclic(count());
    bool const racy = hasRace();
    judgement_.racy = judgement_.racy || racy;
    judgement_.racyInOrder = judgement_.racyInOrder || (racy && inOrder);

    Outcome outcome;
    for (int read : reads_) {  // in program order, so that the last one into a register stays
      auto const result = events_[read].instruction->result;
      if (!result.none())
        outcome.registers[events_[read].thread][result.number] = static_cast<std::uint8_t>(values_[read]);
    }
    addOutcomes(outcome, last, 0, inOrder);
  }

  void addOutcomes(Outcome& outcome, std::array<std::set<int>, maxLocations> const& last, int location, bool inOrder) {
    if (location == maxLocations) {
      judgement_.allowed.insert(outcome);
      if (inOrder) judgement_.inOrder.insert(outcome);
      return;
    }
    for (int value : last[location]) {
      outcome.memory[location] = static_cast<std::uint8_t>(value);
      addOutcomes(outcome, last, location + 1, inOrder);
    }
  }

  bool hasRace() const {
    for (int a = 0; a < count(); ++a) {
      for (int b = a + 1; b < count(); ++b) {
        bool const conflict = sameLocation(a, b) && (events_[a].kind == Kind::write || events_[b].kind == Kind::write);
        if (conflict && !morallyStrong_(a, b) && !causality_(a, b) && !causality_(b, a)) return true;
      }
    }
    return false;
  }

  enum class Evaluation : std::uint8_t { none, begun, done };

  Program const& program_;
  std::vector<std::vector<bool>> const& done_;
  std::vector<std::vector<bool>> const& succeeds_;
  Judgement& judgement_;

  std::vector<Event> events_;  // in program order within each thread
  std::vector<int> reads_;
  std::vector<int> writes_;  // of the location in work
  std::vector<int> readsFrom_;
  std::vector<int> values_;
  std::vector<Evaluation> evaluation_;
  bool thinAir_ = false;
  std::vector<std::array<int, 2>> fencePairs_;
  Relation programOrder_;
  Relation morallyStrong_;
  Relation barriers_;
  Relation observation_;
  Relation synchronizes_;
  Relation causality_;
};

}  // namespace

Judgement judge(Program const& program) {
  // What is not fixed by the text alone: whether each guarded instruction is done, whether each exchange succeeds.
  std::vector<std::array<int, 2>> guarded, exchanges;
  std::vector<std::vector<bool>> done, succeeds;
  for (int t = 0; t < static_cast<int>(program.threads.size()); ++t) {
    auto const& code = program.threads[t].code;
    done.emplace_back(code.size(), true);
    succeeds.emplace_back(code.size(), false);
    for (int step = 0; step < static_cast<int>(code.size()); ++step) {
      if (code[step].guard.kind != Guard::Kind::always) guarded.push_back({t, step});
      if (code[step].operation == Operation::compareExchange) exchanges.push_back({t, step});
    }
  }
  Judgement judgement;
  for (unsigned choice = 0; choice < 1u << (guarded.size() + exchanges.size()); ++choice) {
    unsigned bits = choice;
    for (auto const& [t, step] : guarded) {
      done[t][step] = bits & 1;
      bits >>= 1;
    }
    bool redundant = false;
    for (auto const& [t, step] : exchanges) {
      succeeds[t][step] = bits & 1;
      bits >>= 1;
      redundant = redundant || (succeeds[t][step] && !done[t][step]);
    }
    if (!redundant) Candidates(program, done, succeeds, judgement).judge();
  }
  return judgement;
}

}  // namespace litmus
