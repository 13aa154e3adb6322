// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs as execution plans: the JSON format of MSCCL++'s DSL and executor, written and read.
//
// What a plan says follows from its program alone. Reading gives a program that is not yet known to be right: verify()
// it. Fields that our steps have no use for are checked for their type and dropped.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "mscclpp/dsl/build.hpp"

namespace mscclpp::dsl {

// Throws unsupported where the format has no operation for a step, which it names.
std::string toJson(Program const& program);

// What MSCCL++'s own DSL prints for the steps of a builder that is not finished: fused, synced and made into instances
// by its rules instead of ours, which do not make every right program a right plan; verify() what is read again. Throws
// unsupported as above, and for grouped instances, which are not made there.
std::string toMscclppJson(Program const& written, Spec const& spec);

// Why MSCCL++ itself would not load or run the plan, for its limits of operations, channels, semaphores and barriers;
// empty where it would. Plans are written and read here without these limits.
std::string mscclppRefusal(Program const& program);

// Of the program that P defines.
template <ProgramType P>
std::string toJson() {
  return toJson(build<P>());
}

// As plans name it: "allreduce", and "test" for a custom one.
std::string collectiveName(Program const& program);
// The reverse: nothing where plans have no such name.
std::optional<CollectiveKind> collectiveKindOf(std::string_view name);

// Throws invalidUsage, naming `source` and the place in it, for text that is no plan.
Program programFromJson(std::string_view text, std::string const& source);

}  // namespace mscclpp::dsl
