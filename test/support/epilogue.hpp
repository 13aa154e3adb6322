// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What collectives ask an epilogue about: each element that is stored once, never one past the end.
#pragma once

#include <doctest/doctest.h>

#include <type_traits>
#include <vector>

#include "mscclpp/algorithms/collective/allreduce.hpp"
#include "mscclpp/algorithms/collective/rooted.hpp"
#include "support/world.hpp"

namespace mscclpp_test {
inline namespace MSCCLPP_BACKEND {

template <class Collective>
struct BelowEnd {
  MSCCLPP_DEVICE void operator()(float const* in, float* out, float* beside, std::size_t count,
                                 DeviceTeam const& team) const {
    // What it stores by itself: padding of a payload must not get over another thread's elements.
    auto const epilogue = [count, beside](auto v, std::uint64_t index, unsigned stored) {
      if (stored == 0 || stored > v.size || index + stored > count) arch::trap("an epilogue was asked past the end");
      for (unsigned i = 0; i < stored; ++i) beside[index + i] += v[i] + static_cast<float>(index + i);
      return v + static_cast<float>(index);
    };
    if constexpr (requires { Collective{team}(thisGrid(), View{in, count}, View{out, count}, epilogue); }) {
      Collective{team}(thisGrid(), View{in, count}, View{out, count}, epilogue);
    } else {
      Collective{team}(thisGrid(), View{in, count}, out, /*root=*/0, epilogue);
    }
  }
};

template <class>
inline constexpr bool isAllReduce = false;
template <class Schedule, class Tr, class Op>
inline constexpr bool isAllReduce<AllReduce<Schedule, Tr, Op>> = true;

template <class... Collectives>
void checkEpilogueIndices() {
  static constexpr int ranks = 3;
  auto const check = []<class Collective>(std::type_identity<Collective>) {
    forEachRank(ranks, [](Rank& rank) {
      Team const team(rank.communicator, Collective::requirement(ranks, 2, 64));
      for (std::size_t const count :
           {std::size_t{1}, std::size_t{4}, std::size_t{100}, std::size_t{130}, std::size_t{517}}) {
        GpuBuffer<float> const in(rank.device, count), out(rank.device, count);
        GpuBuffer<float> beside(rank.device, count);
        beside.fill(0);
        copyToDevice(in, std::span<float const>(std::vector<float>(count, 1.0f)));
        rank.meet();
        launch(rank.stream, {.blocks = 2, .threads = 64}, BelowEnd<Collective>{}, static_cast<float const*>(in.data()),
               out.data(), beside.data(), count, DeviceTeam(team.deviceHandle()));
        rank.synchronize();
        auto const result = copyToHost(out);
        if (rank.rank != 0 && !isAllReduce<Collective>) continue;
        // Each result has the index of an element of its own Vector.
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) {
          wrong += result[i] <= static_cast<float>(i + ranks) && result[i] + 4 > static_cast<float>(i + ranks) ? 0 : 1;
        }
        CHECK(wrong == 0);
        std::vector<float> sums(count);
        for (std::size_t i = 0; i < count; ++i) sums[i] = static_cast<float>(i + ranks);
        CHECK(countDifferent(copyToHost(beside), sums) == 0);
      }
    });
  };
  (check(std::type_identity<Collectives>{}), ...);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp_test
