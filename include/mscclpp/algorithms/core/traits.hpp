// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The collectives by name, and what each asks of its buffers: one row a collective, of which every rule about sizes and
// places is a reading. A part is what one rank has of the data; it is the whole buffer where nobody has more than one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace mscclpp {

enum class Collective : std::uint8_t {
  allReduce,
  allGather,
  reduceScatter,
  allToAll,
  broadcast,
  reduce,
  gather,
  scatter,
  sendRecv,
  barrier,
};

// What a buffer has of the data: nothing, one rank's part, or the parts of all, in the order of ranks.
enum class Extent : std::uint8_t { none, onePart, partPerRank };

// What a collective asks of its input, or of its output.
struct BufferTraits {
  Extent extent = Extent::onePart;
  bool rootOnly = false;  // the other ranks have none

  // How many parts the buffer has among so many ranks; isUsed(): whether a rank has it at all, at the root or not.
  constexpr std::size_t partsOf(std::size_t ranks) const {
    return extent == Extent::none ? 0 : extent == Extent::onePart ? 1 : ranks;
  }
  constexpr bool isUsed(bool atRoot) const { return extent != Extent::none && (atRoot || !rootOnly); }
};

// A row of the table. `name` is what profiles, plans and messages call the collective.
struct CollectiveTraits {
  Collective collective;
  std::string_view name;
  BufferTraits in;
  BufferTraits out;
  bool reduces = false;  // the others move bytes and take no operation
  bool inPlace = true;   // has a form in which nothing is overwritten that is yet to be sent

  // One rank differs from the others.
  constexpr bool hasRoot() const { return in.rootOnly || out.rootOnly; }
  // A buffer has a part for each rank.
  constexpr bool hasParts() const { return in.extent == Extent::partPerRank || out.extent == Extent::partPerRank; }
  constexpr bool outIsLarger() const { return out.extent > in.extent; }
  // A call is sized by the buffer that every rank has, the input where both are.
  constexpr bool sizedByInput() const { return !in.rootOnly; }

  // Parts of the larger buffer.
  constexpr std::size_t partsOf(std::size_t ranks) const { return hasParts() ? ranks : 1; }
  // Of the larger buffer, which is what SelectionRequest::bytes counts, as the buffer by which a call is sized tells.
  constexpr std::size_t wholeBytes(std::size_t inBytes, std::size_t outBytes, std::size_t ranks) const {
    auto const extent = (sizedByInput() ? in : out).extent;
    return (sizedByInput() ? inBytes : outBytes) * (extent == Extent::partPerRank ? 1 : partsOf(ranks));
  }
  // Where the smaller buffer lies in the larger one when both are the same memory: where this rank's part is, if any.
  constexpr std::size_t inPlaceOffset(std::size_t rank, std::size_t partBytes) const {
    return in.extent == out.extent ? 0 : rank * partBytes;
  }
};

// In the order of Collective.
inline constexpr auto collectiveTraits = [] {
  using enum Collective;
  using enum Extent;
  constexpr bool atRoot = true;
  return std::array{
      CollectiveTraits{allReduce, "allreduce", {onePart}, {onePart}, true},
      CollectiveTraits{allGather, "allgather", {onePart}, {partPerRank}},
      CollectiveTraits{reduceScatter, "reducescatter", {partPerRank}, {onePart}, true},
      CollectiveTraits{allToAll, "alltoall", {partPerRank}, {partPerRank}, false, false},
      CollectiveTraits{broadcast, "broadcast", {onePart, atRoot}, {onePart}},
      CollectiveTraits{reduce, "reduce", {onePart}, {onePart, atRoot}, true},
      CollectiveTraits{gather, "gather", {onePart}, {partPerRank, atRoot}},
      CollectiveTraits{scatter, "scatter", {partPerRank, atRoot}, {onePart}},
      CollectiveTraits{sendRecv, "sendrecv", {onePart}, {onePart}, false, false},
      CollectiveTraits{barrier, "barrier", {none}, {none}},
  };
}();

inline constexpr auto collectives = [] {
  std::array<Collective, collectiveTraits.size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = collectiveTraits[i].collective;
  return all;
}();
static_assert([] {
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    if (static_cast<std::size_t>(collectives[i]) != i) return false;
  }
  return true;
}());

// The row of a collective, by a look-up; the functions below read one column each.
constexpr CollectiveTraits const& traitsOf(Collective collective) {
  return collectiveTraits[static_cast<std::size_t>(collective)];
}

// Its name; whether it takes an operation; whether one rank differs from the others.
constexpr std::string_view nameOf(Collective collective) { return traitsOf(collective).name; }
constexpr bool reduces(Collective collective) { return traitsOf(collective).reduces; }
constexpr bool hasRoot(Collective collective) { return traitsOf(collective).hasRoot(); }

// The collective of that very name; nullopt where there is none.
constexpr std::optional<Collective> collectiveByName(std::string_view wanted) {
  for (auto const& traits : collectiveTraits) {
    if (traits.name == wanted) return traits.collective;
  }
  return std::nullopt;
}

}  // namespace mscclpp
