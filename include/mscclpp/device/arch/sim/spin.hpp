// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a spinning thread does between two looks at its condition, on the simulated machine: it lets others run. Twin of
// arch/cuda/spin.hpp.
#pragma once

#include <cstdint>

#include "mscclpp/base/config.hpp"
#include "mscclpp/layout/watch.hpp"
#include "mscclpp/sim/backend/poll.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

MSCCLPP_DEVICE void letPass(unsigned) {}

class Spin {
 public:
  MSCCLPP_DEVICE explicit Spin(layout::Watch* watch) : state_{{}, watch, 0, 0} { sim::beginWait(); }

  // Called after the condition was found false; false once the wait has to be given up.
  template <class Missing>
  MSCCLPP_DEVICE bool again(Missing const& missing) {
    state_.what = describe(missing);
    if (state_.watch != nullptr) state_.what.rank = state_.watch->rank;
    return sim::pollYield(state_);
  }

  // Called once the condition was found true.
  template <class Missing>
  MSCCLPP_DEVICE void end(Missing const& missing) {
    sim::endWait(describe(missing));
  }

  MSCCLPP_DEVICE std::uint64_t waitedNs() const {
    return state_.startNs == 0 ? 0 : sim::nanoseconds() - state_.startNs;
  }

 private:
  template <class Missing>
  MSCCLPP_DEVICE static sim::WaitDescription describe(Missing const& missing) {
    std::uint64_t seen = 0;
    layout::WaitFor const what = missing(seen);
    return {what.kind, -1, what.peer, what.channel, what.expected, seen};
  }

  sim::PollState state_;
};

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
