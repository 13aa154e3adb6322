// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which relaxed signals and waits of a program would have to hand over data for it to be right. Filled while the
// verifier runs it: every signal that a wait took, and behind each read of what only relaxed ones tell of, the first of
// them on the way there.
#pragma once

#include <vector>

#include "mscclpp/dsl/detail/verify/knowledge.hpp"

namespace mscclpp::dsl::detail {

// A step of a program. Block -1: the caller of the rank.
struct Place {
  int rank = 0, block = 0, step = 0;
};

// A signal and the wait that took it.
struct Handover {
  Place signal{}, wait{};
  int sent = 0;  // copy of what the sender knew
  bool relaxed = false;
};

class Handovers {
 public:
  constexpr void add(Handover const& handover) { all_.push_back(handover); }

  // `reader` needs `written`, of which it has heard: notes who must hand it over. False where no relaxed signal told.
  constexpr bool demand(Stamp const& written, Place reader, std::vector<Knowledge> const& copies) {
    bool any = false;
    for (std::size_t before = all_.size();;) {
      // By the block itself, else by another block of the rank that told it.
      auto found = firstThatTold(written, reader, before, copies, true);
      if (found == before) found = firstThatTold(written, reader, before, copies, false);
      if (found == before) return any;
      auto const& handover = all_[found];
      if (handover.relaxed) {
        needed_.push_back(handover.signal);
        needed_.push_back(handover.wait);
        any = true;
      }
      if (copies[static_cast<std::size_t>(handover.sent)].knowsData(written)) return any;
      reader = handover.signal;
      before = found;
    }
  }

  // Steps, some several times.
  constexpr std::vector<Place> const& needed() const { return needed_; }

 private:
  constexpr std::size_t firstThatTold(Stamp const& written, Place const& reader, std::size_t before,
                                      std::vector<Knowledge> const& copies, bool sameBlock) const {
    for (std::size_t i = 0; i < before; ++i) {
      auto const& each = all_[i];
      if (each.wait.rank != reader.rank || (sameBlock && each.wait.block != reader.block)) continue;
      if (copies[static_cast<std::size_t>(each.sent)].knowsOrder(written)) return i;
    }
    return before;
  }

  std::vector<Handover> all_;
  std::vector<Place> needed_;
};

}  // namespace mscclpp::dsl::detail
