// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/sim/check_program.hpp"

#include <utility>

namespace mscclpp::sim {
namespace {

// Made when first asked for: programs are static objects of other files.
std::vector<CheckProgram const*>& registered() {
  static std::vector<CheckProgram const*> programs;
  return programs;
}

}  // namespace

CheckProgram::CheckProgram(std::string name, std::function<void(RankContext&)> rankMain, World world,
                           ExploreOptions options)
    : name_(std::move(name)), rankMain_(std::move(rankMain)), world_(world), options_(std::move(options)) {
  registered().push_back(this);
}

CheckProgram::~CheckProgram() { std::erase(registered(), this); }

std::vector<CheckProgram const*> const& checkPrograms() { return registered(); }

}  // namespace mscclpp::sim
