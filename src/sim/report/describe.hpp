// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns code addresses into source lines, inlined calls included. Called once for each finding that is kept.
//
// The work is done by addr2line or an LLVM symbolizer, run as a child process, one for each module (the program, a
// shared object); nothing is linked. Without any of them a frame is "module+offset". MSCCLPP_SYMBOLIZER names the
// program (which must take addr2line's options); empty: none. Addresses once resolved are remembered. A call costs some
// 50 ms to a second, by the size of the debug information.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mscclpp/sim/finding.hpp"

namespace mscclpp::sim {

// Fills AccessRecord::stack of every access from AccessRecord::calls: return addresses, each in the call it belongs to.
// Frames of the simulated machine are left out at both ends: how it saw the access, and how it runs a thread. In the
// time line, "@0x7f12" becomes the place with that address, "at kernel.cpp:12".
void describe(Finding& finding);

// All frames of each address, innermost first, nothing left out.
std::vector<SourceFrame> sourceFrames(std::span<std::uintptr_t const> returnAddresses);

}  // namespace mscclpp::sim
