// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls that may fail, and what must hold of those after a failure; on either machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/every_collective.hpp"

namespace mscclpp_test {

// What a rank found in each call: empty where it was right, else what it threw.
using Outcomes = std::vector<std::string>;

// Calls of one rank, each with data that no other call has. What peers may still write to stays.
class Calls {
 public:
  Calls(Communicator& communicator, Algorithm const& algorithm)
      : communicator_(communicator), algorithm_(algorithm), stream_(communicator.device()) {}

  bool refused() { return !algorithm_.refusal(communicator_, next().call(true)).empty(); }

  // `count` calls, one behind the other: right, or what they throw.
  std::string make(int count = 1) {
    auto const first = made_.size();
    std::string failure;
    auto const attempt = [&](auto&& act) {
      try {
        act();
      } catch (Error const& error) {
        failure = error.what();
      }
    };
    for (int i = 0; i < count; ++i) {
      attempt([&] { algorithm_.execute(communicator_, stream_, next().call(true)); });
    }
    attempt([&] { communicator_.synchronize(stream_); });
    if (!failure.empty()) return failure;
    for (auto i = first; i < made_.size(); ++i) {
      CHECK_MESSAGE(made_[i]->wrong() == 0, nameOf(algorithm_.collective()), " by ", algorithm_.name(), ": call ", i,
                    " is silently wrong on rank ", communicator_.rank());
    }
    return {};
  }

  std::size_t made() const { return made_.size(); }
  // The data of a call that is not made.
  Exchange const& next() {
    bool const inTurn = algorithm_.collective() == Collective::reduce && algorithm_.name() == "chain";
    made_.push_back(
        std::make_unique<Exchange>(communicator_, algorithm_.collective(), 130, 0, true, 1000 + made_.size(), inTurn));
    return *made_.back();
  }

 private:
  Communicator& communicator_;
  Algorithm const& algorithm_;
  Stream stream_;
  std::vector<std::unique_ptr<Exchange>> made_;
};

// After the failure every call was right on all ranks or threw on all, and the last ones were right.
inline void checkRecovery(std::vector<Outcomes> const& all, std::size_t failed, std::string const& what) {
  for (std::size_t call = failed + 1; call < all[0].size(); ++call) {
    std::size_t right = 0;
    for (auto const& rank : all) right += rank[call].empty() ? 1 : 0;
    bool const sound = right == 0 || right == all.size();
    CHECK_MESSAGE(sound, what, ": call ", call, " was right on ", right, " of ", all.size(),
                  " ranks: ", all.front()[call], " / ", all.back()[call]);
    if (call + 1 == all[0].size()) CHECK_MESSAGE(right == all.size(), what, ": the last call: ", all[0][call]);
  }
}

}  // namespace mscclpp_test
