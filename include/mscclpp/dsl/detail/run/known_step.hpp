// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The steps of a program as constants: each known by type, so that the compiler's front end drops what only other steps
// would need. Most of the time that a kernel takes to compile would go into code that is dropped later.
//
// Slices that differ in numbers alone are twins: they share one code, and their blocks look for the numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "mscclpp/base/config.hpp"
#include "mscclpp/dsl/core/kinds.hpp"
#include "mscclpp/dsl/detail/lower/image.hpp"

namespace mscclpp {

namespace dsl::detail {

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

// Whether slice `b` does what `a` does at first, but for numbers: for ranks, chunks and channels, and for whose it is.
// Not consteval, which clang 14 would not let consteval functions call with what they work on.
template <class Code>
constexpr bool begins(std::size_t a, std::size_t b) {
  constexpr auto const& table = Code::image;
  auto const &one = table.slices[a], &other = table.slices[b];
  if (other.steps > one.steps) return false;
  int loopEnd = -1;
  for (int i = 0; i < other.steps; ++i) {
    auto const &step = table.steps[one.firstStep + i], &twin = table.steps[other.firstStep + i];
    if (step != twin) return false;
    if (static_cast<dsl::StepKind>(step.kind) == dsl::StepKind::loopBegin) loopEnd = step.loopEnd;
    for (int k = 0; k < step.sources + step.targets; ++k) {
      auto const& operand = table.operands[one.firstOperand + step.firstOperand + k];
      auto const& same = table.operands[other.firstOperand + step.firstOperand + k];
      if (operand.buffer != same.buffer || operand.packets != same.packets) return false;
    }
  }
  return loopEnd < other.steps;
}

// The slices that share the code of slice `slice`, itself first; none where it shares another's.
struct Twins {
  static constexpr int most = 8;  // whoever looks for a number goes through them
  int count = 0;
  int slices[most]{};
};

// The slice whose code each has, worked out once for a program.
template <std::size_t Slices>
struct CodeOfSlices {
  int of[Slices + 1]{};
};

template <class Code>
constexpr auto shareCode() {
  constexpr auto slices = static_cast<int>(Code::image.sizes.slices);
  CodeOfSlices<Code::image.sizes.slices> code;
  bool taken[slices + 1]{};
  // The longest of those left takes along what is done as it begins.
  for (int left = slices; left > 0;) {
    int longest = -1;
    for (int s = 0; s < slices; ++s) {
      if (!taken[s] && (longest < 0 || Code::image.slices[s].steps > Code::image.slices[longest].steps)) longest = s;
    }
    code.of[longest] = longest;
    taken[longest] = true;
    --left;
    int together = 1;
    for (int s = 0; s < slices && together < Twins::most; ++s) {
      if (taken[s] || !begins<Code>(static_cast<std::size_t>(longest), static_cast<std::size_t>(s))) continue;
      code.of[s] = longest;
      taken[s] = true;
      --left;
      ++together;
    }
  }
  return code;
}

template <class Code>
inline constexpr auto codeOfSlices = shareCode<Code>();

template <class Code>
constexpr Twins twinsOf(int slice) {
  if (codeOfSlices<Code>.of[slice] != slice) return {};
  Twins twins{1, {slice}};
  for (int s = 0; s < static_cast<int>(Code::image.sizes.slices); ++s) {
    if (s != slice && codeOfSlices<Code>.of[s] == slice) twins.slices[twins.count++] = s;
  }
  return twins;
}

template <class Code, int S>
inline constexpr Twins twins = twinsOf<Code>(S);

// By functions, or nvcc takes the image for the host's.
template <class Code>
consteval std::size_t sliceCount() {
  return Code::image.sizes.slices;
}
template <class Code, int S>
consteval SliceRange sliceOf() {
  return Code::image.slices[S];
}

// The slice whose code all have, or -1.
template <class Code>
consteval int onlyCode() {
  int const first = codeOfSlices<Code>.of[0];
  for (std::size_t s = 0; s < sliceCount<Code>(); ++s) {
    if (codeOfSlices<Code>.of[s] != first) return -1;
  }
  return sliceCount<Code>() == 0 ? -1 : first;
}

// Of the slices with the code of `S`, where the first ends that goes beyond step `i`.
template <class Code, int S>
consteval int nextEnd(int i) {
  auto end = Code::image.slices[S].steps;
  for (int k = 0; k < twins<Code, S>.count; ++k) {
    auto const steps = Code::image.slices[twins<Code, S>.slices[k]].steps;
    if (steps > i && steps < end) end = steps;
  }
  return end;
}

}  // namespace dsl::detail

inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

// One of a step's numbers; `Find` tells where among its data.
template <class Code, int S, int I, class Find>
struct KnownNumber {
  // On the block that runs the `twin`-th of the slices with this code.
  MSCCLPP_DEVICE static int at(int rank, int ranks, int instance, int twin) {
    return pick(rank, ranks, instance, twin, std::make_integer_sequence<int, dsl::detail::twins<Code, S>.count>{});
  }

 private:
  template <int Twin>
  static consteval layout::RankNumber number() {
    constexpr int slice = dsl::detail::twins<Code, S>.slices[Twin];
    // One that has ended does not ask.
    return Find::in(dsl::detail::stepDataOf < Code, I < dsl::detail::sliceOf<Code, slice>().steps ? slice : S, I >);
  }
  template <int... Twin>
  MSCCLPP_DEVICE static int pick(int rank, int ranks, int instance, int twin, std::integer_sequence<int, Twin...>) {
    if constexpr (((number<Twin>() == number<0>()) && ...)) {
      return value<0>(rank, ranks, instance);
    } else {
      int found = 0;
      ((found = twin == Twin ? value<Twin>(rank, ranks, instance) : found), ...);
      return found;
    }
  }
  template <int Twin>
  MSCCLPP_DEVICE static int value(int rank, int ranks, int instance) {
    constexpr auto known = number<Twin>();
    if constexpr (known.rule == layout::RankNumber::Rule::fixed && known.perInstance == 0) {
      return known.base;
    } else {
      return known.at(rank, ranks, instance);
    }
  }
};

template <int At>
struct OperandsRank {
  static consteval layout::RankNumber in(auto const& data) { return data.operands[At].rank; }
};
template <int At>
struct OperandsIndex {
  static consteval layout::RankNumber in(auto const& data) { return data.operands[At].index; }
};
template <int At>
struct StepsObject {
  static consteval layout::RankNumber in(auto const& data) { return data.objects[At]; }
};

template <class Code, int S, int I, int At>
struct KnownOperand {
  static constexpr std::uint8_t buffer = dsl::detail::stepDataOf<Code, S, I>.operands[At].buffer;
  static constexpr bool packets = dsl::detail::stepDataOf<Code, S, I>.operands[At].packets;
  KnownNumber<Code, S, I, OperandsRank<At>> rank;
  KnownNumber<Code, S, I, OperandsIndex<At>> index;
};

// A layout::PlanStep.
template <class Code, int S, int I>
struct KnownStep {
  static constexpr auto all = dsl::detail::stepDataOf<Code, S, I>.step;
  static constexpr auto kind = all.kind, link = all.link, reduce = all.reduce, everybody = all.everybody;
  static constexpr auto concludes = all.concludes;
  static constexpr auto ahead = all.ahead, chunksAhead = all.chunksAhead;
  static constexpr auto chunks = all.chunks, part = all.part, parts = all.parts;
  static constexpr auto sources = all.sources, targets = all.targets;
  static constexpr auto firstObject = all.firstObject, objects = all.objects, blocks = all.blocks;
  static constexpr auto loopEnd = all.loopEnd, loopChunks = all.loopChunks;
  static constexpr auto unitBytes = all.unitBytes;
};

// One step: its operands and objects are known to whoever asks for them.
template <class Code, int S, int I>
struct CompiledStep {
  // So that no code is made for a switch where there is none, which would take most of the time to compile.
  static consteval bool mayTakeSwitch() { return dsl::detail::stepDataOf<Code, S, I>.step.everybody != 0; }

  // Whose packets a thread looks for at once: as many as registers hold.
  static constexpr int sourcesTogether = [] {
    int const sources = dsl::detail::stepDataOf<Code, S, I>.step.sources;
    return sources < 1 ? 1 : sources < 8 ? sources : 8;
  }();
  static constexpr bool allTogether = dsl::detail::stepDataOf<Code, S, I>.step.sources <= sourcesTogether;

  // Sources and targets apart, so that code for one is not made for the other.
  template <class F>
  MSCCLPP_DEVICE void forEachSource(auto const&, F&& f) const {
    forEach<0>(f, std::make_integer_sequence<int, dsl::detail::stepDataOf<Code, S, I>.step.sources>{});
  }
  template <class F>
  MSCCLPP_DEVICE void forSources(auto const& step, int first, int count, F&& f) const {
    if constexpr (allTogether) {
      forEachSource(step, f);
    } else {
      forEachSource(step, [&](int i, auto const& operand) {
        if (i >= first && i < first + count) f(i - first, operand);
      });
    }
  }
  template <class F>
  MSCCLPP_DEVICE void forEachTarget(auto const&, F&& f) const {
    constexpr auto step = dsl::detail::stepDataOf<Code, S, I>.step;
    forEach<step.sources>(f, std::make_integer_sequence<int, step.targets>{});
  }
  template <class F>
  MSCCLPP_DEVICE void forEachOperand(auto const&, F&& f) const {
    constexpr auto step = dsl::detail::stepDataOf<Code, S, I>.step;
    forEach<0>(f, std::make_integer_sequence<int, step.sources + step.targets>{});
  }
  template <class F>
  MSCCLPP_DEVICE void forEachObject(int, int, F&& f) const {
    [&]<int... N>(std::integer_sequence<int, N...>) {
      [[maybe_unused]] auto const call = [&]<int At>(std::integral_constant<int, At>) {
        f(At, KnownNumber<Code, S, I, StepsObject<At>>{});
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
    f(i, KnownOperand<Code, S, I, At>{});
  }
};

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
