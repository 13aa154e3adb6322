// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/wait_report.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <set>

using namespace mscclpp;
using layout::Misuse;
using layout::WaitKind;
using layout::WaitReport;

namespace {

// What kernels write, the host reads.
static_assert(sizeof(WaitReport) == 56 && offsetof(WaitReport, channel) == 24);
static_assert(offsetof(layout::Watch, reports) == 24);

WaitReport report(WaitKind kind, std::uint32_t thread = 0) {
  return {1, kind, 2, 1, 3, thread, 17, 5, 4, 10'000'000'000ull};
}

}  // namespace

TEST_CASE("each kind of wait in words") {
  std::string const who = "rank 2 block 3 thread 0 waited 10.0 s for ";
  CHECK(explain(report(WaitKind::packet)) == who + "packet slot 17 of rank 1: expected flag 5, seen 4");
  CHECK(explain(report(WaitKind::semaphore)) == who + "a signal of rank 1 on semaphore 17: expected count 5, seen 4");
  CHECK(explain(report(WaitKind::teamSignal)) == who + "phase 17 of rank 1 in a collective: expected epoch 5, seen 4");
  CHECK(explain(report(WaitKind::gridBarrier)) == who + "the other blocks of its grid: expected generation 5, seen 4");
  CHECK(explain(report(WaitKind::teamBarrier)) == who + "rank 1 at a barrier of its team: expected epoch 5, seen 4");
  CHECK(explain(report(WaitKind::proxy)) == who + "the host's proxy: expected position 5, seen 4");
  CHECK(explain(report(WaitKind::bulkBarrier)) ==
        who +
            "arrivals and bytes at its block's bulk barrier at shared address 17: the phase of parity 5 has not ended");
  CHECK(explain(report(WaitKind::switchBarrier)) ==
        who + "the ranks of switch channel 17: expected 5 signals of all of them, seen 4");
  CHECK(explain(report(WaitKind::tileRound)) ==
        who + "rank 1 to begin round 5 of tile flags: the last it has begun is 4");
  CHECK(explain(report(WaitKind::tile)) == who + "arrivals of rank 1 at tile 17: expected 5, seen 4");
}

TEST_CASE("each refused launch in its own words, with both numbers") {
  std::set<std::string> texts;
  for (std::uint64_t what = 0; what <= static_cast<std::uint64_t>(Misuse::countMismatch); ++what) {
    WaitReport refused = report(WaitKind::misuse);
    refused.channel = what;
    refused.expected = 1234;
    refused.seen = 5678;
    std::string const text = explain(refused);
    CAPTURE(text);
    CHECK(text.starts_with("rank 2 block 3 thread 0 refused "));
    CHECK(text.find("1234") != std::string::npos);
    CHECK(text.find("5678") != std::string::npos);
    CHECK(text.find("misuse number") == std::string::npos);
    texts.insert(text);
  }
  CHECK(texts.size() == 8);
}

TEST_CASE("equal waits are folded, incomplete ones left out, surplus ones counted") {
  auto const watch = std::make_unique<layout::Watch>();
  CHECK(explain(*watch) == "");
  for (std::uint32_t i = 0; i < 4; ++i) watch->reports[i] = report(WaitKind::packet, i);
  watch->reports[4] = report(WaitKind::gridBarrier);
  watch->reports[5] = report(WaitKind::semaphore);
  watch->reports[5].complete = 0;
  watch->reportCount = 6;
  std::string const text = explain(*watch);
  CAPTURE(text);
  CHECK(text.find("rank 2 block 3 thread 0 and 3 more threads waited") != std::string::npos);
  CHECK(text.find("other blocks") != std::string::npos);
  CHECK(text.find("semaphore 17") == std::string::npos);
  CHECK(text.find("and 1 more reports") != std::string::npos);
  CHECK(text.find("MSCCLPP_KERNEL_TIMEOUT") != std::string::npos);
  // More were begun than there is room for.
  watch->reportCount = 1000;
  CHECK(explain(*watch).find("and 995 more reports") != std::string::npos);
}

TEST_CASE("who waits for blocks of its own grid stands behind those that keep them") {
  auto const watch = std::make_unique<layout::Watch>();
  watch->reports[0] = report(WaitKind::gridBarrier);
  watch->reports[1] = report(WaitKind::portSignal);
  watch->reportCount = 2;
  std::string const text = explain(*watch);
  CAPTURE(text);
  CHECK(text.starts_with(explain(report(WaitKind::portSignal)) + "\n" + explain(report(WaitKind::gridBarrier)) + "\n"));
  CHECK(text.find("check that the proxies of both ranks are started") != std::string::npos);
}
