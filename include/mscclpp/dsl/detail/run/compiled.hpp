// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The steps of a program as code: what kernel.hpp makes of a program type, and what is compiled at run time of a plan.
//
// `Code` is a type with
//   image    a constant, dsl::detail::Image (image.hpp)
//   isCode   whether its steps are taken from there; else from the table of the context
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "mscclpp/dsl/detail/lower/image.hpp"
#include "mscclpp/dsl/detail/run/execute.hpp"

namespace mscclpp {

namespace dsl::detail {

// ---- the program's slices as constants ------------------------------------------------------------------------------

// One step with its operands, alone.
template <int Operands, int Objects>
struct StepData {
  layout::PlanStep step{};
  layout::PlanOperand operands[Operands + 1]{};
  layout::RankNumber objects[Objects + 1]{};
};

template <class Code, int S, int I>
consteval auto stepData() {
  constexpr auto const& table = Code::image;
  constexpr auto const& slice = table.slices[S];
  constexpr auto const& step = table.steps[slice.firstStep + I];
  StepData<step.sources + step.targets, step.objects> data;
  data.step = step;
  for (int i = 0; i < step.sources + step.targets; ++i) {
    data.operands[i] = table.operands[static_cast<std::size_t>(slice.firstOperand + step.firstOperand + i)];
  }
  for (int i = 0; i < step.objects; ++i) {
    data.objects[i] = table.objects[static_cast<std::size_t>(slice.firstObject + step.firstObject + i)];
  }
  data.step.firstOperand = 0;
  data.step.firstObject = 0;
  return data;
}

template <class Code, int S, int I>
inline constexpr auto stepDataOf = stepData<Code, S, I>();

// By functions, or nvcc takes the image for the host's.
template <class Code>
consteval std::size_t sliceCount() {
  return Code::image.sizes.slices;
}
template <class Code, int S>
consteval SliceRange sliceOf() {
  return Code::image.slices[S];
}

}  // namespace dsl::detail

inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

// One step: its operands and objects are constants to whoever asks for them.
template <class Code, int S, int I>
struct CompiledStep {
  // So that no code is made for a switch where there is none, which would take most of the time to compile.
  static consteval bool mayTakeSwitch() { return dsl::detail::stepDataOf<Code, S, I>.step.everybody != 0; }

  // Whose packets a thread looks for at once: as many as registers hold.
  static constexpr int sourcesTogether = [] {
    int const sources = dsl::detail::stepDataOf<Code, S, I>.step.sources;
    return sources < 1 ? 1 : sources < 8 ? sources : 8;
  }();

  // Sources and targets apart, so that code for one is not made for the other.
  template <class F>
  MSCCLPP_DEVICE void forEachSource(layout::PlanStep const&, F&& f) const {
    forEach<0>(f, std::make_integer_sequence<int, dsl::detail::stepDataOf<Code, S, I>.step.sources>{});
  }
  template <class F>
  MSCCLPP_DEVICE void forSources(layout::PlanStep const& step, int first, int count, F&& f) const {
    forEachSource(step, [&](int i, layout::PlanOperand const& operand) {
      if (i >= first && i < first + count) f(i - first, operand);
    });
  }
  template <class F>
  MSCCLPP_DEVICE void forEachTarget(layout::PlanStep const&, F&& f) const {
    constexpr auto step = dsl::detail::stepDataOf<Code, S, I>.step;
    forEach<step.sources>(f, std::make_integer_sequence<int, step.targets>{});
  }
  template <class F>
  MSCCLPP_DEVICE void forEachOperand(layout::PlanStep const&, F&& f) const {
    constexpr auto step = dsl::detail::stepDataOf<Code, S, I>.step;
    forEach<0>(f, std::make_integer_sequence<int, step.sources + step.targets>{});
  }
  template <class F>
  MSCCLPP_DEVICE void forEachObject(int, int, F&& f) const {
    [&]<int... N>(std::integer_sequence<int, N...>) {
      [[maybe_unused]] auto const call = [&]<int At>(std::integral_constant<int, At>) {
        constexpr auto object = dsl::detail::stepDataOf<Code, S, I>.objects[At];
        f(At, object);
      };
      (call(std::integral_constant<int, N>{}), ...);
    }
    (std::make_integer_sequence<int, dsl::detail::stepDataOf<Code, S, I>.step.objects>{});
  }

 private:
  template <int First, class F, int... N>
  MSCCLPP_DEVICE static void forEach(F& f, std::integer_sequence<int, N...>) {
    (callWith<First + N>(f, N), ...);
  }
  template <int At, class F>
  MSCCLPP_DEVICE static void callWith(F& f, int i) {
    constexpr auto operand = dsl::detail::stepDataOf<Code, S, I>.operands[At];
    f(i, operand);
  }
};

template <class Data>
consteval MoveShape shapeOfMove(Data const& data) {
  if (static_cast<dsl::ChannelKind>(data.step.link) == dsl::ChannelKind::port) return MoveShape::port;
  for (int i = 0; i < data.step.sources + data.step.targets; ++i) {
    if (data.operands[i].packets) return MoveShape::packets;
  }
  return data.step.sources == 1 && data.step.targets == 1 ? MoveShape::copy : MoveShape::plain;
}

// `Count` steps from `I` on, for PlanRunner::moveTogether.
template <class Code, int S, int I, int Count>
struct StepGroup {
  static constexpr int count = Count;

  MSCCLPP_DEVICE static layout::PlanStep firstStep() {
    constexpr auto step = dsl::detail::stepDataOf<Code, S, I>.step;
    return step;
  }
  // f(k, its operands, the step) for each; `k` is a constant.
  template <class F>
  MSCCLPP_DEVICE static void forEachStep(F&& f) {
    [&]<int... K>(std::integer_sequence<int, K...>) {
      [[maybe_unused]] auto const call = [&]<int At>(std::integral_constant<int, At> at) {
        constexpr auto step = dsl::detail::stepDataOf<Code, S, I + At>.step;
        f(at, CompiledStep<Code, S, I + At>{}, step);
      };
      (call(std::integral_constant<int, K>{}), ...);
    }
    (std::make_integer_sequence<int, Count>{});
  }
};

// Sends of plain data as packets, or unpackings of packets into plain memory: nobody waits for part of such a run of
// steps, and without a barrier between them they touch different data.
enum class GroupKind : std::uint8_t { none, sends, unpackings };

template <class Data>
consteval GroupKind groupKindOf(Data const& data) {
  if (static_cast<dsl::StepKind>(data.step.kind) != dsl::StepKind::move) return GroupKind::none;
  if (shapeOfMove(data) != MoveShape::packets || data.step.sources != 1) return GroupKind::none;
  if (!data.operands[0].packets) return GroupKind::sends;
  for (int i = 1; i <= data.step.targets; ++i) {
    if (data.operands[i].packets) return GroupKind::none;
  }
  return GroupKind::unpackings;
}

// How many steps from `I` on are done side by side.
template <class Code, int S, int I, int End, int Most = 8>
consteval int stepsTogether() {
  constexpr auto first = dsl::detail::stepDataOf<Code, S, I>;
  if constexpr (Most > 1 && I + 1 < End && groupKindOf(first) != GroupKind::none) {
    constexpr auto next = dsl::detail::stepDataOf<Code, S, I + 1>;
    if constexpr (groupKindOf(next) == groupKindOf(first) && next.step.chunks == first.step.chunks &&
                  next.step.part == first.step.part && next.step.parts == first.step.parts) {
      return 1 + stepsTogether<Code, S, I + 1, End, Most - 1>();
    }
  }
  return 1;
}

// Steps `I` up to, not with, `End` of slice `S`.
template <class Code, int S, int I, int End, class Runner>
MSCCLPP_DEVICE void runSteps(Runner& runner) {
  if constexpr (I < End) {
    constexpr auto data = dsl::detail::stepDataOf<Code, S, I>;
    if constexpr (static_cast<dsl::StepKind>(data.step.kind) == dsl::StepKind::loopBegin) {
      auto& places = runner.places();
      auto const turns = places.turns(data.step);
      for (std::uint64_t turn = 0; turn < turns; ++turn) {
        places.enterTurn(data.step, turn);
        runSteps<Code, S, I + 1, data.step.loopEnd>(runner);
      }
      places.leaveLoop();
      runSteps<Code, S, data.step.loopEnd + 1, End>(runner);
    } else if constexpr (constexpr int together = stepsTogether<Code, S, I, End>(); together > 1) {
      runner.moveTogether(StepGroup<Code, S, I, together>{});
      runSteps<Code, S, I + together, End>(runner);
    } else {
      CompiledStep<Code, S, I> const one;
      if constexpr (static_cast<dsl::StepKind>(data.step.kind) == dsl::StepKind::move) {
        runner.template move<shapeOfMove(data)>(one, data.step);
      } else {
        runner.order(one, data.step);
      }
      runSteps<Code, S, I + 1, End>(runner);
    }
  }
}

// The table of this rank's context.
struct TableSteps {
  static consteval bool mayTakeSwitch() { return true; }
  static constexpr int sourcesTogether = 1;

  layout::PlanStep const* steps;
  layout::PlanOperand const* operands;
  std::int32_t const* objects;

  MSCCLPP_DEVICE layout::PlanStep const& step(int i) const { return steps[i]; }
  template <class F>
  MSCCLPP_DEVICE void forEachSource(layout::PlanStep const& step, F&& f) const {
    forSources(step, 0, step.sources, f);
  }
  template <class F>
  MSCCLPP_DEVICE void forSources(layout::PlanStep const& step, int first, int count, F&& f) const {
    for (int i = 0; i < minimum(count, step.sources - first); ++i) f(i, operands[step.firstOperand + first + i]);
  }
  template <class F>
  MSCCLPP_DEVICE void forEachTarget(layout::PlanStep const& step, F&& f) const {
    for (int i = 0; i < step.targets; ++i) f(i, operands[step.firstOperand + step.sources + i]);
  }
  template <class F>
  MSCCLPP_DEVICE void forEachOperand(layout::PlanStep const& step, F&& f) const {
    for (int i = 0; i < step.sources + step.targets; ++i) f(i, operands[step.firstOperand + i]);
  }
  template <class F>
  MSCCLPP_DEVICE void forEachObject(int first, int count, F&& f) const {
    for (int i = 0; i < count; ++i)
      f(i, layout::RankNumber{layout::RankNumber::Rule::fixed, 0, 0, 0, objects[first + i]});
  }
};

template <class Runner>
MSCCLPP_DEVICE void runTable(Runner& runner, layout::PlanHandle const& plan) {
  auto const block = plan.table[arch::blockIndex()];
  runner.run(TableSteps{plan.steps + block.firstStep, plan.operands, plan.objects}, block.steps);
}

// The shape of a program as a constant, so that what is divided by it is not divided in the kernel.
template <class Code>
struct CompiledShape {
  static constexpr layout::PlanShape value = Code::image.shape;
  MSCCLPP_DEVICE static constexpr layout::PlanShape of(layout::PlanHandle const&) { return value; }
};

// What a launch must be for this context.
MSCCLPP_DEVICE void requireShape(layout::PlanHandle const& plan) {
  require(arch::gridBlocks() == plan.shape.blocks, plan.watch, -1, std::uint64_t(layout::Misuse::blockCount),
          plan.shape.blocks, arch::gridBlocks());
  require(arch::blockThreads() % arch::warpSize == 0, plan.watch, -1, std::uint64_t(layout::Misuse::blockThreads),
          arch::warpSize, arch::blockThreads());
}

template <class Shape = LoadedShape>
MSCCLPP_DEVICE void requireRoom(layout::PlanHandle const& plan, std::uint64_t bytes) {
  auto const shape = Shape::of(plan);
  require(bytes <= plan.maxBytes, plan.watch, -1, std::uint64_t(layout::Misuse::planBytes), plan.maxBytes, bytes);
  auto const whole = std::uint64_t{16} * static_cast<unsigned>(shape.longestOf);
  require(shape.needsEvenChunks == 0 || bytes % whole == 0, plan.watch, -1, std::uint64_t(layout::Misuse::unevenParts),
          whole, bytes);
}

// A call, by all threads of a kernel that was launched as the program's context says.
template <class Code, class Op, PacketFormat F, Number T>
MSCCLPP_DEVICE void runProgram(T const* in, T* out, std::uint64_t count, layout::PlanHandle const& plan,
                               layout::WindowHandle const& inWindow, layout::WindowHandle const& outWindow) {
  static_assert(!F::wholeWarp, "a program's packets are LL8 or LL16");
  requireShape(plan);
  using Shape = std::conditional_t<Code::isCode, CompiledShape<Code>, LoadedShape>;
  requireRoom<Shape>(plan, count * sizeof(T));
  if (count == 0) return waitForPreviousKernel();
  PlanRunner<T, Op, F, Shape> runner(plan, inWindow, outWindow, {in, out, count});
  if constexpr (Code::isCode) {
    [&]<std::size_t... S>(std::index_sequence<S...>) {
      auto const slice = [&]<int Slice>(std::integral_constant<int, Slice>) {
        constexpr auto range = mscclpp::dsl::detail::sliceOf<Code, Slice>();
        auto const block = arch::blockIndex();
        if (block % range.period != range.block) return;
        if (range.rank >= 0 && plan.rank != range.rank) return;
        runner.places().setInstance(static_cast<int>(block / range.period));
        runSteps<Code, Slice, 0, range.steps>(runner);
      };
      (slice(std::integral_constant<int, static_cast<int>(S)>{}), ...);
    }
    (std::make_index_sequence<mscclpp::dsl::detail::sliceCount<Code>()>{});
  } else {
    runTable(runner, plan);
  }
  runner.finish();
}

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
