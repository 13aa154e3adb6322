// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program's steps as a picture: a column for each block of each rank, a box for each step, time downwards, arrows
// from what ends a wait to the wait.
#pragma once

#include <string>

#include "mscclpp/dsl/core/program.hpp"

namespace mscclpp::tools {

// One SVG document that needs nothing else.
std::string diagramOf(dsl::Program const& program);

}  // namespace mscclpp::tools
