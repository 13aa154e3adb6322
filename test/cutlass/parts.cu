// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the parts in kernels of CUTLASS refuse on the host, by can_implement() and by an Error in words. Starts no
// kernel and needs no GPU; built and run by scripts/cutlass.sh.
#include <cstdio>
#include <string>

#include "mscclpp/cutlass.hpp"

#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

using namespace mscclpp;

namespace {

constexpr int ranks = 4;

using Element = cutlass::bfloat16_t;
using Tile = cute::Shape<cute::_128, cute::_256, cute::_64>;
using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
using Rows = cutlass::layout::RowMajor;
using Columns = cutlass::layout::ColumnMajor;
using Problem = cute::Shape<int, int, int, int>;

using Epilogue = PeerEpilogue<typename cutlass::epilogue::collective::CollectiveBuilder<
                                  cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
                                  cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Rows, 8, Element,
                                  Rows, 8, cutlass::epilogue::TmaWarpSpecializedCooperative>::CollectiveOp,
                              ranks>;
using Mainloop = Gated<typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, Rows, 8, Element, Columns, 8, float, Tile, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp>;
using Scheduler = typename cutlass::gemm::kernel::detail::TileSchedulerSelector<OwnFirst<>, cutlass::arch::Sm90, Tile,
                                                                                Cluster, 1>::Scheduler;

int failures = 0;

void check(bool good, char const* what, std::string const& found) {
  if (good) return;
  ++failures;
  std::printf("%s: %s\n", what, found.c_str());
}

// What is thrown when CUTLASS makes its parameters.
template <class Make>
std::string wordsOf(Make const& make) {
  try {
    make();
  } catch (Error const& error) {
    return error.what();
  }
  return "nothing is thrown";
}

template <class Part>
void checkRefused(Problem const& problem, typename Part::Arguments const& arguments, char const* expected) {
  check(!Part::can_implement(problem, arguments), expected, "can_implement() is true");
  auto const words = wordsOf([&] { Part::to_underlying_arguments(problem, arguments, nullptr); });
  check(words.find(expected) != std::string::npos, expected, words);
}

template <class Part>
void checkTaken(Problem const& problem, typename Part::Arguments const& arguments) {
  check(Part::refusal(problem, arguments).empty(), "refused", Part::refusal(problem, arguments));
  check(Part::can_implement(problem, arguments), "refused", "can_implement() is false");
}

constexpr int m = 2048, n = 1024, k = 512;  // 16 times 4 tiles
constexpr std::uint64_t slotBytes = std::uint64_t{m} * n * sizeof(Element);

layout::TileFlagsHandle flagsOf(int size, unsigned tiles) {
  layout::TileFlagsHandle flags{};
  flags.size = size;
  flags.layout.tiles = tiles;
  return flags;
}

layout::WindowHandle windowOf(int size, std::uint64_t bytes) {
  layout::WindowHandle window{};
  window.size = size;
  window.bytes = bytes;
  return window;
}

void checkGated() {
  Problem const problem{m, n, k, 1};
  typename Mainloop::Arguments arguments{};
  arguments.dA = {k, {}, 0};
  arguments.dB = {k, {}, 0};
  checkRefused<Mainloop>(problem, arguments, "Gated: its arguments have no tile flags yet");
  arguments.await(flagsOf(ranks, m / 128 - 1));
  checkRefused<Mainloop>(problem, arguments, "Gated: needs 16 tile flags, these are 15");
  arguments.await(flagsOf(ranks, m / 128));
  checkTaken<Mainloop>(problem, arguments);
  checkRefused<Mainloop>({m - 128, n, k, 1}, arguments, "Gated: 1920 rows for 4 ranks");
  // CUTLASS's own: rows of A are no multiple of 16 bytes.
  check(!Mainloop::can_implement(Problem{m, n, k + 1, 1}, arguments), "Gated", "takes what CUTLASS does not");
}

void checkPeerEpilogue() {
  Problem const problem{m, n, k, 1};
  auto const argumentsOf = [](layout::WindowHandle const& window, layout::TileFlagsHandle const& flags,
                              std::uint64_t offset = 0) {
    typename Epilogue::Arguments arguments{};
    arguments.dD = {n, {}, 0};
    arguments.to(window, flags, offset);
    return arguments;
  };
  auto const good = argumentsOf(windowOf(ranks, slotBytes), flagsOf(ranks, 64));
  checkTaken<Epilogue>(problem, good);
  checkRefused<Epilogue>({m - 1, n, k, 1}, good, "PeerEpilogue: 2047 rows for 4 ranks");
  checkRefused<Epilogue>({m, n, k, 2}, good, "PeerEpilogue: one product at a time");
  checkRefused<Epilogue>(problem, argumentsOf(windowOf(3, slotBytes), flagsOf(ranks, 64)),
                         "compiled for 4 ranks, the window has 3, the flags 4");
  checkRefused<Epilogue>(problem, argumentsOf(windowOf(ranks, slotBytes), flagsOf(8, 64)),
                         "compiled for 4 ranks, the window has 4, the flags 8");
  auto other = good;
  other.window.rank = 1;
  checkRefused<Epilogue>(problem, other, "both have to be of the same ranks");
  checkRefused<Epilogue>(problem, argumentsOf(windowOf(ranks, slotBytes - 1), flagsOf(ranks, 64)),
                         "the slots end at byte 4194304 of a window of 4194303");
  checkRefused<Epilogue>(problem, argumentsOf(windowOf(ranks, slotBytes), flagsOf(ranks, 64), 16),
                         "the slots end at byte 4194320 of a window of 4194304");
  checkRefused<Epilogue>(problem, argumentsOf(windowOf(ranks, slotBytes), flagsOf(ranks, 63)),
                         "PeerEpilogue: needs 64 tile flags, these are 63");
}

void checkScheduler() {
  typename Scheduler::Arguments arguments{};
  auto const wordsFor = [&](int rows, int rank, int size) {
    arguments.rank = rank;
    arguments.ranks = size;
    return wordsOf([&] {
      Scheduler::to_underlying_arguments(Problem{rows, n, k, 1}, Tile{}, Cluster{}, {}, arguments);
    });
  };
  auto const expect = [&](std::string const& words, char const* expected) {
    check(words.find(expected) != std::string::npos, expected, words);
  };
  for (int const rank : {-1, ranks}) {
    expect(wordsFor(m, rank, ranks), ("TileOrder: rank " + std::to_string(rank) + " is none of 4").c_str());
    check(!Scheduler::can_implement(arguments), "TileOrder",
          "can_implement() is true for rank " + std::to_string(rank));
  }
  // Whole tiles for each rank, but half a cluster.
  expect(wordsFor(512, 0, ranks),
         "TileOrder: 512 rows for 4 ranks: each rank's share has to be whole tiles of 256 rows");
  arguments.rank = ranks - 1;
  check(Scheduler::can_implement(arguments), "TileOrder", "refuses the last rank");
}

}  // namespace

int main() {
  checkGated();
  checkPeerEpilogue();
  checkScheduler();
  if (failures == 0) std::printf("what does not fit is refused in words\n");
  return failures == 0 ? 0 : 1;
}
