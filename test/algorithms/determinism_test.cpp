// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bits of an all-reduce depend on nothing but the inputs and the ranks' order: every algorithm, launch shape and
// split of a message gives the same.
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "mscclpp/algorithms/catalogue.hpp"
#include "support/collective.hpp"

using namespace mscclpp_test;

namespace {

constexpr std::size_t count = 1500;

// The sum of `count` elements from `first` on, as it comes out of one call.
template <class Collective, class T>
std::vector<T> sumOf(Rank& rank, LaunchShape const& shape, std::size_t first, std::size_t part) {
  Team const team(rank.communicator,
                  Collective::requirement(static_cast<std::uint32_t>(rank.size), shape.blocks, shape.threads));
  GpuBuffer<T> const in(rank.device, part);
  GpuBuffer<T> const out(rank.device, part);
  MemoryWindow const inWindow(rank.communicator, in.data(), in.bytes());
  MemoryWindow const outWindow(rank.communicator, out.data(), out.bytes());
  auto const all = randomInput<T>(17, rank.rank, count);
  copyToDevice(in, std::span<T const>(all).subspan(first, part));
  rank.communicator.bootstrap()->barrier();
  startCollective<Collective, T>(rank, shape, in.data(), out.data(), part, 0, team, inWindow.deviceHandle(),
                                 outWindow.deviceHandle());
  rank.synchronize();
  return copyToHost(out);
}

template <class T>
class Comparison {
 public:
  explicit Comparison(Rank& rank) : rank_(rank) {
    std::vector<std::vector<T>> inputs;
    for (int r = 0; r < rank.size; ++r) inputs.push_back(randomInput<T>(17, r, count));
    expected_ = reduced<Sum, void>(inputs);
  }

  // Whole messages in several grids, then the same elements as messages of their own.
  template <class Collective>
  void with(std::string_view name) const {
    for (LaunchShape const shape : {LaunchShape{.blocks = 1, .threads = 32}, {.blocks = 3, .threads = 96}}) {
      CHECK_MESSAGE(countDifferent(sumOf<Collective, T>(rank_, shape, 0, count), expected_) == 0, name);
    }
    for (auto const& [first, part] : std::map<std::size_t, std::size_t>{{0, 8}, {8, 333}, {341, 1159}}) {
      auto const result = sumOf<Collective, T>(rank_, {.blocks = 2, .threads = 64}, first, part);
      CHECK_MESSAGE(std::memcmp(result.data(), expected_.data() + first, part * sizeof(T)) == 0, name);
    }
  }

 private:
  Rank& rank_;
  std::vector<T> expected_;
};

template <class T>
void compareAll(Rank& rank) {
  Comparison<T> const comparison(rank);
  Catalogue::forEachOf<Collective::allReduce>([&]<class C>() {
    if constexpr (isRankOrder<typename C::Schedule>() && !throughSwitch<typename C::Transport>) {
      comparison.template with<AllReduce<typename C::Schedule, typename C::Transport, Sum>>(C::name);
    }
  });
}

}  // namespace

TEST_CASE("every all-reduce gives the same bits") {
  for (int ranks : {3, 4}) {
    if (!canRun(ranks)) continue;
    forEachRank(ranks, [](Rank& rank) {
      compareAll<BFloat16>(rank);
      compareAll<float>(rank);
    });
  }
}
