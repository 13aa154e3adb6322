// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs as text, for the messages of failed tests: one thread a line, in the words of litmus.hpp.
#pragma once

#include <string>

#include <fmt/format.h>

#include "litmus.hpp"

namespace litmus {

inline std::string toText(Value const& value) {
  if (value.base.none()) return fmt::format("{}", value.plus);
  return fmt::format("r{} + {}", value.base.number, value.plus);
}

inline std::string toText(Instruction const& instruction) {
  constexpr char const* operations[] = {"ld", "st", "add", "exch", "cas", "fence", "bar"};
  constexpr char const* strengths[] = {"weak", "rlx", "acq", "rel", "acqRel", "sc"};
  constexpr char const* scopes[] = {"thread", "cta", "gpu", "sys"};
  auto const operation = instruction.operation;
  auto text = fmt::format("{}(", operations[static_cast<int>(operation)]);
  if (operation == Operation::barrier) {
    text += fmt::format("{}", instruction.barrier);
  } else {
    text += strengths[static_cast<int>(instruction.strength)];
    if (instruction.strength != Strength::weak)
      text += fmt::format(", {}", scopes[static_cast<int>(instruction.scope)]);
    if (!instruction.result.none()) text += fmt::format(", r{}", instruction.result.number);
    if (operation != Operation::fence) text += fmt::format(", {}", "xyzw"[static_cast<int>(instruction.location)]);
    if (operation == Operation::compareExchange) text += fmt::format(", {}", instruction.expected);
    if (operation == Operation::store || instruction.updates()) text += ", " + toText(instruction.value);
  }
  text += ")";
  if (auto const& guard = instruction.guard; guard.kind != Guard::Kind::always) {
    text += fmt::format(".{}(r{}, {})", guard.kind == Guard::Kind::equal ? "when" : "unless", guard.left.number,
                        toText(guard.right));
  }
  return text;
}

inline std::string toText(Program const& program) {
  std::string text;
  for (auto const& thread : program.threads) {
    text += fmt::format("on(d{}b{}", thread.place.device, thread.place.block);
    for (auto const& instruction : thread.code) text += ", " + toText(instruction);
    text += ")\n";
  }
  return text;
}

}  // namespace litmus
