// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the ranks of a job tell of themselves, in memory that they share with who judges it.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "faults/trial.hpp"

namespace faults {

enum class Result : std::uint8_t { right, wrong, error, unknown };

struct Outcome {
  int step;
  Result result;
  int code;                  // ErrorCode, of an error
  std::int64_t nanoseconds;  // since the job began
  char text[700];
};

template <std::size_t n>
void put(char (&to)[n], std::string_view text) {
  auto const length = std::min(text.size(), n - 1);
  text.copy(to, length);
  to[length] = 0;
}

inline constexpr int mostRanks = 8;
inline constexpr int mostOutcomes = 32;

struct RankRecord {
  std::atomic<int> stage;  // 0: it starts, 1: it has a communicator, 2 and on: it is in step `stage - 2`
  std::atomic<bool> finished;
  std::atomic<pid_t> child;      // that it has forked
  std::atomic<unsigned> others;  // bits of the ranks that it goes on with
  std::atomic<bool> lost;        // it could not go on
  std::atomic<int> outcomes;
  std::chrono::steady_clock::time_point begin;  // of the job
  char doing[200];
  Outcome outcome[mostOutcomes];

  void add(int step, Result result, int code, std::string_view text) {
    int const next = outcomes.load();
    if (next == mostOutcomes) return;
    outcome[next].step = step;
    outcome[next].result = result;
    outcome[next].code = code;
    outcome[next].nanoseconds = (std::chrono::steady_clock::now() - begin).count();
    put(outcome[next].text, text);
    outcomes.store(next + 1);
  }
};

struct JobRecord {
  std::atomic<bool> over;  // nobody needs anybody any more
  RankRecord rank[mostRanks];
};

}  // namespace faults
