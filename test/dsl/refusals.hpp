// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the verifier says of a program that is written down in a test.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "mscclpp/dsl/build.hpp"

namespace dsl_test {

using namespace mscclpp;
using dsl::Builder;
using dsl::Protocol;
using dsl::Spec;

inline std::string diagnosticOf(Spec const& spec, std::function<void(Builder&)> const& define) {
  Builder builder(spec);
  define(builder);
  return dsl::verify(dsl::finish(builder)).diagnostic.str();
}

inline void checkRefused(Spec const& spec, std::function<void(Builder&)> const& define, std::string const& sentence) {
  auto const diagnostic = diagnosticOf(spec, define);
  CHECK_MESSAGE(diagnostic.find(sentence) != std::string::npos, "expected: ", sentence,
                "\n  got: ", diagnostic.empty() ? "accepted" : diagnostic);
}

// The two sides of a program of two ranks: what each does, by turns, with the other's number and its channel.
inline void forBoth(Builder& p, std::function<void(int rank, int peer, dsl::MemoryChannelRef channel)> const& side) {
  for (int rank = 0; rank < 2; ++rank) side(rank, 1 - rank, p.memoryChannel(1 - rank, rank));
}

}  // namespace dsl_test
