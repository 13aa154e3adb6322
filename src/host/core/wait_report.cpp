// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/wait_report.hpp"

#include <algorithm>
#include <atomic>
#include <tuple>
#include <vector>

#include "base/format.hpp"

namespace mscclpp {
namespace {

std::string refused(layout::WaitReport const& report) {
  using layout::Misuse;
  switch (static_cast<Misuse>(report.channel)) {
    case Misuse::remoteRange:
      return fmt::format("a range up to byte {} of a buffer of rank {}, which has {}", report.seen, report.peer,
                         report.expected);
    case Misuse::localRange:
      return fmt::format("a range up to byte {} of this rank's buffer of the channel to rank {}, which has {}",
                         report.seen, report.peer, report.expected);
    case Misuse::packetRange:
      return fmt::format("a range up to byte {} of a packet buffer between this rank and rank {}, which has {}",
                         report.seen, report.peer, report.expected);
    case Misuse::teamSize:
      return fmt::format("a team of {} ranks: the collective was compiled for {}", report.seen, report.expected);
    case Misuse::blockCount:
      return fmt::format("a grid of {} blocks: the team's workspace was made for at most {}", report.seen,
                         report.expected);
    case Misuse::workspaceBytes:
      return fmt::format("a workspace region of {} bytes: at least {} are needed", report.expected, report.seen);
    case Misuse::blockThreads:
      return fmt::format("blocks of {} threads: at least {} are needed", report.seen, report.expected);
    case Misuse::countMismatch:
      return fmt::format("an output of {} elements for an input of {}", report.seen, report.expected);
    case Misuse::tornLines:
      return "LL128 packets: not every link of the team delivers 128-byte lines whole; use LL8, LL16 or plain memory";
    case Misuse::alignment:
      return fmt::format("a buffer whose address is {} bytes past a multiple of its elements' {} bytes", report.seen,
                         report.expected);
    case Misuse::windowRange:
      return fmt::format("a view up to byte {} of a symmetric window of {}", report.seen, report.expected);
    case Misuse::windowTeam:
      return fmt::format("a symmetric window of {} ranks with a team of {}", report.seen, report.expected);
    case Misuse::root:
      return fmt::format("root {}: the team has ranks 0 to {}", static_cast<std::int64_t>(report.seen),
                         report.expected - 1);
    case Misuse::unevenParts:
      return fmt::format("a buffer of {} elements for {} parts of one count", report.seen, report.expected);
    case Misuse::messageBytes:
      if (report.peer == report.rank) {
        return fmt::format("a message of {} bytes to itself, of which it receives {}", report.seen, report.expected);
      }
      return fmt::format("a message of {} bytes from rank {}, where {} are to be received", report.seen, report.peer,
                         report.expected);
    case Misuse::packetFormat:
      return fmt::format("messages by {} packets: the links were made for {}", report.seen != 0 ? "LL128" : "LL16",
                         report.expected != 0 ? "LL128" : "LL16");
    case Misuse::noMulticast:
      return "a collective through the switch: its team or window was made without multicast; make it with "
             "`multicast`, where isNvlsSupported()";
    case Misuse::fewBlocks:
      return fmt::format("a grid of {} blocks: at least {} are needed", report.seen, report.expected);
    case Misuse::switchRange:
      return fmt::format("a range up to byte {} of a switch channel's memory, which has {}", report.seen,
                         report.expected);
    case Misuse::triggerRange:
      return fmt::format(
          "a size or offset of {} bytes for the port channel to rank {}: a trigger carries at most {}; register the "
          "memory in parts, or put several times",
          report.seen, report.peer, report.expected);
    case Misuse::triggerMemory:
      return fmt::format("memory id {} for the port channel to rank {}: ids are 0 to {}", report.seen, report.peer,
                         report.expected);
    case Misuse::spentFlags:
      return fmt::format(
          "call {} of one context of a program: packets have flags for {}, so this call's result may be of older ones",
          report.seen, report.expected);
    case Misuse::astray:
      return "to go on with a team, tile flags, program or ring of messages of which a wait was given up before, here "
             "or on another rank: the ranks may have counted differently";
    case Misuse::sharedTeam:
      return "to use a team or tile flags that another kernel is still using, so that their rounds would be counted as "
             "one: each serves one kernel at a time";
    case Misuse::unheardPeer:
      return fmt::format(
          "to begin another round: this block received nothing from rank {} in round {}. Every block must receive "
          "something from every peer in every round, or slots are written again before they were read",
          report.peer, report.seen);
    case Misuse::rowColumns:
      return fmt::format(
          "a row of {} elements: the threads that work on it hold {}; take more of them, or a transport that unrolls "
          "further",
          report.seen, report.expected);
    case Misuse::rowThreads:
      return fmt::format("blocks of {} threads with several warps a row: at most {} can be", report.seen,
                         report.expected);
    case Misuse::tileBlocks:
      return fmt::format("a grid of {} blocks: the tile flags were made for at most {}", report.seen, report.expected);
    case Misuse::tileRank:
      return fmt::format("rank {} of tile flags: they have ranks 0 to {}", static_cast<std::int64_t>(report.seen),
                         report.expected - 1);
    case Misuse::tile:
      return fmt::format("tile {}: the tile flags have tiles 0 to {}", report.seen, report.expected - 1);
    case Misuse::strewnParts:
      return fmt::format(
          "a permutation of tensors with {} and {} elements before the ranks' dimension: one must divide the other",
          report.expected, report.seen);
    case Misuse::expert:
      return fmt::format("a token for expert {}: there are experts 0 to {}", static_cast<std::int64_t>(report.seen),
                         report.expected - 1);
    case Misuse::expertLimit:
      return fmt::format("a routing or rows of {}: the Experts were made for {}", report.seen, report.expected);
    case Misuse::expertRows:
      return fmt::format(
          "row {} of tokens for this rank's experts: there is room for {}; give more, or count what is dropped",
          report.seen, report.expected);
    case Misuse::planBytes:
      return fmt::format("a message of {} bytes: the program's context was made for at most {}", report.seen,
                         report.expected);
  }
  return fmt::format("misuse number {} (limit {}, given {})", report.channel, report.expected, report.seen);
}

std::string awaited(layout::WaitReport const& report) {
  using layout::WaitKind;
  switch (report.kind) {
    case WaitKind::semaphore:
      return fmt::format("a signal of rank {} on semaphore {}: expected count {}, seen {}", report.peer, report.channel,
                         report.expected, report.seen);
    case WaitKind::packet:
      return fmt::format("packet slot {} of rank {}: expected flag {}, seen {}", report.channel, report.peer,
                         report.expected, report.seen);
    case WaitKind::programPacket:
      return fmt::format("packets of its program, slot {} of a chunk: expected flag {}, seen {}", report.channel,
                         report.expected, report.seen);
    case WaitKind::teamSignal:
      return fmt::format("phase {} of rank {} in a collective: expected epoch {}, seen {}", report.channel, report.peer,
                         report.expected, report.seen);
    case WaitKind::gridBarrier:
      return fmt::format("the other blocks of its grid: expected generation {}, seen {}", report.expected, report.seen);
    case WaitKind::teamBarrier:
      return fmt::format("rank {} at a barrier of its team: expected epoch {}, seen {}", report.peer, report.expected,
                         report.seen);
    case WaitKind::proxy:
      return fmt::format("the host's proxy: expected position {}, seen {}", report.expected, report.seen);
    case WaitKind::portSignal:
      return fmt::format("a signal of rank {}'s proxy on port channel {}: expected count {}, seen {}", report.peer,
                         report.channel, report.expected, report.seen);
    case WaitKind::portFlush:
      return fmt::format("the flush of port channel {} to rank {}: the proxy has completed positions up to {} of {}",
                         report.channel, report.peer, report.seen, report.expected);
    case WaitKind::bulkBarrier:
      return fmt::format(
          "arrivals and bytes at its block's bulk barrier at shared address {}: the phase of parity {} "
          "has not ended",
          report.channel, report.expected);
    case WaitKind::message:
      return fmt::format("a message of rank {}: expected chunk {} of lane {}, seen {}", report.peer, report.expected,
                         report.channel, report.seen);
    case WaitKind::messageTaken:
      return fmt::format("rank {} to receive: expected it to have taken {} chunks of lane {}, seen {}", report.peer,
                         report.expected, report.channel, report.seen);
    case WaitKind::switchBarrier:
      return fmt::format("the ranks of switch channel {}: expected {} signals of all of them, seen {}", report.channel,
                         report.expected, report.seen);
    case WaitKind::tileRound:
      return fmt::format("rank {} to begin round {} of tile flags: the last it has begun is {}", report.peer,
                         report.expected, report.seen);
    case WaitKind::tile:
      return fmt::format("arrivals{} at tile {}: expected {}, seen {}",
                         report.peer < 0 ? "" : fmt::format(" of rank {}", report.peer), report.channel,
                         report.expected, report.seen);
    case WaitKind::hostProxy:
      return fmt::format("triggers for proxy {}, from position {} on", report.channel, report.expected);
    case WaitKind::none:
    case WaitKind::misuse:
    case WaitKind::abandoned:
      break;
  }
  return fmt::format("kind {} of rank {}, channel {}: expected {}, seen {}", static_cast<unsigned>(report.kind),
                     report.peer, report.channel, report.expected, report.seen);
}

std::string line(layout::WaitReport const& report, std::size_t threads) {
  std::string const who = fmt::format("rank {} block {} thread {}{}", report.rank, report.block, report.thread,
                                      threads > 1 ? fmt::format(" and {} more threads", threads - 1) : "");
  if (report.kind == layout::WaitKind::misuse) return fmt::format("{} refused {}", who, refused(report));
  if (report.kind == layout::WaitKind::abandoned) {
    return fmt::format(
        "{} waited on port channel {} for signal {} of rank {}, whose proxy or connection to here has failed", who,
        report.channel, report.expected, report.peer);
  }
  return fmt::format("{} waited {} for {}", who, describe(std::chrono::nanoseconds(report.waitedNs)), awaited(report));
}

// Threads that wait for the same differ only in who they are and how long.
auto topicOf(layout::WaitReport const& report) {
  return std::tuple(report.kind, report.rank, report.peer, report.channel, report.expected, report.seen);
}

char const* advice(layout::WaitReport const& report) {
  using layout::WaitKind;
  switch (report.kind) {
    case WaitKind::gridBarrier:
      return "check that all blocks of the grid fit the device at once, and that all take part";
    case WaitKind::misuse:
      switch (static_cast<layout::Misuse>(report.channel)) {
        case layout::Misuse::astray:
        case layout::Misuse::spentFlags:
          return "the next call of an AlgorithmCollection finds together with the other ranks; make teams, tile flags "
                 "and programs of your own anew, after Communicator::rejoin() on all ranks";
        case layout::Misuse::sharedTeam:
          return "give each stream a team of its own (or tile flags), or order the kernels";
        case layout::Misuse::unheardPeer:
          return "correct the kernel: where a pair has nothing to exchange, let a packet without data go both ways";
        default:
          return "correct the launch";
      }
    case WaitKind::proxy:
      return "check that the proxy is started";
    case WaitKind::message:
    case WaitKind::messageTaken:
      return "check that the other rank makes the matching call, and that calls that wait for each other are in one "
             "group (MSCCLPP_KERNEL_TIMEOUT sets the limit)";
    case WaitKind::portSignal:
    case WaitKind::portFlush:
      return "check that the proxies of both ranks are started, and that the ranks waited for run the same calls in "
             "the "
             "same order and have not failed (MSCCLPP_KERNEL_TIMEOUT sets the limit)";
    case WaitKind::abandoned:
      return "look at what that rank reports; after an error make new channels, or go on with the ranks that are left "
             "(Communicator::shrink)";
    case WaitKind::tileRound:
    case WaitKind::tile:
      return "check that all ranks launch kernels with these flags in the same order, that arrivals are as many as are "
             "awaited, and that blocks that wait leave room on the device for those that arrive "
             "(MSCCLPP_KERNEL_TIMEOUT sets the limit)";
    case WaitKind::bulkBarrier:
      return "check that each phase gets as many arrivals as init() was told, and the bytes that arriveExpect() was";
    default:
      return "check that the ranks waited for run the same calls in the same order and have not failed "
             "(MSCCLPP_KERNEL_TIMEOUT sets the limit)";
  }
}

}  // namespace

std::string explain(layout::WaitReport const& report) { return line(report, 1); }

std::string explain(layout::Watch const& watch) {
  struct Topic {
    layout::WaitReport report;
    std::size_t threads;
  };
  std::vector<Topic> topics;
  auto const begun = std::atomic_ref(const_cast<std::uint32_t&>(watch.reportCount)).load(std::memory_order_relaxed);
  std::size_t complete = 0;
  for (std::uint32_t i = 0; i < std::min(begun, layout::maxWaitReports); ++i) {
    auto const& report = watch.reports[i];
    if (std::atomic_ref(const_cast<std::uint32_t&>(report.complete)).load(std::memory_order_acquire) == 0) continue;
    ++complete;
    auto const known =
        std::ranges::find_if(topics, [&](Topic const& other) { return topicOf(other.report) == topicOf(report); });
    if (known == topics.end()) {
      topics.push_back({report, 1});
    } else {
      ++known->threads;
    }
  }
  // Who waits for blocks of its own grid waits for what these wait for.
  std::stable_partition(topics.begin(), topics.end(),
                        [](Topic const& topic) { return topic.report.kind != layout::WaitKind::gridBarrier; });
  if (topics.empty()) return {};
  std::string text;
  for (auto const& topic : topics) text += line(topic.report, topic.threads) + "\n";
  if (begun > complete) text += fmt::format("and {} more reports\n", begun - complete);
  return text + advice(topics.front().report);
}

}  // namespace mscclpp
