// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What each piece of each buffer holds while the verifier runs a program, and who wrote and read it last.
//
// A piece is a chunk, or where loops or groups of blocks cut chunks, a part of one. A value is the set of input chunks
// that were reduced into it; equal inputs of different calls count as equal, since a race would be found first.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "mscclpp/dsl/core/program.hpp"
#include "mscclpp/dsl/detail/verify/knowledge.hpp"

namespace mscclpp::dsl::detail {

inline constexpr int nothing = -1;  // no value, or one that the caller's buffer happened to hold

struct Value {
  std::vector<Contribution> holds = {};  // sorted
  int place = 0;                         // of all of them in their slice of the message; -1: of different places
  ReduceKind reduce = ReduceKind::asCalled;
  bool reduced = false;
};

struct Piece {
  Stamp written = {};
  std::vector<Stamp> reads = {};  // since it was written
  int value = nothing;
  bool packets = false;
  int message = -1;  // of the packets: what their arrival tells
};

class MemoryState {
 public:
  // `parts`: pieces of one chunk.
  constexpr MemoryState(Program const& program, int parts) : program_(program), parts_(parts) {
    std::size_t total = 0;
    for (int rank = 0; rank < program.size(); ++rank) {
      for (auto const buffer : {BufferKind::input, BufferKind::output, BufferKind::scratch}) {
        first_.push_back(total);
        int const halves = buffer == BufferKind::scratch && program.doubleScratch ? 2 : 1;
        total += static_cast<std::size_t>(program.chunks(rank, buffer) * parts * halves);
      }
    }
    pieces_.resize(total);
    for (int rank = 0; rank < program.size(); ++rank) {
      for (int chunk = 0; chunk < program.collective.inputChunks(); ++chunk)
        values_.push_back({{{rank, chunk}}, chunk % program.perSlice(BufferKind::input)});
    }
  }

  constexpr int parts() const { return parts_; }

  // Of a canonical operand's chunk, in the call with this number.
  constexpr Piece& piece(int rank, BufferKind buffer, int chunk, int part, int call) {
    int place = chunk * parts_ + part;
    if (buffer == BufferKind::scratch && program_.doubleScratch && call % 2 != 0) {
      place += program_.chunks(rank, buffer) * parts_;
    }
    return pieces_[first_[static_cast<std::size_t>(rank * 3 + static_cast<int>(buffer))] +
                   static_cast<std::size_t>(place)];
  }

  constexpr Value const& value(int id) const { return values_[static_cast<std::size_t>(id)]; }
  constexpr int inputValue(int rank, int chunk) const { return rank * program_.collective.inputChunks() + chunk; }
  constexpr int reduced(std::vector<int> const& parts, ReduceKind by) {
    std::size_t size = 0;
    for (int const id : parts) size += value(id).holds.size();
    std::vector<Contribution> holds(size);
    Contribution* to = holds.data();
    bool sorted = true;
    int place = value(parts[0]).place;
    for (int const id : parts) {
      auto const& more = value(id).holds;
      if (value(id).place != place) place = -1;
      Contribution const* const from = more.data();
      for (std::size_t i = 0; i < more.size(); ++i, ++to) {
        *to = from[i];
        sorted = sorted && (to == holds.data() || !(*to < to[-1]));
      }
    }
    if (!sorted) std::sort(holds.begin(), holds.end());
    values_.push_back({std::move(holds), place, by, true});
    return static_cast<int>(values_.size()) - 1;
  }

 private:
  Program const& program_;
  int parts_;
  std::vector<std::size_t> first_;  // by rank and buffer
  std::vector<Piece> pieces_;
  std::vector<Value> values_;  // the inputs come first
};

}  // namespace mscclpp::dsl::detail
