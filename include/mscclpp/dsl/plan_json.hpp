// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs as execution plans: the JSON format of MSCCL++'s DSL and executor, written and read.
//
// What a plan says follows from its program alone. Reading gives a program that is not yet known to be right: verify()
// it. Fields that our steps have no use for are checked for their type and dropped.
#pragma once

#include <string>
#include <string_view>

#include "mscclpp/dsl/build.hpp"

namespace mscclpp::dsl {

// Throws unsupported where the format has no operation for a step, which it names.
std::string toJson(Program const& program);

// Why MSCCL++ itself would not load or run the plan, for its limits of operations, channels, semaphores and barriers;
// empty where it would. Plans are written and read here without these limits.
std::string mscclppRefusal(Program const& program);

template <ProgramType P>
std::string toJson() {
  return toJson(build<P>());
}

// Throws invalidUsage, naming `source` and the place in it, for text that is no plan.
Program programFromJson(std::string_view text, std::string const& source);

}  // namespace mscclpp::dsl
