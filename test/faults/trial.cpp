// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "faults/trial.hpp"

#include <algorithm>
#include <random>

#include <fmt/format.h>

namespace faults {
namespace {

using namespace mscclpp;
using namespace std::chrono_literals;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  // From 0 to n - 1. No distribution of the standard library, which may differ between builds.
  std::uint64_t below(std::uint64_t n) { return engine_() % n; }
  bool chance(unsigned percent) { return below(100) < percent; }
  template <class T, std::size_t n>
  T of(std::array<T, n> const& all) {
    return all[below(n)];
  }

 private:
  std::mt19937_64 engine_;
};

// Those whose sums of a few small numbers are exact.
constexpr std::array types{DataType::float32, DataType::float64, DataType::float16, DataType::bfloat16,
                           DataType::int8,    DataType::uint8,   DataType::int32,   DataType::uint32,
                           DataType::int64,   DataType::uint64};
constexpr std::array ops{ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max};

void chooseOperation(Dice& dice, Step& step) {
  step.op = ReduceOp::none;
  if (!reduces(step.collective)) return;
  do step.op = dice.of(ops);
  while (step.op == ReduceOp::prod && bytesOf(step.type) == 1);
}

Step makeStep(Dice& dice) {
  Step step;
  step.collective = dice.of(collectives);
  step.type = dice.of(types);
  chooseOperation(dice, step);
  step.count = dice.chance(10) ? 2000 + dice.below(2000) : 8 + dice.below(300);
  step.root = static_cast<int>(dice.below(8));
  step.symmetric = dice.chance(50);
  step.newStream = dice.chance(15);
  step.seed = dice.below(std::uint64_t{1} << 62);
  return step;
}

}  // namespace

bool Plan::harmless() const {
  return kind == Kind::none || kind == Kind::strangers || (kind == Kind::fork && way != way::orphan);
}

bool Plan::atOnce() const { return harmless() || kind == Kind::refuse || (kind == Kind::mismatch && !restarts()); }

bool Plan::ends() const {
  return kind == Kind::kill || kind == Kind::stop || (kind == Kind::fork && way == way::orphan) ||
         (kind == Kind::abort && way == way::left);
}

std::chrono::milliseconds Plan::bound() const {
  // What the ranks compute, on a machine with other work.
  auto const own = 4000ms;
  if (atOnce()) return kernelLimit + own;
  auto const joining = hostLimit + hostLimit / 4;
  // A call that fails, and one that finds out: a kernel's wait, one on the host while something is made, and for the
  // end of what was started.
  auto const calls = 2 * (kernelLimit + 2 * hostLimit);
  auto const rejoin = 3 * hostLimit;
  auto const left = attempts * (2 * hostLimit + hostLimit);  // survivors(), and the first use of what shrink() makes
  return joining + calls + rejoin + left + lasts + own;
}

std::string Plan::text() const {
  auto text = fmt::format("seed {}: {} way {} on rank {} of {} in step {} after {} us, {}, {}", seed,
                          kindNames[static_cast<std::size_t>(kind)], way, victim, ranks, at, after.count(),
                          workNames[static_cast<std::size_t>(work)],
                          shrinks ? "those that are left go on" : "the next call goes on");
  if (work == Work::collectives)
    text += fmt::format(", {}", nameOf(steps[static_cast<std::size_t>(std::max(at, 0))].collective));
  if (lasts > 0ms) text += fmt::format(", lasts {} ms", lasts.count());
  if (checksCalls) text += ", calls are compared";
  return text;
}

Plan makePlan(std::uint64_t seed, std::optional<Kind> kind, Plant plant) {
  Dice dice(seed * 0x9E3779B97F4A7C15u + 1);
  Plan plan;
  plan.seed = seed;
  plan.kind = static_cast<Kind>(dice.below(kindNames.size()));
  if (kind) plan.kind = *kind;
  plan.plant = plant;
  constexpr std::array few{2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 6, 8};
  plan.ranks = dice.of(few);
  plan.victim = static_cast<int>(dice.below(static_cast<std::uint64_t>(plan.ranks)));
  plan.work = dice.chance(55) ? Work::collectives : static_cast<Work>(1 + dice.below(3));
  auto const steps = 4 + static_cast<int>(dice.below(4));
  plan.at = static_cast<int>(dice.below(static_cast<std::uint64_t>(steps - 1)));
  plan.after = std::chrono::microseconds(dice.below(dice.chance(50) ? 3000 : 30000));
  bool const shrinks = dice.chance(60);
  switch (plan.kind) {
    case Kind::none:
    case Kind::strangers:
      break;
    case Kind::kill:
    case Kind::stop:
      if (dice.chance(10)) plan.at = -1;
      break;
    case Kind::pause:
    case Kind::delay:
      plan.lasts = std::chrono::milliseconds(10 + dice.below(1400));
      break;
    case Kind::fork:
      plan.way = static_cast<int>(dice.below(3));
      break;
    case Kind::abort:
      plan.way = static_cast<int>(dice.below(2));
      break;
    case Kind::refuse:
      plan.work = dice.chance(80) ? Work::collectives : Work::messages;
      break;
    case Kind::mismatch:
      plan.work = Work::collectives;
      plan.way = static_cast<int>(dice.below(6));
      plan.checksCalls = dice.chance(60);
      break;
  }
  for (int i = 0; i < steps; ++i) plan.steps.push_back(makeStep(dice));
  // Nobody passes by a failure of others.
  plan.steps.back().meets = true;
  plan.steps.back().collective = Collective::allReduce;
  chooseOperation(dice, plan.steps.back());
  auto& hit = plan.steps[static_cast<std::size_t>(std::max(plan.at, 0))];
  if (plan.kind == Kind::mismatch) {
    // One that has what is to differ.
    while ((plan.way == way::root && !hasRoot(hit.collective)) ||
           (plan.way == way::operation && !reduces(hit.collective)) || hit.collective == Collective::barrier) {
      hit = makeStep(dice);
    }
  }
  // Messages and ports have no calls that find together. Where a stream is new to some ranks only, the next call does
  // not either, but what a refused allocation leaves behind is the same on all ranks.
  plan.shrinks = plan.work != Work::collectives || plan.kind == Kind::abort || shrinks;
  if (plan.kind == Kind::refuse || plan.kind == Kind::mismatch) plan.shrinks = false;
  if (!plan.shrinks && plan.kind != Kind::refuse && plan.kind != Kind::none) {
    for (auto& step : plan.steps) step.newStream = false;
  }
  if (plan.kind == Kind::refuse) hit.newStream = true;
  plan.kernelLimit = plan.atOnce() ? 5000ms : 250ms;
  plan.hostLimit = plan.atOnce() ? 10000ms : 750ms;
  return plan;
}

}  // namespace faults
