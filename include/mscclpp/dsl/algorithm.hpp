// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs as algorithms of a collection, as plans are (plan_algorithm.hpp), and compiled here, for the types and
// operations that are named:
//
//   algorithms.add(dsl::programAlgorithm<Mine, dsl::Types<float, BFloat16>, dsl::Operations<Sum, Max>>());
//   algorithms.setSelector([](SelectionRequest const& r) { return Selection{.algorithm = "mine"}; });
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "mscclpp/dsl/kernel.hpp"
#include "mscclpp/dsl/plan_algorithm.hpp"
#include "mscclpp/launch/launch.hpp"

namespace mscclpp::dsl {

template <Number... T>
struct Types {};
template <class... Op>
struct Operations {};

}  // namespace mscclpp::dsl

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

template <class P, class Types, class Ops>
class CompiledRun;

template <class P, Number... T, class... Op>
class CompiledRun<P, dsl::Types<T...>, dsl::Operations<Op...>> {
 public:
  CompiledRun(Communicator const& communicator, dsl::ExecutionPlan const& plan, std::uint64_t maxBytes)
      : context_(communicator, plan.program(), plan.verdict(), maxBytes, dsl::stepFormOf<P>) {}

  void execute(Stream const& stream, dsl::PlanExecution const& call) const {
    ((call.type == dataTypeOf<T>() ? start<T>(stream, call) : void()), ...);
  }
  static std::string refusal(CollectiveCall const& call) {
    if (!((call.type == dataTypeOf<T>()) || ...)) {
      return "it is compiled for other types than " + std::string(nameOf(call.type));
    }
    if (call.op != ReduceOp::none && !((call.op == reduceOpOf<Op>()) || ...)) {
      return "it is compiled for other operations than " + std::string(nameOf(call.op));
    }
    return {};
  }

 private:
  template <class E>
  void start(Stream const& stream, dsl::PlanExecution const& call) const {
    if (call.op == ReduceOp::none) return start<E, Sum>(stream, call);  // nothing is reduced
    ((call.op == reduceOpOf<Op>() ? start<E, Op>(stream, call) : void()), ...);
  }
  template <class E, class O>
  void start(Stream const& stream, dsl::PlanExecution const& call) const {
    auto const bytes = call.inBytes / static_cast<unsigned>(context_.deviceHandle().shape.inputSlices);
    layout::WindowHandle const none{};
    launch(stream, context_.launchShape(bytes), dsl::Kernel<P, E, O>{}, static_cast<E const*>(call.in),
           static_cast<E*>(call.out), bytes / sizeof(E), context_.deviceHandle(call.inWindow, call.outWindow),
           call.inWindow == nullptr ? none : call.inWindow->deviceHandle(),
           call.outWindow == nullptr ? none : call.outWindow->deviceHandle());
  }

  dsl::PlanContext context_;
};

}  // namespace dsl_impl

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp

namespace mscclpp::dsl {
inline namespace MSCCLPP_BACKEND {

// By kernels that this translation unit is compiled for. Throws as planAlgorithm.
template <ProgramType P, class OfTypes = Types<float, Half, BFloat16>, class Ops = Operations<Sum>>
std::shared_ptr<Algorithm const> programAlgorithm() {
  static_assert(isRight<P>);
  using Run = dsl_impl::CompiledRun<P, OfTypes, Ops>;
  return detail::algorithmOf<Run>(ExecutionPlan(build<P>()), &Run::refusal);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::dsl
