// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The figures of machines: as JSON, those built in, and those that the user's files name.
#include <algorithm>

#include "base/json_place.hpp"
#include "collectives/model/user_models.hpp"
#include "mscclpp/collectives/cost_model.hpp"

namespace mscclpp {

using namespace collectives_impl;

namespace {

using Json = JsonFile::Json;

// Rates and multiprocessors divide.
bool mayBeZero(ModelParameter const& parameter) {
  return parameter.unit == microsecond || parameter.member == &MachineModel::storeRamp;
}

MachineModel h200() {
  // Fitted to bench/results/model_h200.json, 4 GPUs, and to the limits that were measured on that machine.
  return {.device = "NVIDIA H200",
          .multiprocessors = 132,
          .kernelTime = 1.27 * microsecond,
          .launchGap = 0.55 * microsecond,
          .packetTime = 1.0 * microsecond,
          .barrierTime = 2.1 * microsecond,
          .stageTime = 0.75 * microsecond,
          .bulkTime = 2.1 * microsecond,
          .copyTime = 2.9 * microsecond,
          .copyCallTime = 15 * microsecond,
          .copyChunkTime = 6 * microsecond,
          .storeRate = 346 * gigabyte,
          .storeRamp = 1.6,
          .loadRate = 317 * gigabyte,
          .copyRate = 367 * gigabyte,
          .blockRate = 57 * gigabyte,
          .memoryRate = 4230 * gigabyte};
}

}  // namespace

MachineModel const* MachineModel::builtIn(std::string_view device) {
  static MachineModel const known = h200();
  return device == known.device ? &known : nullptr;
}

MachineModel const& MachineModel::of(std::string_view device) {
  auto const& given = UserModels::read().machines;
  auto const found =
      std::find_if(given.begin(), given.end(), [&](auto const& model) { return model.device == device; });
  if (found != given.end()) return *found;
  auto const* const known = builtIn(device);
  return known != nullptr ? *known : *builtIn("NVIDIA H200");
}

MachineModel MachineModel::parse(std::string_view json, std::string const& source) {
  JsonFile const file(json, modelTitle(source), howToMeasure);
  JsonPlace const root(file);
  (void)root.at("version").whole(1, 1);
  MachineModel result;
  result.device = root.at("device").name();
  auto const values = root.at("parameters");
  std::vector<std::string_view> names;
  for (auto const& parameter : modelParameters) {
    names.push_back(parameter.name);
    auto const value = values.at(parameter.name);
    result.*parameter.member =
        (mayBeZero(parameter) ? value.real(0, largestFigure) : value.above(0, largestFigure)) * parameter.unit;
  }
  values.requireKnown(names, "parameter");
  return result;
}

MachineModel MachineModel::load(std::string const& path) { return parse(readFile(path, modelTitle(path)), path); }

std::string MachineModel::json() const {
  Json values;
  for (auto const& parameter : modelParameters) {
    values[std::string(parameter.name)] = writtenFigure(this->*parameter.member / parameter.unit);
  }
  return Json{{"version", 1}, {"device", device}, {"parameters", std::move(values)}}.dump(1) + "\n";
}

void MachineModel::save(std::string const& path) const { saveModel(path, json()); }

}  // namespace mscclpp
