// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether this process has its simulated machine. See sim/runtime.hpp.
#pragma once

namespace mscclpp::sim {

// Makes runtime(DeviceKind::sim) answer, with default options unless install() chose others. Harmless to repeat.
bool ensureInstalled();

}  // namespace mscclpp::sim
