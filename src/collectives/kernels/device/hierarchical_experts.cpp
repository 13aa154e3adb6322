// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/kernels/device/expert_calls.hpp"
#include "mscclpp/algorithms/experts/hierarchical_combine.hpp"
#include "mscclpp/algorithms/experts/hierarchical_dispatch.hpp"
#include "mscclpp/launch/launch.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

template <class T, class W>
struct HierarchicalDispatchKernel {
  static constexpr unsigned maxThreads = 512;

  MSCCLPP_DEVICE void operator()(T const* x, Routing<std::int64_t> const& routing, RowOrder const& order,
                                 PlacedRows<W> const& placed, DeviceHierarchicalExperts const& experts) const {
    HierarchicalDispatch<T, W> const dispatch(experts, thisGrid());
    dispatch.run(MatrixView{x, routing.tokens, placed.rows.columns}, routing, order, placed);
  }
};

template <class T>
struct HierarchicalCombineKernel {
  static constexpr unsigned maxThreads = 512;

  MSCCLPP_DEVICE void operator()(MatrixView<T const> const& results, ExpertWeights weights,
                                 Routing<std::int64_t> const& routing, T* y,
                                 DeviceHierarchicalExperts const& experts) const {
    HierarchicalCombine<T> const combine(experts, thisGrid());
    combine.send(thisGrid(), results, weights);
    combine.fold(routing, MatrixView{y, routing.tokens, results.columns});
    combine.end();
  }
};

}  // namespace MSCCLPP_BACKEND

void startDispatchOverNodes(ExpertStart const& start, DispatchCall const& call, MachineTag<kernelDevice>) {
  auto const& limits = start.nodes->layout.limits;
  withExpertTypes(start, [&]<class T, class W>(std::type_identity<T>, std::type_identity<W>) {
    launch(start.stream, start.shape, HierarchicalDispatchKernel<T, W>{}, static_cast<T const*>(call.x),
           routingOf(call, limits), orderOf(call), placedOf<W>(call, limits), DeviceHierarchicalExperts(*start.nodes));
  });
}

void startCombineOverNodes(ExpertStart const& start, CombineCall const& call, MachineTag<kernelDevice>) {
  auto const& limits = start.nodes->layout.limits;
  withResultType(start, [&]<class T>(std::type_identity<T>) {
    launch(start.stream, start.shape, HierarchicalCombineKernel<T>{}, resultsOf<T>(call, limits), weightsOf(call),
           routingOf(call, limits), static_cast<T*>(call.y), DeviceHierarchicalExperts(*start.nodes));
  });
}

}  // namespace mscclpp::collectives_impl
