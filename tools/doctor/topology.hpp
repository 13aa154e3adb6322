// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The devices and what joins them as a graph in the language of Graphviz, whose `dot` makes pictures of it.
#pragma once

#include <optional>
#include <string>

#include "doctor/gpus.hpp"
#include "doctor/links.hpp"
#include "doctor/report.hpp"

namespace mscclpp::doctor {

// Network cards are those of the report's section "network". With `links`: how fast each pair copies, and of devices
// that the driver does not know, which are simulated then.
std::string topologyOf(Report const& report, Gpus const& gpus, std::optional<Links> const& links);

}  // namespace mscclpp::doctor
