// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "data/checker.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace mscclpp::bench {
namespace {

// `actual` and `wanted` are `count` elements; `slack`, one entry each, may be null.
template <class T>
std::uint64_t compare(std::byte const* actual, std::byte const* wanted, float const* slack, std::size_t count) {
  if (std::memcmp(actual, wanted, count * sizeof(T)) == 0) return 0;
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    auto const* const a = actual + i * sizeof(T);
    auto const* const w = wanted + i * sizeof(T);
    if (std::memcmp(a, w, sizeof(T)) == 0) continue;
    if (slack == nullptr) {
      ++wrong;
      continue;
    }
    T x;
    T y;
    std::memcpy(&x, a, sizeof(T));
    std::memcpy(&y, w, sizeof(T));
    // Written so that a difference of NaN is wrong.
    bool const close = std::abs(convertNumber<double>(x) - convertNumber<double>(y)) <= static_cast<double>(slack[i]);
    if (!close) ++wrong;
  }
  return wrong;
}

}  // namespace

std::uint64_t countWrong(std::span<std::byte const> actual, std::uint64_t first, Expected const& expected) {
  return withDataType(expected.type, [&]<class T>(std::type_identity<T>) {
    std::size_t const period = expected.period();
    std::size_t const count = actual.size() / sizeof(T);
    std::uint64_t wrong = 0;
    for (std::size_t done = 0; done < count;) {
      std::size_t const at = static_cast<std::size_t>((first + done) % period);
      std::size_t const run = std::min(count - done, period - at);
      wrong += compare<T>(actual.data() + done * sizeof(T), expected.block.data() + at * sizeof(T),
                          expected.slack.empty() ? nullptr : expected.slack.data() + at, run);
      done += run;
    }
    return wrong;
  });
}

std::uint64_t countWrong(std::span<std::byte const> actual, std::uint64_t first, std::vector<Content> const& contents,
                         std::uint64_t slotCount, Answers const& answers, bool loosely) {
  auto const size = bytesOf(answers.poison.type);
  std::uint64_t const count = actual.size() / size;
  std::uint64_t wrong = 0;
  for (std::uint64_t done = 0; done < count;) {
    auto const slot = (first + done) / slotCount;
    auto const within = (first + done) % slotCount;
    auto const run = std::min(count - done, slotCount - within);
    auto const part = actual.subspan(done * size, run * size);
    auto const& content = contents.at(slot);
    auto const from = static_cast<std::uint64_t>(content.slot) * slotCount + within;
    switch (content.kind) {
      case Content::Kind::input:
        wrong += countWrong(part, from, answers.inputs.at(static_cast<std::size_t>(content.rank)));
        break;
      case Content::Kind::reduced:
        wrong += countWrong(part, from, loosely ? answers.reducedLoosely : answers.reduced);
        break;
      case Content::Kind::poison:
        wrong += countWrong(part, 0, answers.poison);
        break;
      case Content::Kind::unknown:
        break;
    }
    done += run;
  }
  return wrong;
}

std::uint64_t countTouched(std::span<std::byte const> guard) {
  return static_cast<std::uint64_t>(
      std::count_if(guard.begin(), guard.end(), [](std::byte b) { return b != std::byte{poisonByte}; }));
}

}  // namespace mscclpp::bench
