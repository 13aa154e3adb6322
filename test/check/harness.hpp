// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Planted faults: programs that exist twice, once with one thing wrong, and what the checker must say of each.
//
// A program is a template over Fault with one body, in which `planted<F>` is asked once. Its kernel, or its host code,
// is operator(). The lines that a finding must name carry a mark, a comment
// `// <- name` at their end; the harness reads the marks from the test's own source.
//
//   checkKernel<Program>({FindingKind::race, {"store", "load"}}, {.ranks = 2, .threads = 32});
//
// explores Program<Fault::planted> until that finding has come, within 60 s, and lets no schedule of
// Program<Fault::none> have any.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "check/explore_ranks.hpp"
#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/device/group.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/device/team.hpp"
#include "mscclpp/host/memory_channel.hpp"
#include "support/world.hpp"

namespace check_test {

using sim::FindingKind;

enum class Fault : std::uint8_t { none, planted };

template <Fault F>
inline constexpr bool planted = F == Fault::planted;

// ---- what programs are made of --------------------------------------------------------------------------------------

// Memory of the same size on every rank, as kernels see it: plain words, and words for flags and counters.
struct Peers {
  static constexpr int most = 32;
  static constexpr std::size_t dataWords = 1024;
  static constexpr std::size_t flagWords = 512;

  int rank = 0;
  int size = 0;
  std::byte* memory[most] = {};

  MSCCLPP_DEVICE std::uint32_t* data(int ofRank, unsigned i = 0) const {
    return reinterpret_cast<std::uint32_t*>(memory[ofRank]) + i;
  }
  MSCCLPP_DEVICE std::uint64_t* flag(int ofRank, unsigned i = 0) const {
    return reinterpret_cast<std::uint64_t*>(memory[ofRank] + dataWords * sizeof(std::uint32_t)) + i;
  }
  MSCCLPP_DEVICE int peer() const { return 1 - rank; }  // of two
};

// The memory behind Peers. Making it is collective.
class SharedMemory {
 public:
  explicit SharedMemory(Rank const& rank)
      : own_(rank.device, Peers::dataWords * sizeof(std::uint32_t) + Peers::flagWords * sizeof(std::uint64_t)),
        mapped_(rank.communicator.exchangeMemory(rank.communicator.registerMemory(own_.data(), own_.bytes()))) {
    peers_.rank = rank.rank;
    peers_.size = rank.size;
    for (std::size_t r = 0; r < mapped_.size(); ++r) peers_.memory[r] = mapped_[r].data();
  }
  Peers const& peers() const { return peers_; }
  GpuBuffer<std::byte> const& own() const { return own_; }

 private:
  GpuBuffer<std::byte> own_;
  std::vector<RegisteredMemory> mapped_;
  Peers peers_;
};

template <Order O, Scope S = Scope::system>
MSCCLPP_DEVICE void waitUntil(std::uint64_t const* word, std::uint64_t value) {
  poll(nullptr, {layout::WaitKind::semaphore, -1, 0, value}, [&](std::uint64_t& seen) {
    seen = load<O, S>(word);
    return seen >= value;
  });
}

// Ends the schedule with a kernelFailure, or in host code with a hostFailure.
MSCCLPP_DEVICE void expect(bool condition, char const* what) {
  if (!condition) arch::trap(what);
}
inline void expectOnHost(bool condition, char const* what) {
  if (!condition) throw std::runtime_error(what);
}

// Two ranks' channel to each other: each puts from its own buffer into the other's, which is also its packet buffer.
struct ChannelPair {
  GpuBuffer<std::uint32_t> own;
  MemoryChannel channel;

  explicit ChannelPair(Rank const& rank, std::size_t words = 256)
      : own(rank.device, words), channel(connect(rank, own)) {}

 private:
  static MemoryChannel connect(Rank const& rank, GpuBuffer<std::uint32_t> const& own) {
    auto const mine = rank.communicator.registerMemory(own.data(), own.bytes());
    auto const all = rank.communicator.exchangeMemory(mine);
    int const peer = 1 - rank.rank;
    return {rank.communicator.buildSemaphore(peer), all[static_cast<std::size_t>(peer)], mine, own.data()};
  }
};

// One block of both ranks runs the kernel, with the channel to the other.
template <class Kernel>
void runOverChannel(Rank& rank, Kernel const& kernel) {
  ChannelPair const pair(rank);
  launch(rank.stream, {.blocks = 1, .threads = 32}, kernel, pair.channel.deviceHandle());
  rank.synchronize();
}

// ---- what must be found ---------------------------------------------------------------------------------------------

// Where and how a program runs.
struct Setup {
  int ranks = 2;
  unsigned blocks = 1;
  unsigned threads = 32;
  unsigned clusterBlocks = 1;
  sim::MachineOptions machine{};
  sim::ExploreOptions options{.preemption = 0.2};
  int silentSchedules = 200;  // of the program without the fault
};

// What the checker must find.
struct Expected {
  FindingKind kind;
  std::vector<std::string> at = {};  // marks of the accesses, in any order
  std::string says = {};             // part of the summary, or of what an access did
};

// The number of the line that carries the mark; 0 if there is not exactly one.
inline int markedLine(std::string const& file, std::string const& mark) {
  std::ifstream source(file);
  std::string line;
  int found = 0;
  int const none = 0;
  for (int number = 1; std::getline(source, line); ++number) {
    if (!line.ends_with("// <- " + mark)) continue;
    if (found != none) return none;
    found = number;
  }
  return found;
}

// The line of `file` in which the access was made, or from which it was called.
inline int lineIn(std::string const& file, sim::AccessRecord const& access) {
  auto const name = file.substr(file.rfind('/') + 1);
  for (auto const& frame : access.stack) {
    if (frame.file.ends_with(name)) return frame.line;
  }
  return 0;
}

inline bool matches(sim::Finding const& finding, Expected const& expected, std::string const& file) {
  if (finding.kind != expected.kind) return false;
  if (!expected.at.empty()) {
    std::vector<int> lines, wanted;
    for (auto const& access : finding.accesses) lines.push_back(lineIn(file, access));
    for (auto const& mark : expected.at) wanted.push_back(markedLine(file, mark));
    std::sort(lines.begin(), lines.end());
    std::sort(wanted.begin(), wanted.end());
    if (!std::includes(lines.begin(), lines.end(), wanted.begin(), wanted.end())) return false;
  }
  auto const says = [&](std::string const& text) { return text.find(expected.says) != std::string::npos; };
  return says(finding.summary) || std::any_of(finding.accesses.begin(), finding.accesses.end(),
                                              [&](sim::AccessRecord const& access) { return says(access.what); });
}

// Explores until the expected finding has come, at most 60 s.
inline void checkFound(Expected const& expected, Setup const& setup, std::function<void(Rank&)> const& body,
                       std::string const& file) {
  for (auto const& mark : expected.at) {
    REQUIRE_MESSAGE(markedLine(file, mark) != 0, "not on exactly one line: // <- ", mark);
  }
  auto const begin = std::chrono::steady_clock::now();
  auto const seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  auto options = setup.options;
  std::string seen;
  std::uint64_t schedules = 0;
  // In steps, since other consequences of the fault may come first, but mostly one of the first schedules has it.
  bool const inSteps = options.strategy != sim::Strategy::exhaustive;
  if (inSteps) options.schedules = 2;
  options.shrink = false;
  options.timeLimit = std::chrono::seconds(30);
  while (seconds() < 60) {
    auto result = exploreRanks({setup.ranks, setup.machine}, body, options);
    schedules += result.schedules;
    for (auto const& finding : result.findings) {
      if (!matches(finding, expected, file)) continue;
      MESSAGE("found after ", schedules, " schedules, ", seconds(), " s: ", finding.summary);
      return;
    }
    seen = sim::toText(result);
    options.seed += static_cast<std::uint64_t>(options.schedules);
    if (inSteps) options.schedules = std::min(2 * options.schedules, 50);
  }
  FAIL_CHECK("the planted fault was not found in ", schedules, " schedules; the last of them gave\n", seen);
}

inline void checkSilent(Setup const& setup, std::function<void(Rank&)> const& body) {
  auto options = setup.options;
  options.schedules = setup.silentSchedules;
  auto const result = exploreRanks({setup.ranks, setup.machine}, body, options);
  CHECK_MESSAGE(result.ok(), "of the correct program: ", sim::toText(result));
  CHECK(result.schedules > 0);
  CHECK(result.forgottenAccesses == 0);
}

// Program<F>::operator()(Rank&) is host code.
template <template <Fault> class Program>
void checkProgram(Expected const& expected, Setup const& setup = {},
                  std::source_location const& here = std::source_location::current()) {
  checkFound(
      expected, setup, [](Rank& rank) { Program<Fault::planted>{}(rank); }, here.file_name());
  checkSilent(setup, [](Rank& rank) { Program<Fault::none>{}(rank); });
}

// Program<F>::operator()(Peers const&) is a kernel that every rank launches once.
template <template <Fault> class Program>
void checkKernel(Expected const& expected, Setup const& setup = {},
                 std::source_location const& here = std::source_location::current()) {
  auto const launched = [&setup](auto kernel) {
    return [&setup, kernel](Rank& rank) {
      SharedMemory const memory(rank);
      launch(rank.stream, {.blocks = setup.blocks, .threads = setup.threads, .clusterBlocks = setup.clusterBlocks},
             kernel, memory.peers());
      rank.synchronize();
    };
  };
  checkFound(expected, setup, launched(Program<Fault::planted>{}), here.file_name());
  checkSilent(setup, launched(Program<Fault::none>{}));
}

}  // namespace check_test
