// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks as processes. All work is done in children, so that the process that forks has no other threads yet.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <vector>

#include "sim/sim_fixture.hpp"

using namespace simtest;

namespace {

constexpr std::uint32_t rounds = 50;

// Adds 1 to the peer's word and waits for the own one, again and again; the block's threads meet in between.
void pingPong(std::uint32_t* mine, std::uint32_t* theirs, layout::Watch* watch) {
  for (std::uint32_t round = 1; round <= rounds; ++round) {
    if (arch::threadIndex() == 0) {
      reduceAdd<Order::release, Scope::system>(theirs, 1u);
      waitUntil(mine, round, watch, 1, 0);
    }
    arch::syncBlock();
  }
}

layout::Watch* makeWatch(std::uint64_t limitNs) {
  auto* watch = static_cast<layout::Watch*>(machine().allocateHost(sizeof(layout::Watch)));
  watch->limitNs = limitNs;
  return watch;
}

// Runs each function in a process of its own; whether all returned true.
bool inProcesses(std::vector<std::function<bool()>> const& sides) {
  std::vector<pid_t> children;
  for (auto const& side : sides) {
    auto const child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      bool right = false;
      try {
        right = side();
      } catch (std::exception const&) {
      }
      ::_exit(right ? 0 : 1);
    }
    children.push_back(child);
  }
  bool right = true;
  for (auto const child : children) {
    int status = -1;
    right &= ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return right;
}

}  // namespace

TEST_CASE("processes share memory through a descriptor") {
  DeviceArray<std::uint32_t> words(0, 1024);
  int const descriptor = machine().exportDescriptor(machine().allocationOf(words.data() + 7)).value();
  CHECK_FALSE(machine().exportIpc(machine().allocationOf(words.data())).has_value());
  auto* watch = makeWatch(20'000'000'000);
  auto const owner = [&] {
    Stream stream(0);
    stream.launch({.blocks = 1, .threads = 64}, [p = words.data(), watch] { pingPong(p, p + 512, watch); });
    stream.synchronize();
    return true;
  };
  auto const importer = [&] {
    auto* mapped = static_cast<std::uint32_t*>(machine().importDescriptor(1, descriptor, 4096));
    Stream stream(1);
    stream.launch({.blocks = 1, .threads = 64}, [=] { pingPong(mapped + 512, mapped, watch); });
    stream.synchronize();
    bool const foreign =
        contains(errorText([&] { machine().allocationOf(mapped); }, ErrorCode::invalidUsage), "another process owns");
    machine().releaseImport(mapped);
    return foreign;
  };
  CHECK(inProcesses({owner, importer}));
  CHECK(watch->reportCount == 0);
  CHECK(words[0] == rounds);
  CHECK(words[512] == rounds);
  ::close(descriptor);
  machine().releaseHost(watch);
}

TEST_CASE("a process's kernels run while its host waits for another process") {
  DeviceArray<std::uint32_t> words(0, 2);
  auto* p = words.data();
  auto* watch = makeWatch(20'000'000'000);
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  // The second sleeps with its kernel launched until the first, whose kernel needs it, has ended.
  auto const first = [&] {
    Stream stream(0);
    stream.launch({.blocks = 1, .threads = 32}, [=] { pingPong(p, p + 1, watch); });
    stream.synchronize();
    return ::write(ends[1], "x", 1) == 1;
  };
  auto const second = [&] {
    Stream stream(0);
    stream.launch({.blocks = 1, .threads = 32}, [=] { pingPong(p + 1, p, watch); });
    ::close(ends[1]);
    char byte = 0;
    bool const heard = ::read(ends[0], &byte, 1) == 1;
    stream.synchronize();
    return heard;
  };
  CHECK(inProcesses({first, second}));
  CHECK(watch->reportCount == 0);
  CHECK(words[1] == rounds);
  ::close(ends[0]);
  ::close(ends[1]);
  machine().releaseHost(watch);
}
