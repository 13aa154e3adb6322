// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls of mscclpp/collectives/expert_parallel.hpp as arguments of kernels.
#pragma once

#include <cstdint>
#include <type_traits>

#include "collectives/kernels/expert_kernels.hpp"
#include "mscclpp/algorithms/experts/combine.hpp"
#include "mscclpp/algorithms/experts/dispatch.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

template <class W>
PlacedRows<W> placedOf(DispatchCall const& call, layout::ExpertLimits const& limits) {
  return {.rows = {static_cast<W*>(call.rows), call.room, limits.hidden},
          .scales = call.scales,
          .firsts = call.firsts,
          .counts = call.counts,
          .origins = call.origins,
          .weights = call.rowWeights,
          .experts = call.rowExperts,
          .dropped = call.dropped};
}

inline Routing<std::int64_t> routingOf(DispatchCall const& call, layout::ExpertLimits const& limits) {
  return {.experts = call.experts,
          .weights = call.weights,
          .tokens = call.tokens,
          .topK = limits.topK,
          .unsent = call.unsent,
          .unsentCount = call.unsentCount};
}
inline Routing<std::int64_t> routingOf(CombineCall const& call, layout::ExpertLimits const& limits) {
  return {call.experts, call.weights, call.tokens, limits.topK};
}

inline RowOrder orderOf(DispatchCall const& call) {
  return call.order == ExpertOrder::packed   ? RowOrder(PackedByExpert{call.orderRows})
         : call.order == ExpertOrder::padded ? RowOrder(PaddedByExpert{call.orderRows})
                                             : RowOrder(ByToken{});
}

template <class T>
MatrixView<T const> resultsOf(CombineCall const& call, layout::ExpertLimits const& limits) {
  return {static_cast<T const*>(call.results), call.rows, limits.hidden};
}
inline ExpertWeights weightsOf(CombineCall const& call) {
  return call.weighted ? ExpertWeights::asRouted : ExpertWeights::none;
}

// f(a T, a W): of tokens, and of rows on their way.
template <class F>
void withExpertTypes(ExpertStart const& start, F const& f) {
  auto const with = [&](auto t) {
    if (start.wire == DataType::float8E4M3) return f(t, std::type_identity<Float8E4M3>());
    if (start.wire == DataType::int8) return f(t, std::type_identity<std::int8_t>());
    f(t, t);
  };
  if (start.type == DataType::float16) return with(std::type_identity<Half>());
  if (start.type == DataType::bfloat16) return with(std::type_identity<BFloat16>());
  f(std::type_identity<float>(), std::type_identity<float>());
}
template <class F>
void withResultType(ExpertStart const& start, F const& f) {
  if (start.type == DataType::float16) return f(std::type_identity<Half>());
  if (start.type == DataType::bfloat16) return f(std::type_identity<BFloat16>());
  f(std::type_identity<float>());
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
