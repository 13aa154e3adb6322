// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An optional timeline of what the library does: triggers, transfers, waits of the host, kernels. A file for
// chrome://tracing or ui.perfetto.dev, with a process per rank and a track per proxy.
//
// Off unless MSCCLPP_TRACE names a file, which is written when the program ends, or Trace::start() is called; then each
// place that could tell something costs one relaxed load. A transfer's bar ends when its proxy learns of its end, a
// kernel's when the host does (Stream::synchronize), so they may be longer than the work. Of a timed run of the
// simulated machine (sim::RunOptions::timing) all times are those of its clocks, and there is a track for each block.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mscclpp {

class Trace {
 public:
  using Arguments = std::vector<std::pair<char const*, std::int64_t>>;

  static bool on() noexcept { return on_.load(std::memory_order_relaxed); }
  static void start();
  // Writes what has been recorded since start(), and records no more. Throws systemError where the file cannot be
  // written.
  static void stopAndWrite(std::string const& file);

  // For the library itself; callers ask on() first. Times are nanoseconds of now().
  static std::uint64_t now() noexcept;
  static void instant(int rank, int track, std::string name, Arguments arguments);
  static void span(int rank, int track, std::string name, std::uint64_t begin, Arguments arguments);
  static constexpr int hostTrack = 1000;  // below: proxies, by number
  static constexpr int kernelTrack = 1001;
  // A kernel of that stream begins; its span ends with streamIdle().
  static void kernel(void* stream, int device, std::string name);
  static void streamIdle(void* stream);

 private:
  static std::atomic<bool> on_;
};

}  // namespace mscclpp
