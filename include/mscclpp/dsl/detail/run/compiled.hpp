// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The steps of a program as code: what kernel.hpp makes of a program type, and what is compiled at run time of a plan.
//
// Slices that differ in numbers alone share their code. `Code` is a type with
//   image    a constant, dsl::detail::Image (image.hpp)
//   isCode   whether its steps are taken from there; else from the table of the context
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "mscclpp/dsl/detail/run/execute.hpp"
#include "mscclpp/dsl/detail/run/known_step.hpp"

namespace mscclpp {

inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

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

  using FirstStep = KnownStep<Code, S, I>;

  // f(k, its operands, the step) for each; `k` is a constant.
  template <class F>
  MSCCLPP_DEVICE static void forEachStep(F&& f) {
    [&]<int... K>(std::integer_sequence<int, K...>) {
      [[maybe_unused]] auto const call = [&]<int At>(std::integral_constant<int, At> at) {
        f(at, CompiledStep<Code, S, I + At>{}, KnownStep<Code, S, I + At>{});
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

// Whether the slice that a block runs by the code of `S` ends at step `I`.
template <class Code, int S, int I>
MSCCLPP_DEVICE bool endsAt(int twin) {
  return [&]<int... Twin>(std::integer_sequence<int, Twin...>) {
    return ((twin == Twin && dsl::detail::sliceOf<Code, dsl::detail::twins<Code, S>.slices[Twin]>().steps == I) || ...);
  }
  (std::make_integer_sequence<int, dsl::detail::twins<Code, S>.count>{});
}

// Steps `I` up to, not with, `End` of slice `S`.
template <class Code, int S, int I, int End, class Runner>
MSCCLPP_DEVICE void runSteps(Runner& runner) {
  if constexpr (I < End) {
    if constexpr (dsl::detail::nextEnd<Code, S>(I - 1) == I) {
      if (endsAt<Code, S, I>(runner.places().twin())) return;
    }
    constexpr auto data = dsl::detail::stepDataOf<Code, S, I>;
    constexpr int near = minimum(End, dsl::detail::nextEnd<Code, S>(I));
    if constexpr (static_cast<dsl::StepKind>(data.step.kind) == dsl::StepKind::loopBegin) {
      auto& places = runner.places();
      KnownStep<Code, S, I> const loop;
      auto const turns = places.turns(loop);
      for (std::uint64_t turn = 0; turn < turns; ++turn) {
        places.enterTurn(loop, turn);
        runSteps<Code, S, I + 1, data.step.loopEnd>(runner);
      }
      places.leaveLoop();
      runSteps<Code, S, data.step.loopEnd + 1, End>(runner);
    } else if constexpr (constexpr int together = stepsTogether<Code, S, I, near>(); together > 1) {
      runner.moveTogether(StepGroup<Code, S, I, together>{});
      runSteps<Code, S, I + together, End>(runner);
    } else {
      CompiledStep<Code, S, I> const one;
      KnownStep<Code, S, I> const step;
      if constexpr (static_cast<dsl::StepKind>(data.step.kind) == dsl::StepKind::move) {
        runner.template move<shapeOfMove(data)>(one, step);
      } else {
        runner.order(one, step);
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

// Which of the slices that have the code of `S` this block is to run, -1 for none, and as which instance.
struct SliceHere {
  int twin = -1;
  int instance = 0;
};

template <class Code, int S>
MSCCLPP_DEVICE SliceHere sliceHere(layout::PlanHandle const& plan) {
  SliceHere here;
  [&]<int... Twin>(std::integer_sequence<int, Twin...>) {
    [[maybe_unused]] auto const look = [&]<int At>(std::integral_constant<int, At>) {
      constexpr auto range = mscclpp::dsl::detail::sliceOf<Code, mscclpp::dsl::detail::twins<Code, S>.slices[At]>();
      auto const block = arch::blockIndex();
      if (block % range.period != range.block || (range.rank >= 0 && plan.rank != range.rank)) return;
      here = {At, static_cast<int>(block / range.period)};
    };
    (look(std::integral_constant<int, Twin>{}), ...);
  }
  (std::make_integer_sequence<int, mscclpp::dsl::detail::twins<Code, S>.count>{});
  return here;
}

// What slice `S` and its twins come to on this block, and the end of the call.
template <class Code, int S, class Op, PacketFormat F, Number T>
MSCCLPP_DEVICE void runSlice(PlanCall<T> const& call, layout::PlanHandle const& plan,
                             layout::WindowHandle const& inWindow, layout::WindowHandle const& outWindow,
                             SliceHere here) {
  PlanRunner<T, Op, F, CompiledShape<Code>> runner(plan, inWindow, outWindow, call);
  if (here.twin >= 0) {
    runner.places().setInstance(here.instance, here.twin);
    runSteps<Code, S, 0, mscclpp::dsl::detail::sliceOf<Code, S>().steps>(runner);
  }
  runner.finish();
}
// The same as a function, where there are some: all in one take the compiler longer than their sum.
template <class Code, int S, class Op, PacketFormat F, Number T>
MSCCLPP_COLD_DEVICE void runSliceApart(PlanCall<T> call, layout::PlanHandle const& plan,
                                       layout::WindowHandle const& inWindow, layout::WindowHandle const& outWindow,
                                       SliceHere here) {
  runSlice<Code, S, Op, F>(call, plan, inWindow, outWindow, here);
}

// A call, by all threads of a kernel that was launched as the program's context says.
template <class Code, class Op, PacketFormat F, Number T>
MSCCLPP_DEVICE void runProgram(T const* in, T* out, std::uint64_t count, layout::PlanHandle const& plan,
                               layout::WindowHandle const& inWindow, layout::WindowHandle const& outWindow) {
  static_assert(!F::wholeWarp, "a program's packets are LL8 or LL16");
  requireShape(plan);
  if constexpr (Code::isCode) {
    requireRoom<CompiledShape<Code>>(plan, count * sizeof(T));
    if (count == 0) return waitForPreviousKernel();
    PlanCall<T> const call{in, out, count};
    if constexpr (constexpr int only = mscclpp::dsl::detail::onlyCode<Code>(); only >= 0) {
      runSlice<Code, only, Op, F>(call, plan, inWindow, outWindow, sliceHere<Code, only>(plan));
    } else {
      bool ran = false;
      [&]<int... S>(std::integer_sequence<int, S...>) {
        auto const slice = [&]<int Slice>(std::integral_constant<int, Slice>) {
          if constexpr (mscclpp::dsl::detail::twins<Code, Slice>.count != 0) {
            auto const here = sliceHere<Code, Slice>(plan);
            if (here.twin < 0) return;
            runSliceApart<Code, Slice, Op, F>(call, plan, inWindow, outWindow, here);
            ran = true;
          }
        };
        (slice(std::integral_constant<int, S>{}), ...);
      }
      (std::make_integer_sequence<int, static_cast<int>(mscclpp::dsl::detail::sliceCount<Code>())>{});
      // A block without steps counts its calls, too.
      if (!ran) PlanRunner<T, Op, F, CompiledShape<Code>>(plan, inWindow, outWindow, call).finish();
    }
  } else {
    requireRoom(plan, count * sizeof(T));
    if (count == 0) return waitForPreviousKernel();
    PlanRunner<T, Op, F> runner(plan, inWindow, outWindow, {in, out, count});
    runTable(runner, plan);
    runner.finish();
  }
}

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
