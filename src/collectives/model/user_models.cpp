// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/model/user_models.hpp"

#include <filesystem>
#include <sstream>

#include "mscclpp/host/env.hpp"

namespace mscclpp::collectives_impl {
namespace {

UserModels readAll() {
  UserModels all;
  std::istringstream parts(processVariable("MSCCLPP_MODEL").value_or(""));
  for (std::string part; std::getline(parts, part, ':');) {
    if (part.empty()) continue;
    if (!std::filesystem::exists(part)) {
      fail(ErrorCode::invalidUsage, "MSCCLPP_MODEL names {}, which is not there; {}", part, howToMeasure);
    }
    auto const text = readFile(part, modelTitle(part));
    if (JsonFile const file(text, modelTitle(part), howToMeasure); JsonPlace(file).has("network")) {
      all.networks.insert(all.networks.begin(), NetworkModel::parse(text, part));
    } else {
      all.machines.insert(all.machines.begin(), MachineModel::parse(text, part));
    }
  }
  return all;
}

}  // namespace

UserModels const& UserModels::read() {
  static UserModels const all = readAll();
  return all;
}

}  // namespace mscclpp::collectives_impl
