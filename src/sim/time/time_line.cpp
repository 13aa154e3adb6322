// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/time/time_line.hpp"

#include <utility>

#include "base/format.hpp"
#include "base/virtual_trace.hpp"
#include "mscclpp/host/trace.hpp"
#include "sim/time/virtual_time.hpp"

namespace mscclpp::sim {
namespace {

std::uint64_t nanoseconds(Picoseconds time) { return time / 1000; }

void show(int device, int track, std::string name, Picoseconds begin, Picoseconds end) {
  virtual_trace::span(device, track, std::move(name), nanoseconds(begin), nanoseconds(end));
}

int trackOf(GpuThread const& thread) {
  return virtual_trace::copyTrack + 1 + VirtualTime::mostLanes * static_cast<int>(thread.context.block) + thread.lane;
}

std::string laneText(int lane) { return lane == 0 ? "" : fmt::format(", overlapping {}", lane); }

}  // namespace

TracedTime::TracedTime() {
  virtual_trace::keepTime([] { return nanoseconds(VirtualTime::running->now()); });
}
TracedTime::~TracedTime() { virtual_trace::keepTime(nullptr); }

bool isTraced() { return VirtualTime::running != nullptr && Trace::on(); }

bool isShown(Task const& task) {
  if (!task.isGpuThread()) return false;
  auto const& thread = static_cast<GpuThread const&>(task);
  return thread.context.thread == 0 && !thread.ofHost && isTraced();
}

void showKernel(int device, int lane, std::string name, Picoseconds begin, Picoseconds end) {
  virtual_trace::nameTrack(device, Trace::kernelTrack + lane, "kernels" + laneText(lane));
  show(device, Trace::kernelTrack + lane, std::move(name), begin, end);
}

void showThread(GpuThread const& thread, std::string const& kernel) {
  virtual_trace::nameTrack(thread.context.device, trackOf(thread),
                           fmt::format("block {}{}", thread.context.block, laneText(thread.lane)));
  show(thread.context.device, trackOf(thread), kernel, thread.began, thread.time.now);
}

void showWait(GpuThread const& thread, std::string what, Picoseconds begin) {
  if (thread.time.now > begin) show(thread.context.device, trackOf(thread), std::move(what), begin, thread.time.now);
}

void showCopy(int device, std::size_t bytes, Picoseconds begin, Picoseconds end) {
  show(device, virtual_trace::copyTrack, fmt::format("copy of {} bytes", bytes), begin, end);
}

}  // namespace mscclpp::sim
