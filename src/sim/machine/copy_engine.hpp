// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The simulated machine's copies on behalf of proxies, also between its nodes.
//
// Each call of progress() carries out one post. In a deterministic run the scheduler chooses which: copies go ahead of
// and behind each other, and of signals posted later; a signal comes after everything that was posted before it. The
// observer takes each copy for a thread of its own that knows what the proxy knew when it was posted. Otherwise, and
// where other processes share the memory, they are carried out in order.
#pragma once

#include <memory>

#include "mscclpp/host/copy_engine.hpp"

namespace mscclpp::sim {

std::unique_ptr<CopyEngine> makeCopyEngine(int device);

}  // namespace mscclpp::sim
