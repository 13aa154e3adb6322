// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The search of mscclpp-tune for one collective and size: which algorithm and launch shape is the fastest.
//
// Three steps: every algorithm once with the library's own shape, briefly; all shapes of those that are not hopeless,
// briefly; then the best few again, thoroughly. The library's shape is kept where another one gains next to nothing,
// since what is measured is noisy.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace mscclpp::bench {

// 0 blocks or threads: the library's choice.
struct TuneCandidate {
  std::string algorithm;
  int blocks = 0;
  int threads = 0;

  friend bool operator==(TuneCandidate const&, TuneCandidate const&) = default;
};

struct TuneResult {
  TuneCandidate candidate;
  double seconds = 0;
};

struct TuneSearch {
  // Seconds per operation, the same number on all ranks; nothing where the candidate cannot be measured.
  std::function<std::optional<double>(TuneCandidate const&, bool thorough)> measure;
  // Names of the algorithms.
  std::vector<std::string> algorithms;
  std::vector<int> blocks;
  std::vector<int> threads;
  // What an earlier run found; measured with the rest.
  std::optional<TuneCandidate> known;

  double hopeless = 2.0;  // times the fastest: an algorithm whose own shape is slower is given up
  double worthIt = 0.99;  // times the library's shape: another one must be faster than this
  std::size_t finalists = 4;

  // Nothing where no candidate can be measured.
  std::optional<TuneResult> fastest() const;
};

}  // namespace mscclpp::bench
