// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Says who waits for what: one line for all threads that wait for the same.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "machine.hpp"
#include "mscclpp/sim/wait_description.hpp"

namespace mscclpp::sim {
namespace {

constexpr std::size_t maxLines = 64;

// "0-31,40".
std::string ranges(std::vector<unsigned> const& sorted) {
  std::string text;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    fmt::format_to(std::back_inserter(text), "{}{}", text.empty() ? "" : ",", sorted[i]);
    if (last > i) fmt::format_to(std::back_inserter(text), "-{}", sorted[last]);
    i = last + 1;
  }
  return text;
}

std::string plural(char const* noun, std::vector<unsigned> const& numbers) {
  return fmt::format("{}{} {}", noun, numbers.size() == 1 ? "" : "s", ranges(numbers));
}

std::string stateOf(GpuThread const& thread) {
  if (thread.state == TaskState::polling && thread.poll != nullptr) return "waits for " + toString(thread.poll->what);
  if (thread.state != TaskState::parked) return "runs";
  auto const number = thread.parkedNumber;
  switch (thread.parkedOn) {
    case ParkReason::blockBarrier:
      return fmt::format("waits at the block's barrier ({} of {} threads have come)", thread.block->barrierArrivals(0),
                         thread.block->live());
    case ParkReason::namedBarrier:
      return fmt::format("waits at barrier {} ({} of {} threads have come)", number,
                         thread.block->barrierArrivals(number), thread.block->barrierThreads(number));
    case ParkReason::warp:
      return fmt::format("waits for the lanes of its warp in mask {:#x}", number);
    case ParkReason::previousKernel:
      return "waits for the previous kernel of the stream";
    case ParkReason::none:
      break;
  }
  return "waits";
}

}  // namespace

std::string toString(WaitDescription const& wait) {
  auto const peer = wait.peer < 0 ? std::string() : fmt::format(" of rank {}", wait.peer);
  auto const values = fmt::format("expected {}, seen {}", wait.expected, wait.seen);
  auto const channel = wait.channel;
  switch (wait.kind) {
    case layout::WaitKind::semaphore:
      return fmt::format("a signal{} on channel {}, {}", peer, channel, values);
    case layout::WaitKind::packet:
      return fmt::format("a packet{} in slot {}, flag {}", peer, channel, values);
    case layout::WaitKind::teamSignal:
      return fmt::format("the team signal{} of phase {}, epoch {}", peer, channel, values);
    case layout::WaitKind::gridBarrier:
      return fmt::format("the blocks of its grid at barrier {}, generation {}", channel, values);
    case layout::WaitKind::teamBarrier:
      return fmt::format("the team barrier{}, channel {}, epoch {}", peer, channel, values);
    case layout::WaitKind::proxy:
      return fmt::format("the host proxy{}, channel {}, FIFO position {}", peer, channel, values);
    case layout::WaitKind::misuse:
      return fmt::format("nothing: misuse number {}, limit {}, got {}", channel, wait.expected, wait.seen);
    case layout::WaitKind::none:
      break;
  }
  return fmt::format("a value{}, channel {}, {}", peer, channel, values);
}

std::string Machine::waiters() {
  char const* const owner = deterministic() ? "rank" : "device";
  // (device, kernel, state) -> block -> threads, then blocks with the same threads together.
  std::map<std::tuple<int, std::string, std::string>, std::map<unsigned, std::vector<unsigned>>> byState;
  std::vector<std::string> lines;
  for (auto const& task : hostTasks_) {
    if (task->state == TaskState::done) continue;
    lines.push_back(fmt::format("{} {}: host code {}", owner, task->rank(),
                                task->state == TaskState::polling && task->hostWait != nullptr
                                    ? fmt::format("waits: {}", task->hostWait)
                                    : std::string("runs")));
  }
  for (auto const& stream : streams_) {
    for (auto const& work : stream->queue) {
      if (work.kernel == nullptr || !work.kernel->started()) continue;
      auto const& kernel = *work.kernel;
      for (auto const& [index, block] : kernel.blocks()) {
        for (unsigned t = 0; t < kernel.shape().threads; ++t) {
          auto& thread = block->thread(t);
          if (thread.state == TaskState::done) continue;
          byState[{stream->device, kernel.name(), stateOf(thread)}][index].push_back(t);
        }
      }
      if (!kernel.allBlocksStarted()) {
        lines.push_back(
            fmt::format("{} {}: kernel \"{}\" blocks {}-{} have not begun: the device has no room before "
                        "others end",
                        owner, stream->device, kernel.name(), kernel.firstWaitingBlock(), kernel.shape().blocks - 1));
      }
    }
  }
  for (auto const& [key, blocks] : byState) {
    auto const& [device, kernel, state] = key;
    std::map<std::string, std::vector<unsigned>> byThreads;
    for (auto const& [block, threads] : blocks) byThreads[plural("thread", threads)].push_back(block);
    for (auto const& [threads, sameBlocks] : byThreads) {
      lines.push_back(fmt::format("{} {}: kernel \"{}\" {} {}: {}", owner, device, kernel, plural("block", sameBlocks),
                                  threads, state));
    }
  }
  std::size_t const hidden = lines.size() > maxLines ? lines.size() - maxLines : 0;
  lines.resize(lines.size() - hidden);
  std::string text;
  for (auto const& line : lines) text += "  " + line + "\n";
  if (hidden != 0) text += fmt::format("  and {} lines more\n", hidden);
  return text;
}

std::string Machine::takeFailures() {
  std::unique_lock const lock(mutex_);
  std::string text;
  for (auto const& stream : streams_) {
    if (!stream->failure.empty()) text += "  " + std::exchange(stream->failure, {}) + "\n";
  }
  return text;
}

}  // namespace mscclpp::sim
