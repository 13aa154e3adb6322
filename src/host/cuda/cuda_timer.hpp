// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Seconds between two points of a CUDA stream, by events.
#pragma once

#include <functional>

#include "mscclpp/host/error.hpp"
#include "mscclpp/host/stream.hpp"

namespace mscclpp {

// Of what `work`, called once, puts into the stream; returns when it is done.
#if defined(MSCCLPP_HAS_CUDA)
double timeOnCuda(Stream const& stream, std::function<void()> const& work);
#else
inline double timeOnCuda(Stream const&, std::function<void()> const&) {
  throw Error(ErrorCode::unsupported, "this build of the library has no CUDA (MSCCLPP_USE_CUDA)");
}
#endif

}  // namespace mscclpp
