// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A program that mscclpp-check finds by its name in a shared object: an object with static storage, or several.
//
//   mscclpp::sim::CheckProgram const exchange{"exchange", [](mscclpp::sim::RankContext& rank) { ... }, {.ranks = 4}};
//
// `world` and `options` are what the command's own options start from. A shared object with one program may export
// `extern "C" void mscclppCheck(mscclpp::sim::RankContext&)` instead.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mscclpp/sim/explore.hpp"

namespace mscclpp::sim {

class CheckProgram {
 public:
  // Registers it, for as long as it lives. Not for threads that run at once.
  CheckProgram(std::string name, std::function<void(RankContext&)> rankMain, World world = {},
               ExploreOptions options = {});
  ~CheckProgram();
  CheckProgram(CheckProgram const&) = delete;
  CheckProgram& operator=(CheckProgram const&) = delete;

  // What it was made with: rankMain() runs once for each rank and schedule.
  std::string const& name() const { return name_; }
  std::function<void(RankContext&)> const& rankMain() const { return rankMain_; }
  World const& world() const { return world_; }
  ExploreOptions const& options() const { return options_; }

 private:
  std::string name_;
  std::function<void(RankContext&)> rankMain_;
  World world_;
  ExploreOptions options_;
};

// All of this process, in the order of their construction.
std::vector<CheckProgram const*> const& checkPrograms();

}  // namespace mscclpp::sim
