// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a compiler is asked for, whichever it is.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.hpp"
#include "mscclpp/jit/kernel.hpp"

namespace mscclpp::jit {

struct Request {
  Source const& source;
  std::string const& type;
  Options const& options;
  std::span<Extent const> parameters;

  // The source, and behind it, so that its lines keep their numbers, the include of `late.hpp` and a look at the
  // parameters.
  std::string text() const;
  // "LateEntry<...>" of the type.
  std::string entry() const;
  // What makes it, for compilers that are not asked for it by name.
  std::string instance() const;
  // "kernel Type of source.cpp, for the target,": as the subject of a sentence.
  std::string describe(std::string_view target) const;
};

// As compilers take them, at the end of the command.
void appendOptions(std::vector<std::string>& command, Options const& options);
// Throws invalidUsage with the first lines of a compiler's output, first cause first.
[[noreturn]] void failToCompile(std::string const& what, std::string const& output);

// Of 128 bits, over parts that are told apart.
class Fingerprint {
 public:
  Fingerprint& add(std::string_view part);
  // What the text includes from the folders, through all levels.
  Fingerprint& addIncludes(std::string_view text, std::span<std::string const> folders);
  Key128 const& value() const { return value_; }

 private:
  Key128 value_{};
};
// Of all that decides what is compiled, but the compiler.
Fingerprint fingerprintOf(Request const& request);

}  // namespace mscclpp::jit
