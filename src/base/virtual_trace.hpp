// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a timed run of the simulated machine adds to the trace (mscclpp/host/trace.hpp), which goes by the run's clock
// meanwhile. Times are nanoseconds of that clock. Callers of span() ask Trace::on() first.
#pragma once

#include <cstdint>
#include <string>

namespace mscclpp::virtual_trace {

// From now on Trace::now() tells the moment of this call and what `clock` has counted; null: the host's clock again.
// Until then Trace::kernel() notes nothing: whoever has the clock knows better when kernels run.
void keepTime(std::uint64_t (*clock)());

// Of copies in streams; below it, from Trace::kernelTrack on, of kernels as a whole; above it, of blocks.
inline constexpr int copyTrack = 1999;

// Spans of one track lie one behind the other or one in the other.
void span(int rank, int track, std::string name, std::uint64_t begin, std::uint64_t end);
void nameTrack(int rank, int track, std::string name);

}  // namespace mscclpp::virtual_trace
