// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program from the type that defines it, and the proof that it is right:
//
//   struct Mine {
//     static constexpr dsl::Spec spec{.name = "mine", .collective = dsl::allGather(2)};
//     static constexpr void define(dsl::Builder& p) { ... }
//   };
//   static_assert(dsl::verify<Mine>());   // right, or it does not compile, and the compiler prints what is wrong
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <utility>
#include <vector>

#include "mscclpp/dsl/channels.hpp"
#include "mscclpp/dsl/detail/lower/image.hpp"
#include "mscclpp/dsl/detail/lower/lower.hpp"
#include "mscclpp/dsl/detail/verify/verify.hpp"
#include "mscclpp/dsl/passes/auto_sync.hpp"
#include "mscclpp/dsl/passes/coarsen.hpp"
#include "mscclpp/dsl/passes/fuse.hpp"
#include "mscclpp/dsl/passes/promote.hpp"
#include "mscclpp/dsl/passes/replicate.hpp"

namespace mscclpp::dsl {

// What defines a program: its spec, and a function that writes its steps.
template <class P>
concept ProgramType = requires(Builder& builder) {
  { P::spec } -> std::convertible_to<Spec const&>;
  P::define(builder);
};

// What follows from a filled builder: instances, fusion, syncs.
constexpr Program finish(Builder& builder) {
  auto const& spec = builder.spec();
  auto program = std::move(builder.program());
  if (!program.mistake.empty()) return program;
  if (spec.instances < 1 || spec.instances > 64) {
    program.mistake = say(spec.instances, " instances; 1 to 64");
    return program;
  }
  if (spec.fuse) fuse(program);
  // Instances of whole steps have the fusions and syncs of the original, which are found once.
  bool const apart = spec.instances > 1 && !keepsStepsWhole(program, spec.instances, spec.replication);
  if (apart) {
    program = replicate(program, spec.instances, spec.replication);
    if (spec.fuse) fuse(program);  // what was one step of several chunks
  }
  if (spec.autoSync) addSyncs(program);
  if (spec.instances > 1 && !apart) program = replicate(program, spec.instances, spec.replication);
  return program;
}

// What P defines, with what its spec asks for, at compile time or at run time; not proved yet. A mistake in the use of
// the builder stands in Program::mistake.
template <ProgramType P>
constexpr Program build() {
  Builder builder(P::spec);
  P::define(builder);
  return finish(builder);
}

namespace detail {

// Longer slices, and programs of more steps than that many times as much, are interpreted.
inline constexpr std::size_t longestSlice = 256;

// A program that is right, as kernels have it.
struct LoweredProgram {
  layout::PlanShape shape;
  std::vector<Slice> slices;

  // Where the parts of each slice begin, as they lie one behind the other.
  constexpr std::vector<SliceRange> ranges() const {
    std::vector<SliceRange> all;
    int step = 0, operand = 0, object = 0;
    for (auto const& slice : slices) {
      all.push_back({slice.rank, static_cast<unsigned>(slice.block), static_cast<unsigned>(slice.period), step,
                     static_cast<int>(slice.steps.size()), operand, object});
      step += static_cast<int>(slice.steps.size());
      operand += static_cast<int>(slice.operands.size());
      object += static_cast<int>(slice.objects.size());
    }
    return all;
  }
  constexpr ImageRoom sizes() const {
    ImageRoom sum{0, 0, 0, 0};
    for (auto const& slice : slices) {
      ++sum.slices;
      sum.steps += slice.steps.size();
      sum.operands += slice.operands.size();
      sum.objects += slice.objects.size();
    }
    return sum;
  }
  // Whether they hold it as code.
  constexpr bool isCode() const {
    bool isShort = sizes().steps <= 4 * longestSlice;
    for (auto const& slice : slices) isShort = isShort && slice.steps.size() <= longestSlice;
    return isShort;
  }
};

constexpr LoweredProgram lowered(Program program, Verdict const& verdict) {
  markConclusions(program, verdict.reductions);
  coarsen(program);
  return {shapeOf(program, verdict.needsEvenChunks), lower(program)};
}

template <class P, ImageRoom Room>
consteval Image<Room> imageWith() {
  Image<Room> image;
  auto program = build<P>();
  auto const verdict = dsl::prove(program);
  image.diagnosticSize =
      verdict.diagnostic.size() < image.diagnosticRoom ? verdict.diagnostic.size() : image.diagnosticRoom;
  std::copy_n(verdict.diagnostic.view().begin(), image.diagnosticSize, image.diagnostic);
  if (!verdict.right()) return image;
  auto const made = lowered(program, verdict);
  image.shape = made.shape;
  image.sizes = made.sizes();
  image.isCode = made.isCode();
  if (!image.isCode) return image;
  image.fits = Room.holds(image.sizes);
  if (!image.fits) return image;
  auto const ranges = made.ranges();
  std::copy_n(ranges.begin(), ranges.size(), image.slices);
  std::size_t step = 0, operand = 0, object = 0;
  for (auto const& each : made.slices) {
    for (auto const& one : each.steps) image.steps[step++] = one;
    for (auto const& one : each.operands) image.operands[operand++] = one;
    for (auto const& one : each.objects) image.objects[object++] = one;
  }
  return image;
}

template <class P>
inline constexpr auto usualImage = imageWith<P, ImageRoom{}>();

// With just the room that it needs: compilers copy what they look things up in.
template <class P>
consteval auto trimmedImage() {
  constexpr auto const& usual = usualImage<P>;
  if constexpr (!usual.fits) {
    return imageWith<P, usual.sizes>();
  } else {
    Image<usual.isCode ? usual.sizes : ImageRoom{0, 0, 0, 0}> image;
    image.shape = usual.shape;
    image.isCode = usual.isCode;
    if constexpr (usual.isCode) {
      image.sizes = usual.sizes;
      std::copy_n(usual.slices, usual.sizes.slices, image.slices);
      std::copy_n(usual.steps, usual.sizes.steps, image.steps);
      std::copy_n(usual.operands, usual.sizes.operands, image.operands);
      std::copy_n(usual.objects, usual.sizes.objects, image.objects);
    }
    return image;
  }
}
template <class P>
inline constexpr auto imageOf = trimmedImage<P>();

template <class P>
consteval auto sentenceOf() {
  auto const& image = usualImage<P>;
  Sentence<usualImage<P>.diagnosticSize + 1> sentence;
  std::copy_n(image.diagnostic, image.diagnosticSize, sentence.text);
  return sentence;
}

template <auto Why>
struct Refused {
  static_assert(sizeof(Why) == 0,
                "this program is wrong; what is wrong stands in the name of dsl::detail::Refused<...>");
  static constexpr bool right = false;
};

template <class P>
consteval bool isRight() {
  if constexpr (usualImage<P>.diagnosticSize == 0) {
    return true;
  } else {
    return Refused<sentenceOf<P>()>::right;
  }
}

}  // namespace detail

// True, or the compiler's message holds the diagnostic. For device code, which must not call functions of the host.
template <ProgramType P>
inline constexpr bool isRight = detail::isRight<P>();

namespace detail {
template <class P>
consteval bool stepsAreCode() {
  if constexpr (!P::spec.compiled) {
    return false;
  } else {
    return mscclpp::dsl::isRight<P> && imageOf<P>.isCode;
  }
}
}  // namespace detail

// Whether the kernel of P holds its steps as code; else it interprets its context's table.
template <ProgramType P>
inline constexpr bool stepsAreCode = detail::stepsAreCode<P>();

template <ProgramType P>
consteval bool verify() {
  return isRight<P>;
}

}  // namespace mscclpp::dsl
