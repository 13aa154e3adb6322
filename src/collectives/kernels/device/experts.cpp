// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/expert_kernels.hpp"
#include "mscclpp/algorithms/experts/combine.hpp"
#include "mscclpp/algorithms/experts/dispatch.hpp"
#include "mscclpp/launch/launch.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

template <class T, class W>
struct DispatchKernel {
  static constexpr unsigned maxThreads = 512;

  MSCCLPP_DEVICE void operator()(T const* x, Routing<std::int64_t> const& routing, RowOrder const& order,
                                 PlacedRows<W> const& placed, DeviceExperts const& experts) const {
    Dispatch<T, W> const dispatch(experts, thisGrid());
    dispatch.run(MatrixView{x, routing.tokens, placed.rows.columns}, routing, order, placed);
  }
};

template <class T>
struct CombineKernel {
  static constexpr unsigned maxThreads = 512;

  MSCCLPP_DEVICE void operator()(MatrixView<T const> const& results, ExpertWeights weights,
                                 Routing<std::int64_t> const& routing, T* y, DeviceExperts const& experts) const {
    Combine<T> const combine(experts, thisGrid());
    combine.send(thisGrid(), results, weights);
    combine.fold(thisGrid(), routing, MatrixView{y, routing.tokens, results.columns});
    combine.end();
  }
};

template <class T, class W>
void startDispatchOf(ExpertStart const& start, DispatchCall const& call) {
  auto const& limits = start.experts.layout.limits;
  PlacedRows<W> const placed{.rows = {static_cast<W*>(call.rows), call.room, limits.hidden},
                             .scales = call.scales,
                             .firsts = call.firsts,
                             .counts = call.counts,
                             .origins = call.origins,
                             .weights = call.rowWeights,
                             .experts = call.rowExperts,
                             .dropped = call.dropped};
  Routing<std::int64_t> const routing{.experts = call.experts,
                                      .weights = call.weights,
                                      .tokens = call.tokens,
                                      .topK = limits.topK,
                                      .unsent = call.unsent,
                                      .unsentCount = call.unsentCount};
  auto const order = call.order == ExpertOrder::packed   ? RowOrder(PackedByExpert{call.orderRows})
                     : call.order == ExpertOrder::padded ? RowOrder(PaddedByExpert{call.orderRows})
                                                         : RowOrder(ByToken{});
  launch(start.stream, start.shape, DispatchKernel<T, W>{}, static_cast<T const*>(call.x), routing, order, placed,
         DeviceExperts(start.experts));
}

template <class T>
void startCombineOf(ExpertStart const& start, CombineCall const& call) {
  auto const& limits = start.experts.layout.limits;
  Routing<std::int64_t> const routing{call.experts, call.weights, call.tokens, limits.topK};
  launch(start.stream, start.shape, CombineKernel<T>{},
         MatrixView<T const>{static_cast<T const*>(call.results), call.rows, limits.hidden},
         call.weighted ? ExpertWeights::asRouted : ExpertWeights::none, routing, static_cast<T*>(call.y),
         DeviceExperts(start.experts));
}

template <class T>
void startSmallDispatch(ExpertStart const& start, DispatchCall const& call) {
  if (start.wire == DataType::float8E4M3) return startDispatchOf<T, Float8E4M3>(start, call);
  if (start.wire == DataType::int8) return startDispatchOf<T, std::int8_t>(start, call);
  startDispatchOf<T, T>(start, call);
}

}  // namespace MSCCLPP_BACKEND

void startDispatch(ExpertStart const& start, DispatchCall const& call, MachineTag<kernelDevice>) {
  if (start.type == DataType::float16) return startSmallDispatch<Half>(start, call);
  if (start.type == DataType::bfloat16) return startSmallDispatch<BFloat16>(start, call);
  startDispatchOf<float, float>(start, call);
}

void startCombine(ExpertStart const& start, CombineCall const& call, MachineTag<kernelDevice>) {
  if (start.type == DataType::float16) return startCombineOf<Half>(start, call);
  if (start.type == DataType::bfloat16) return startCombineOf<BFloat16>(start, call);
  startCombineOf<float>(start, call);
}

}  // namespace mscclpp::collectives_impl
