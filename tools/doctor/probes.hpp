// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The questions of mscclpp-doctor. Each adds a section, and what it finds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "doctor/gpus.hpp"
#include "doctor/report.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp::doctor {

// Where the answers come from, so that a test can have other ones.
struct Sources {
  VariableLookup variable = processVariable;
  std::vector<std::string> names{};  // of all variables
  std::string root{};                // before paths of /proc, /sys, /dev and /tmp
  // What a command prints, its first line; empty where it is not there or fails.
  std::function<std::string(std::string const&)> ask{};
};
Sources thisMachine();

void addSoftware(Report& report, Sources const& sources, Gpus const& gpus);
void addGpus(Report& report, Sources const& sources, Gpus const& gpus);
void addNetwork(Report& report, Sources const& sources, Gpus const& gpus);
void addLauncher(Report& report, Sources const& sources, Gpus const& gpus);
void addSettings(Report& report, Sources const& sources);
// What the library would choose on so many ranks of these GPUs; of simulated ones where there are none.
void addChoices(Report& report, Gpus const& gpus, int ranks);

}  // namespace mscclpp::doctor
