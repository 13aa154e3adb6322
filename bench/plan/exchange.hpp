// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the operations of a chain read and write, and what must then be where: the collectives' meaning, on slots.
//
// Each rank has two buffers of equal size. A buffer has a slot for each rank where a collective tells the ranks' parts
// apart, otherwise one slot. Operation k reads from one buffer and writes to the other, and operation k + 1 the other
// way round; in place, both are buffer 0. Where a collective reads or writes one slot only, its place is chosen so that
// the next operation reads what came from another rank, and with a root the next rank is the root of the next
// operation: so no operation can begin before the one ahead of it has ended. docs/benchmark.md tells it for each
// collective.
#pragma once

#include <cstdint>
#include <vector>

#include "mscclpp/collectives/algorithm.hpp"

namespace mscclpp::bench {

constexpr int slotsOf(Collective collective, int ranks) { return traitsOf(collective).hasParts() ? ranks : 1; }

// A call whose buffers have parts of so many bytes; the rest is the caller's to fill in.
inline CollectiveCall sizedCall(Collective collective, int ranks, std::uint64_t partBytes) {
  auto const& traits = traitsOf(collective);
  auto const count = static_cast<std::size_t>(ranks);
  return {.inBytes = partBytes * traits.in.partsOf(count), .outBytes = partBytes * traits.out.partsOf(count)};
}

// What each link has to carry at least in each direction, for one byte of the larger buffer.
constexpr double busFactor(Collective collective, int ranks) {
  double const others = static_cast<double>(ranks - 1) / ranks;
  if (collective == Collective::allReduce) return 2 * others;
  return traitsOf(collective).hasParts() ? others : 1;
}

// Send/recv goes round a ring: to the next rank, from the previous one.
constexpr int nextRank(int rank, int ranks) { return (rank + 1) % ranks; }
constexpr int previousRank(int rank, int ranks) { return (rank + ranks - 1) % ranks; }

struct Place {
  int buffer = 0;
  int slot = 0;   // the first
  int slots = 1;  // how many

  friend constexpr bool operator==(Place const&, Place const&) = default;
};

struct Step {
  int root = 0;
  Place in;
  Place out;
};

// Operation `index` of a chain as `rank` calls it. Places that the collective does not use on this rank are given as
// well.
Step stepOf(Collective collective, bool inPlace, int rank, int ranks, int index);

// What a slot holds.
struct Content {
  enum class Kind : std::uint8_t {
    input,    // slot `slot` of what `rank` put in
    reduced,  // slot `slot` of what all ranks' inputs reduce to
    poison,   // what was there before anybody wrote
    unknown,  // a reduction of results
  };
  Kind kind = Kind::unknown;
  int rank = 0;
  int slot = 0;

  friend constexpr bool operator==(Content const&, Content const&) = default;
};

// All buffers of all ranks. Begins with every rank's input in both of its buffers.
class ExchangeModel {
 public:
  ExchangeModel(Collective collective, bool inPlace, int ranks);

  // The buffer holds nothing yet, on all ranks.
  void poison(int buffer);
  void run(int index);

  // By slot.
  std::vector<Content> const& contents(int rank, int buffer) const;

 private:
  std::vector<Content>& at(int rank, int buffer);
  Content reduced(std::vector<std::vector<Content>> const& before, int index, int offset) const;

  Collective collective_;
  bool inPlace_;
  int ranks_;
  std::vector<std::vector<Content>> contents_;  // by rank, then buffer
};

}  // namespace mscclpp::bench
