// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A GPU's copy engines for a proxy: copies and signals in streams of their own, watched by events. Uses no
// multiprocessor, and once made, nothing in it waits for a kernel.
#pragma once

#include <memory>

#include "mscclpp/host/copy_engine.hpp"

namespace mscclpp {

std::unique_ptr<CopyEngine> makeCudaCopyEngine(int device);

}  // namespace mscclpp
