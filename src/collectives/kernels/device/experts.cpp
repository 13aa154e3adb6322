// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/expert_calls.hpp"
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

}  // namespace MSCCLPP_BACKEND

void startDispatch(ExpertStart const& start, DispatchCall const& call, MachineTag<kernelDevice> machine) {
  if (start.nodes != nullptr) return startDispatchOverNodes(start, call, machine);
  auto const& limits = start.experts.layout.limits;
  withExpertTypes(start, [&]<class T, class W>(std::type_identity<T>, std::type_identity<W>) {
    launch(start.stream, start.shape, DispatchKernel<T, W>{}, static_cast<T const*>(call.x), routingOf(call, limits),
           orderOf(call), placedOf<W>(call, limits), DeviceExperts(start.experts));
  });
}

void startCombine(ExpertStart const& start, CombineCall const& call, MachineTag<kernelDevice> machine) {
  if (start.nodes != nullptr) return startCombineOverNodes(start, call, machine);
  auto const& limits = start.experts.layout.limits;
  withResultType(start, [&]<class T>(std::type_identity<T>) {
    launch(start.stream, start.shape, CombineKernel<T>{}, resultsOf<T>(call, limits), weightsOf(call),
           routingOf(call, limits), static_cast<T*>(call.y), DeviceExperts(start.experts));
  });
}

}  // namespace mscclpp::collectives_impl
