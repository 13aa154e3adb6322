// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which frames of a stack matter to a reader, and how they are written. Used by describe() and by the three reports.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mscclpp/sim/finding.hpp"

namespace mscclpp::sim {

// "/a/b/../c" as "/a/c": what a compiler was told is not what a person wants to read.
std::string plainPath(std::string_view path);

// Drops the frames of the simulated machine, of the compiler's hooks and of the standard library at the access's end of
// the stack, and those that run a thread or a rank at the other end. What lies between stays.
std::vector<SourceFrame> withoutMachine(std::vector<SourceFrame> frames);

// A frame of this library's headers, as the user sees them.
bool isLibraryFrame(SourceFrame const& frame);

// The innermost frame, where the access is; null for an empty stack.
SourceFrame const* placeOf(AccessRecord const& access);
// The innermost frame outside of this library's headers: the caller to look at. Null where there is none.
SourceFrame const* callerOf(AccessRecord const& access);

// "Exchange::operator()" for "void Exchange::operator()<int>(int*, unsigned long) const".
std::string shortName(std::string_view function);

// "rank 0, kernel "exchange", block 2, thread 17" or "rank 0, host code".
std::string whoIs(AccessRecord const& access);

}  // namespace mscclpp::sim
