// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/machine/waiting.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mscclpp/sim/backend/wait_description.hpp"
#include "sim/machine/kernel.hpp"
#include "sim/machine/machine.hpp"
#include "sim/machine/rank_run.hpp"

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
    case ParkReason::clusterBarrier:
      return fmt::format("waits at the cluster's barrier ({} of {} threads have come)",
                         thread.block->kernel().clusterArrivals(thread.context.block),
                         thread.block->kernel().clusterThreads(thread.context.block));
    case ParkReason::warp:
      return fmt::format("waits for the lanes of its warp in mask {:#x}", number);
    case ParkReason::previousKernel:
      return "waits for the previous kernel of the stream";
    case ParkReason::none:
      break;
  }
  return "waits";
}

struct ByIndex {
  bool operator()(Block const* a, Block const* b) const { return std::pair(a->index(), a) < std::pair(b->index(), b); }
};

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
    case layout::WaitKind::programPacket:
      return fmt::format("a packet of a program in slot {} of its chunk, flag {}", channel, values);
    case layout::WaitKind::teamSignal:
      return fmt::format("the team signal{} of phase {}, epoch {}", peer, channel, values);
    case layout::WaitKind::gridBarrier:
      return fmt::format("the blocks of its grid at barrier {}, generation {}", channel, values);
    case layout::WaitKind::teamBarrier:
      return fmt::format("the team barrier{}, channel {}, epoch {}", peer, channel, values);
    case layout::WaitKind::proxy:
      return fmt::format("the host proxy{}, channel {}, FIFO position {}", peer, channel, values);
    case layout::WaitKind::portSignal:
      return fmt::format("a signal of the proxy{} on port channel {}, {}", peer, channel, values);
    case layout::WaitKind::portFlush:
      return fmt::format("the flush of port channel {}{}, FIFO position {}", channel, peer, values);
    case layout::WaitKind::hostProxy:
      return fmt::format("triggers for proxy {}, from position {} on", channel, wait.expected);
    case layout::WaitKind::abandoned:
      return fmt::format("nothing: port channel {}{} was given up", channel, peer);
    case layout::WaitKind::bulkBarrier:
      return fmt::format("arrivals and bytes at its block's bulk barrier at shared address {}, parity {}", channel,
                         wait.expected);
    case layout::WaitKind::message:
      return fmt::format("a message{}, lane {}, chunk {}", peer, channel, values);
    case layout::WaitKind::messageTaken:
      return fmt::format("room for a message{}, lane {}, chunks taken {}",
                         wait.peer < 0 ? "" : fmt::format(" to rank {}", wait.peer), channel, values);
    case layout::WaitKind::switchBarrier:
      return fmt::format("the signals of all ranks of switch channel {}, {}", channel, values);
    case layout::WaitKind::tileRound:
      return fmt::format("the begin{} of a round of tile flags, {}", peer, values);
    case layout::WaitKind::tile:
      return fmt::format("arrivals{} at tile {}, {}", peer, channel, values);
    case layout::WaitKind::misuse:
      return fmt::format("nothing: misuse number {}, limit {}, got {}", channel, wait.expected, wait.seen);
    case layout::WaitKind::none:
      break;
  }
  return fmt::format("a value{}, channel {}, {}", peer, channel, values);
}

std::vector<WaitingGroup> waitingGroups(Machine& machine) {
  std::vector<WaitingGroup> groups;
  if (auto const* const run = machine.run()) {
    for (auto const& task : run->hostTasks()) {
      if (task->state == TaskState::done) continue;
      WaitingGroup group;
      group.device = task->rank();
      group.host = true;
      group.first = task.get();
      group.what = task->state == TaskState::polling && task->hostWait != nullptr
                       ? fmt::format("waits: {}", task->hostWait)
                       : std::string("runs");
      groups.push_back(std::move(group));
    }
  }
  // (device, kernel, state) -> block -> threads, then blocks with the same threads together.
  std::map<std::tuple<int, std::string, std::string>, std::map<Block*, std::vector<unsigned>, ByIndex>> byState;
  for (auto const& stream : machine.streams()) {
    for (auto const& work : stream->queue()) {
      if (kernelOf(work) == nullptr || !kernelOf(work)->started()) continue;
      auto const& kernel = *kernelOf(work);
      for (auto const& [index, block] : kernel.blocks()) {
        for (unsigned t = 0; t < kernel.shape().threads; ++t) {
          auto& thread = block->thread(t);
          if (thread.state == TaskState::done) continue;
          byState[{stream->device(), kernel.name(), stateOf(thread)}][block.get()].push_back(t);
        }
      }
      if (!kernel.allBlocksStarted()) {
        WaitingGroup group;
        group.device = stream->device();
        group.kernel = kernel.name();
        group.what = fmt::format("blocks {}-{} have not begun: the device has no room before others end",
                                 kernel.firstWaitingBlock(), kernel.shape().blocks - 1);
        groups.push_back(std::move(group));
      }
    }
  }
  for (auto const& [key, blocks] : byState) {
    std::map<std::string, std::vector<Block*>> byThreads;
    for (auto const& [block, threads] : blocks) byThreads[plural("thread", threads)].push_back(block);
    for (auto const& [threads, sameBlocks] : byThreads) {
      auto& block = *sameBlocks.front();
      WaitingGroup group;
      std::tie(group.device, group.kernel, group.what) = key;
      for (auto const* b : sameBlocks) group.blocks.push_back(b->index());
      group.threads = blocks.at(&block);
      auto& thread = block.thread(group.threads.front());
      group.first = &thread;
      if (thread.state == TaskState::polling && thread.poll != nullptr) group.kind = thread.poll->what.kind;
      group.missesBlocks = !block.kernel().allBlocksStarted();
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

std::string plural(char const* noun, std::vector<unsigned> const& numbers) {
  return fmt::format("{}{} {}", noun, numbers.size() == 1 ? "" : "s", ranges(numbers));
}

std::string threadsOf(WaitingGroup const& group) {
  return plural("block", group.blocks) + " " + plural("thread", group.threads);
}

std::string toString(WaitingGroup const& group) {
  if (group.host) return fmt::format("host code {}", group.what);
  if (group.blocks.empty()) return fmt::format("kernel \"{}\" {}", group.kernel, group.what);
  return fmt::format("kernel \"{}\" {}: {}", group.kernel, threadsOf(group), group.what);
}

std::string waiters(Machine& machine) {
  char const* const owner = machine.deterministic() ? "rank" : "device";
  auto const groups = waitingGroups(machine);
  std::string text;
  for (std::size_t i = 0; i < std::min(groups.size(), maxLines); ++i) {
    text += fmt::format("  {} {}: {}\n", owner, groups[i].device, toString(groups[i]));
  }
  if (groups.size() > maxLines) text += fmt::format("  and {} lines more\n", groups.size() - maxLines);
  return text;
}

std::string takeFailures(Machine& machine) {
  std::string text;
  for (auto const& stream : machine.streams()) {
    if (auto const failure = stream->takeFailure(); !failure.empty()) text += "  " + failure + "\n";
  }
  return text;
}

}  // namespace mscclpp::sim
