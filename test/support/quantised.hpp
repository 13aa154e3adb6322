// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs one all-reduce over quantised packets on every rank, and compares it bit for bit with the same steps on the
// host, and with the exact sum by the bound that the transport states.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "support/allreduce.hpp"

namespace mscclpp_test {
inline namespace MSCCLPP_BACKEND {

// Groups of different magnitude, some of them zero, some with values that are much smaller than others of the group.
template <class T>
std::vector<T> unevenInput(std::uint64_t seed, int rank, std::size_t count) {
  std::mt19937_64 engine(seed * 7919 + static_cast<std::uint64_t>(rank));
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    auto const magnitude = static_cast<int>((i / 16 * 5 + static_cast<std::size_t>(rank)) % 11) - 5;
    auto value = std::uniform_real_distribution<float>(-1, 1)(engine);
    if (engine() % 8 == 0) value *= 0x1p-7f;
    values[i] = convertNumber<T>(i / 48 % 5 == 2 ? 0.0f : std::ldexp(value, magnitude));
  }
  return values;
}

// What comes of a group that travels. The scale is looked for, not computed.
template <class Q>
std::vector<float> overTheWire(std::vector<float> const& group) {
  float largest = 0;
  for (auto const value : group) {
    if (!std::isfinite(value)) return std::vector<float>(group.size(), std::numeric_limits<float>::quiet_NaN());
    largest = std::max(largest, std::abs(value));
  }
  int exponent = -126;
  while (std::ldexp(double{largestOf<Q>}, exponent) < double{largest}) ++exponent;
  std::vector<float> result;
  for (auto const value : group) {
    auto const small = quantised<Q>(static_cast<float>(std::ldexp(double{value}, -exponent)));
    result.push_back(static_cast<float>(std::ldexp(double{convertNumber<float>(small)}, exponent)));
  }
  return result;
}

template <class W, class Op, class T>
std::vector<float> quantisedOnHost(std::vector<std::vector<T>> const& inputs) {
  auto const ranks = inputs.size();
  auto const count = inputs[0].size();
  auto const groups = (count + W::group - 1) / W::group;
  auto const share = (groups + ranks - 1) / ranks;
  std::vector<float> result;
  for (std::size_t g = 0; g < groups; ++g) {
    auto const end = std::min(count, (g + 1) * W::group);
    std::vector<float> totals;
    for (std::size_t r = 0; r < ranks; ++r) {
      std::vector<float> part;
      for (auto i = g * W::group; i < end; ++i) part.push_back(convertNumber<float>(inputs[r][i]));
      if (r != g / share) part = overTheWire<typename W::Quantised>(part);
      for (std::size_t k = 0; k < part.size(); ++k) {
        if (r == 0)
          totals.push_back(part[k]);
        else
          totals[k] = Op{}(totals[k], part[k]);
      }
    }
    for (auto& total : totals) total = Op{}.finish(total, static_cast<int>(ranks));
    auto const sent = overTheWire<typename W::Quantised>(totals);
    result.insert(result.end(), sent.begin(), sent.end());
  }
  return result;
}

// Elements that differ from the exact result by more than the transport says; those that are not finite are not looked
// at. The rest of a Half is what has no bits in it.
template <class W, class Op, class T>
std::size_t countAstray(std::vector<T> const& found, std::vector<std::vector<T>> const& inputs) {
  auto const ranks = static_cast<int>(inputs.size());
  std::size_t astray = 0;
  for (std::size_t first = 0; first < found.size(); first += W::group) {
    auto const end = std::min<std::size_t>(found.size(), first + W::group);
    double magnitudes = 0;
    for (auto const& input : inputs) {
      double largest = 0;
      for (auto i = first; i < end; ++i) largest = std::max(largest, std::abs(double{convertNumber<float>(input[i])}));
      magnitudes += largest;
    }
    bool const average = std::is_same_v<Op, Avg>;
    auto const bound =
        W::errorBound(magnitudes, ranks) / (average ? ranks : 1) + (std::is_same_v<T, Half> ? 0x1p-25 : 0);
    for (auto i = first; i < end; ++i) {
      double exact = 0;
      for (auto const& input : inputs) exact += double{convertNumber<float>(input[i])};
      if (average) exact /= ranks;
      if (std::abs(double{convertNumber<float>(found[i])} - exact) > bound) ++astray;
    }
  }
  return astray;
}

template <class T>
bool sameNumber(T a, T b) {
  auto const x = convertNumber<float>(a), y = convertNumber<float>(b);
  return (std::isnan(x) && std::isnan(y)) || std::memcmp(&a, &b, sizeof a) == 0;
}

// `inputs` of all ranks; the result of this one.
template <class Collective, class T, class Op>
std::vector<T> reduceQuantised(Rank& rank, Team const& team, AllReduceCase const& test,
                               std::vector<std::vector<T>> const& inputs) {
  using W = typename Collective::Transport;
  auto const count = inputs[0].size();
  auto const total = count + test.offset + 8;
  GpuBuffer<T> in(rank.device, total), out(rank.device, total);
  in.fill(0x5a);
  out.fill(0x5a);
  auto const& target = test.inPlace ? in : out;
  auto const offset = static_cast<std::ptrdiff_t>(test.offset);
  copyToDevice(in, std::span<T const>(inputs[static_cast<std::size_t>(rank.rank)]), test.offset);
  auto const before = copyToHost(target);
  rank.meet();
  launch(rank.stream, {.blocks = test.blocks, .threads = test.threads, .overlapPrevious = test.overlap},
         AllReduceKernel<Collective, T>{}, in.data() + test.offset, target.data() + test.offset, count,
         team.deviceHandle());
  rank.synchronize();

  auto const all = copyToHost(target);
  std::vector<T> const result(all.begin() + offset, all.end() - 8);
  auto const expected = quantisedOnHost<W, Op>(inputs);
  std::size_t different = 0;
  for (std::size_t i = 0; i < count; ++i) different += !sameNumber(result[i], convertNumber<T>(expected[i]));
  CHECK_MESSAGE(different == 0, "rank ", rank.rank, ", count ", count);
  std::size_t touched = 0;  // around it
  for (std::size_t i = 0; i < total; ++i) {
    if (i < test.offset || i >= test.offset + count) touched += !sameNumber(all[i], before[i]);
  }
  CHECK_MESSAGE(touched == 0, "rank ", rank.rank, ", count ", count);
  return result;
}

template <class W, class T, class Op = Sum, int Ranks = 0>
void checkQuantisedRank(Rank& rank, AllReduceCase const& test) {
  using Collective = AllReduce<TwoShot, W, Op, Ranks>;
  Team const team(rank.communicator, workspaceFor<Collective>(test));
  std::uint64_t call = 0;
  for (auto const count : test.counts) {
    ++call;
    std::vector<std::vector<T>> inputs;
    for (int r = 0; r < test.ranks; ++r) inputs.push_back(unevenInput<T>(test.seed + 100 * call, r, count));
    auto const result = reduceQuantised<Collective, T, Op>(rank, team, test, inputs);
    CHECK_MESSAGE((countAstray<W, Op>(result, inputs) == 0), "rank ", rank.rank, ", count ", count);
  }
}

template <class W, class T, class Op = Sum, int Ranks = 0>
void checkQuantised(AllReduceCase const& test) {
  if (!canRun(test.ranks)) return;
  forEachRank(test.ranks, [&](Rank& rank) { checkQuantisedRank<W, T, Op, Ranks>(rank, test); }, {.seed = test.seed});
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp_test
