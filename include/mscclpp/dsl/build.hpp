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

#include "mscclpp/dsl/channels.hpp"
#include "mscclpp/dsl/passes/auto_sync.hpp"
#include "mscclpp/dsl/passes/fuse.hpp"
#include "mscclpp/dsl/passes/replicate.hpp"
#include "mscclpp/dsl/verify.hpp"

namespace mscclpp::dsl {

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
  if (spec.instances > 1) program = replicate(program, spec.instances, spec.replication);
  if (spec.fuse) fuse(program);
  if (spec.autoSync) addSyncs(program);
  return program;
}

template <ProgramType P>
constexpr Program build() {
  Builder builder(P::spec);
  P::define(builder);
  return finish(builder);
}

namespace detail {

template <class P>
consteval std::size_t stepCount() {
  auto const program = build<P>();
  std::size_t count = 0;
  for (auto const& rank : program.ranks) {
    for (auto const& block : rank.blocks) count += block.steps.size();
  }
  return count;
}

// A verdict that outlives the evaluation it was found in.
template <std::size_t Steps>
struct Proof {
  static constexpr std::size_t room = 1024;
  std::size_t storySize = 0;
  char story[room]{};
  bool needsEvenChunks = false, canAverage = true;
  Reduces reductions[Steps + 1]{};
};

template <class P, std::size_t Steps>
consteval Proof<Steps> prove() {
  Proof<Steps> proof;
  auto const program = build<P>();
  auto const verdict = dsl::verify(program);
  proof.storySize = verdict.story.size() < proof.room ? verdict.story.size() : proof.room;
  std::copy_n(verdict.story.view().begin(), proof.storySize, proof.story);
  proof.needsEvenChunks = verdict.needsEvenChunks;
  proof.canAverage = verdict.canAverage;
  std::copy(verdict.reductions.begin(), verdict.reductions.end(), proof.reductions);
  return proof;
}

// The one verification of a program type.
template <class P>
inline constexpr auto proofOf = prove<P, stepCount<P>()>();

template <class P>
consteval auto sentenceOf() {
  Sentence<proofOf<P>.storySize + 1> sentence;
  std::copy_n(proofOf<P>.story, proofOf<P>.storySize, sentence.text);
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
  if constexpr (proofOf<P>.storySize == 0) {
    return true;
  } else {
    return Refused<sentenceOf<P>()>::right;
  }
}

}  // namespace detail

// True, or the compiler's message holds the story. For device code, which must not call functions of the host.
template <ProgramType P>
inline constexpr bool isRight = detail::isRight<P>();

template <ProgramType P>
consteval bool verify() {
  return isRight<P>;
}

}  // namespace mscclpp::dsl
