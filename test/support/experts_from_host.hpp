// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A layer of experts (support/experts.hpp) by calls from the host.
#pragma once

#include <cstdint>

#include "mscclpp/collectives/expert_parallel.hpp"
#include "support/experts.hpp"

namespace mscclpp_test {
inline namespace MSCCLPP_BACKEND {

template <class T, class W>
class FromHost {
 public:
  FromHost(Communicator const& communicator, layout::ExpertLimits const& limits, ExpertsCase const& test)
      : test_(test), experts_(communicator, limits, dataTypeOf<T>(), dataTypeOf<W>()) {}

  void dispatch(Stream const& stream, LaunchShape const&, T const* x, Routing<std::int64_t> const& routing,
                PlacedRows<W> const& placed, std::int32_t const* failed) const {
    auto const order = test_.byToken             ? ExpertOrder::byToken
                       : test_.rowsOfExpert != 0 ? ExpertOrder::padded
                                                 : ExpertOrder::packed;
    experts_.dispatch(stream, {.x = x,
                               .experts = routing.experts,
                               .weights = routing.weights,
                               .tokens = routing.tokens,
                               .order = order,
                               .orderRows = test_.rowsOfExpert != 0 ? test_.rowsOfExpert : test_.alignment,
                               .rows = placed.rows.data,
                               .room = placed.rows.rows,
                               .scales = placed.scales,
                               .firsts = placed.firsts,
                               .counts = placed.counts,
                               .origins = placed.origins,
                               .rowWeights = placed.weights,
                               .rowExperts = placed.experts,
                               .dropped = placed.dropped,
                               .failed = failed,
                               .unsent = routing.unsent,
                               .unsentCount = routing.unsentCount});
  }
  void combine(Stream const& stream, LaunchShape const&, T const* results, Routing<std::int64_t> const& routing, T* y,
               std::int32_t const* failed) const {
    experts_.combine(stream, {.results = results,
                              .rows = test_.rows(),
                              .experts = routing.experts,
                              .weights = routing.weights,
                              .tokens = routing.tokens,
                              .y = y,
                              .weighted = test_.weights == ExpertWeights::asRouted,
                              .failed = failed});
  }
  layout::ExpertsHandle deviceHandle(std::int32_t const* failed) const { return experts_.deviceHandle(failed); }

 private:
  ExpertsCase const& test_;
  ExpertParallel experts_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp_test
