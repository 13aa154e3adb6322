// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/tune_search.hpp"

#include <algorithm>
#include <utility>

namespace mscclpp::bench {
namespace {

bool faster(TuneResult const& a, TuneResult const& b) { return a.seconds < b.seconds; }

bool isOwnShape(TuneCandidate const& candidate) { return candidate.blocks == 0 && candidate.threads == 0; }

}  // namespace

std::optional<TuneResult> TuneSearch::fastest() const {
  std::vector<TuneResult> brief;
  auto const look = [&](TuneCandidate candidate) {
    if (auto const seconds = measure(candidate, false)) brief.push_back({std::move(candidate), *seconds});
  };
  for (auto const& algorithm : algorithms) look({algorithm});
  if (known && !isOwnShape(*known)) look(*known);
  if (brief.empty()) return std::nullopt;
  std::sort(brief.begin(), brief.end(), faster);

  auto const limit = brief.front().seconds * hopeless;
  auto const first = brief;
  for (auto const& own : first) {
    if (!isOwnShape(own.candidate) || own.seconds > limit) continue;
    for (int block : blocks) {
      for (int thread : threads) {
        TuneCandidate const shaped{own.candidate.algorithm, block, thread};
        if (!known || shaped != *known) look(shaped);
      }
    }
  }
  std::sort(brief.begin(), brief.end(), faster);

  std::vector<TuneResult> thorough;
  auto const again = [&](TuneCandidate const& candidate) {
    for (auto const& done : thorough) {
      if (done.candidate == candidate) return;
    }
    if (auto const seconds = measure(candidate, true)) thorough.push_back({candidate, *seconds});
  };
  for (std::size_t i = 0; i < std::min(finalists, brief.size()); ++i) again(brief[i].candidate);
  auto const finalistsOnly = thorough;
  for (auto const& one : finalistsOnly) again({one.candidate.algorithm});
  if (thorough.empty()) return std::nullopt;
  auto const best = *std::min_element(thorough.begin(), thorough.end(), faster);
  for (auto const& one : thorough) {
    if (isOwnShape(one.candidate) && one.candidate.algorithm == best.candidate.algorithm &&
        best.seconds > one.seconds * worthIt) {
      return one;
    }
  }
  return best;
}

}  // namespace mscclpp::bench
