// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program as device code, compiled for its steps:
//
//   launch(stream, context.launchShape(), dsl::Kernel<Mine, float, Max>{}, in, out, count, context.deviceHandle(),
//          inWindow, outWindow);
//
// or dsl::kernel<Mine, Max>(in, out, count, plan, inWindow, outWindow), called by all threads of a kernel of one's own
// with that shape. A call begins with a barrier of the block and ends without one. Called again in one kernel, a
// program of one block needs nothing between the calls, while the blocks of others meet there: the proof takes it that
// a rank's blocks end a call together, as at a kernel's end. `count` is the elements of the message: of one rank's part
// where a buffer holds a part of each rank. Windows are needed for buffers of other ranks that the program reads or
// writes; `in` and `out` lie at the same place in them on every rank. A program whose ports touch input or output gets
// the context's handle for these windows. A program that is not right does not compile; one of Spec::compiled = false
// has no context.
#pragma once

#include <cstddef>

#include "mscclpp/dsl/build.hpp"
#include "mscclpp/dsl/detail/run/compiled.hpp"

namespace mscclpp {

namespace dsl::detail {

template <class P>
struct ProgramCode {
  static constexpr auto const& image = imageOf<P>;
  static constexpr bool isCode = stepsAreCode<P>();
};

}  // namespace dsl::detail

namespace dsl {
inline namespace MSCCLPP_BACKEND {

template <ProgramType P, class Op = Sum, PacketFormat F = LL16, Number T>
MSCCLPP_DEVICE void kernel(T const* in, T* out, std::uint64_t count, layout::PlanHandle const& plan,
                           layout::WindowHandle const& inWindow, layout::WindowHandle const& outWindow) {
  dsl_impl::runProgram<mscclpp::dsl::detail::ProgramCode<P>, Op, F>(in, out, count, plan, inWindow, outWindow);
}

template <ProgramType P, Number T, class Op = Sum, PacketFormat F = LL16>
struct Kernel {
  static constexpr unsigned maxThreads = static_cast<unsigned>(P::spec.threads);

  MSCCLPP_DEVICE void operator()(T const* in, T* out, std::uint64_t count, layout::PlanHandle const& plan,
                                 layout::WindowHandle const& inWindow, layout::WindowHandle const& outWindow) const {
    dsl::kernel<P, Op, F>(in, out, count, plan, inWindow, outWindow);
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace dsl
}  // namespace mscclpp
