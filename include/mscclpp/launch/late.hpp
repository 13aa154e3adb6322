// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a source that is compiled at run time has behind it: the entry of one kernel type, with the parameters that the
// host passes. Included by what the library writes, not by users.
#pragma once

#include "mscclpp/launch/argument_list.hpp"

#if defined(__CUDACC__)
#include "mscclpp/launch/cuda_entry.hpp"
#else
#include "mscclpp/launch/sim_entry.hpp"
#endif

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace arch {

struct Extent {
  unsigned bytes;
  unsigned alignment;
};

template <class Kernel>
using LateArguments = typename ArgumentsOf<typename mscclpp::detail::CallSignature<Kernel>::Parameters>::type;

template <class... P>
constexpr bool haveExtents(std::tuple<P...>*, Extent const* extents, unsigned count) {
  if (sizeof...(P) != count) return false;
  [[maybe_unused]] unsigned i = 0;
  return ((extents[i].bytes == sizeof(P) && extents[i++].alignment == alignof(P)) && ...);
}
// Whether the parameters of `Kernel` are as long as those that the host passes.
template <class Kernel, unsigned Count>
constexpr bool takes(Extent const (&extents)[Count]) {
  // The last is a mark, for kernels of no parameters.
  return haveExtents(static_cast<typename mscclpp::detail::CallSignature<Kernel>::Parameters*>(nullptr), extents,
                     Count - 1);
}

}  // namespace arch
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
