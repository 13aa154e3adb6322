// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// copy() at every combination of misalignments and lengths, and not a byte beside.
#include "mscclpp/device/copy.hpp"

#include <vector>

#include "support/reference.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

struct CopyKernel {
  MSCCLPP_DEVICE void operator()(std::uint8_t* dst, std::uint8_t const* src, std::size_t bytes) const {
    copy(thisGrid(), dst, src, bytes);
  }
};

}  // namespace

TEST_CASE("copy moves any range") {
  if (!canRun(1)) return;
  constexpr std::size_t room = 6000;
  forEachRank(1, [&](Rank& rank) {
    GpuBuffer<std::uint8_t> src(rank.device, room);
    GpuBuffer<std::uint8_t> dst(rank.device, room);
    auto const source = randomInput<std::uint8_t>(3, 0, room);
    copyToDevice(src, std::span<std::uint8_t const>(source));
    for (std::size_t bytes : {0, 1, 3, 15, 16, 17, 127, 1000, 5001}) {
      for (std::size_t dstOffset : {0, 1, 2, 4, 8, 13, 16}) {
        for (std::size_t srcOffset : {0, 1, 2, 4, 8, 11}) {
          dst.fill(0xee);
          launch(rank.stream, {.blocks = 2, .threads = 32}, CopyKernel{}, dst.data() + dstOffset,
                 src.data() + srcOffset, bytes);
          rank.synchronize();
          std::vector<std::uint8_t> expected(room, 0xee);
          std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(srcOffset), bytes,
                      expected.begin() + static_cast<std::ptrdiff_t>(dstOffset));
          CAPTURE(bytes);
          CAPTURE(dstOffset);
          CAPTURE(srcOffset);
          CHECK(copyToHost(dst) == expected);
        }
      }
    }
  });
}
