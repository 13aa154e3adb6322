// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-to-all of parts that lie strewn: dimensions change places on the way, there and back.
#include "mscclpp/algorithms/core/strided.hpp"

#include <numeric>
#include <string>
#include <vector>

#include "support/strided.hpp"

using namespace mscclpp_test;

namespace {

template <class T>
void check(StridedShape const& shape) {
  if (!canRun(shape.ranks)) return;
  CAPTURE(shape.ranks);
  forEachRank(shape.ranks, [&](Rank& rank) { checkStridedRank<T>(rank, shape); });
}

}  // namespace

TEST_CASE_TEMPLATE("heads and tokens change places", T, float, std::uint16_t, std::uint8_t) {
  check<T>({.ranks = 4, .batch = 2, .tokens = 3, .heads = 2, .width = 16});
  check<T>({.ranks = 3, .batch = 1, .tokens = 5, .heads = 1, .width = 7});
  check<T>({.ranks = 2, .batch = 3, .tokens = 50, .heads = 3, .width = 20, .offset = 1});
  check<T>({.ranks = 1, .batch = 2, .tokens = 3, .heads = 2, .width = 4});
}

TEST_CASE("runs as long as the heads and width are, and as many as batches and tokens") {
  auto const runs = impl::StridedRuns::make(2 * 3, 4 * 5, 2, 3 * 4 * 5);
  CHECK(runs.outer == 2);
  CHECK(runs.inner == 3);
  CHECK(runs.run == 20);
  // Every run of both buffers is somebody's, once.
  for (bool const first : {false, true}) {
    std::vector<int> seen(6 * 4);
    for (std::uint32_t number = 0; number < 6; ++number) {
      for (std::size_t rank = 0; rank < 4; ++rank) ++seen[runs.place(first, number, rank, 4)];
    }
    CHECK(seen == std::vector<int>(24, 1));
  }
}

namespace {

// Three tensors in one exchange, two of them alike, each from `x`.
struct Attention {
  MSCCLPP_DEVICE void operator()(float const* x, std::size_t n, std::size_t before, std::size_t outBefore,
                                 DeviceTeam const& team, layout::WindowHandle const& window) const {
    SymmetricView<float> const q(window, 0, n), k(window, n * sizeof(float), n), v(window, 2 * n * sizeof(float), n);
    auto const ranks = static_cast<std::size_t>(team.size);
    Strided const in{View{x, n}, {before, byRank, n / ranks / before}};
    auto const out = [&](SymmetricView<float> const& view) {
      return Strided{view, {outBefore, byRank, n / ranks / outBefore}};
    };
    AllToAll<PushSchedule, PeerMemory<>>{team}(thisGrid(), Permuted{in, out(q)}, Permuted{in, out(k)},
                                               Permuted{in, out(v)});
  }
};

std::string runAttention(int ranks, std::size_t n, std::size_t before, std::size_t outBefore) {
  std::string text;
  forEachRank(ranks, [&](Rank& rank) {
    Team const team(rank.communicator, {.blocks = 2});
    GpuBuffer<float> const x(rank.device, n + 1), y(rank.device, 3 * n + 1);
    MemoryWindow const window(rank.communicator, y.data(), y.bytes());
    std::vector<float> in(n + 1);
    std::iota(in.begin(), in.end(), static_cast<float>(rank.rank) * 1000);
    copyToDevice(x, std::span<float const>(in));
    rank.meet();
    launch(rank.stream, {.blocks = 2, .threads = 32}, Attention{}, x.data(), n, before, outBefore, team.deviceHandle(),
           window.deviceHandle());
    try {
      rank.synchronize();
    } catch (Error const& error) {
      if (rank.rank == 0) text = error.what();
      return;
    }
    auto const out = copyToHost(y);
    for (std::size_t tensor = 1; tensor < 3; ++tensor) {
      CHECK(std::equal(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(n),
                       out.begin() + static_cast<std::ptrdiff_t>(tensor * n)));
    }
    if (before == outBefore && n != 0)
      CHECK(out[0] == static_cast<float>(rank.rank) * static_cast<float>(n / before) / static_cast<float>(ranks));
  });
  return text;
}

}  // namespace

TEST_CASE("several tensors in one exchange, and what cannot be one") {
  if (!canRun(2)) return;
  CHECK(runAttention(2, 48, 4, 2).empty());
  CHECK(runAttention(2, 48, 2, 2).empty());
  CHECK(runAttention(2, 0, 1, 1).empty());
  auto const odd = runAttention(2, 48, 4, 6);
  INFO(odd);
  CHECK(odd.find("6 and 4 elements before the ranks' dimension: one must divide the other") != std::string::npos);
  auto const whole = runAttention(2, 49, 4, 2);
  INFO(whole);
  CHECK(whole.find("an output of 48 elements for an input of 49") != std::string::npos);
}
