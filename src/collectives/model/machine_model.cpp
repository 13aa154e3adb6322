// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The figures of machines: as JSON, those built in, and those that the user's files name.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json_place.hpp"
#include "mscclpp/collectives/cost_model.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

using Json = JsonFile::Json;

constexpr double largestValue = 1e9;
constexpr std::string_view writeIt = "mscclpp-bench --limits=FILE writes one";

std::string titleOf(std::string const& source) { return fmt::format("model {}", source); }

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

// Of MSCCLPP_MODEL; later ones go before earlier ones.
std::vector<MachineModel> modelsOfUser() {
  std::vector<MachineModel> result;
  std::istringstream parts(processVariable("MSCCLPP_MODEL").value_or(""));
  for (std::string part; std::getline(parts, part, ':');) {
    if (part.empty()) continue;
    if (!std::filesystem::exists(part)) {
      fail(ErrorCode::invalidUsage, "MSCCLPP_MODEL names {}, which is not there; {}", part, writeIt);
    }
    result.insert(result.begin(), MachineModel::load(part));
  }
  return result;
}

}  // namespace

MachineModel const* MachineModel::builtIn(std::string_view device) {
  static MachineModel const known = h200();
  return device == known.device ? &known : nullptr;
}

MachineModel const& MachineModel::of(std::string_view device) {
  static std::vector<MachineModel> const given = modelsOfUser();
  auto const found =
      std::find_if(given.begin(), given.end(), [&](auto const& model) { return model.device == device; });
  if (found != given.end()) return *found;
  auto const* const known = builtIn(device);
  return known != nullptr ? *known : *builtIn("NVIDIA H200");
}

MachineModel MachineModel::parse(std::string_view json, std::string const& source) {
  JsonFile const file(json, titleOf(source), writeIt);
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
        (mayBeZero(parameter) ? value.real(0, largestValue) : value.above(0, largestValue)) * parameter.unit;
  }
  values.requireKnown(names, "parameter");
  return result;
}

MachineModel MachineModel::load(std::string const& path) { return parse(readFile(path, titleOf(path)), path); }

std::string MachineModel::json() const {
  Json values;
  for (auto const& parameter : modelParameters) {
    // Four digits are more than was measured.
    values[std::string(parameter.name)] = std::stod(fmt::format("{:.4g}", this->*parameter.member / parameter.unit));
  }
  return Json{{"version", 1}, {"device", device}, {"parameters", std::move(values)}}.dump(1) + "\n";
}

void MachineModel::save(std::string const& path) const {
  std::ofstream file(path, std::ios::binary);
  file << json();
  file.close();
  if (!file) throwSystemError(fmt::format("model {}: it cannot be written", path), errno);
}

}  // namespace mscclpp
