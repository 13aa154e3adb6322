// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The figures of machines: as JSON, those built in, and those that the user's files name.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "host/format.hpp"
#include "mscclpp/collectives/cost_model.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

using Json = nlohmann::ordered_json;

constexpr double largestValue = 1e9;
constexpr std::string_view writeIt = "mscclpp-bench --limits=FILE writes one";

std::string shortly(Json const& value) {
  auto text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 60) + "..." : text;
}

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
          .meetingTime = 2.1 * microsecond,
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
  Json document;
  try {
    document = Json::parse(json);
  } catch (Json::exception const& error) {  // not only parse_error: a number may be too large
    fail(ErrorCode::invalidUsage, "model {}: it is no JSON: {}", source, error.what());
  }
  auto const at = [&](Json const& object, std::string_view name) -> Json const& {
    if (!object.is_object()) {
      fail(ErrorCode::invalidUsage, "model {}: {} where an object with \"{}\" is expected", source, shortly(object),
           name);
    }
    auto const found = object.find(name);
    if (found == object.end()) fail(ErrorCode::invalidUsage, "model {}: there is no \"{}\"; {}", source, name, writeIt);
    return *found;
  };
  auto const refuse = [&](std::string_view name, Json const& value, std::string_view allowed) {
    fail(ErrorCode::invalidUsage, "model {}: {} is {}; allowed is {}", source, name, shortly(value), allowed);
  };
  if (auto const& version = at(document, "version"); version != 1) refuse("version", version, "1");
  MachineModel result;
  auto const& device = at(document, "device");
  if (!device.is_string() || device.get_ref<std::string const&>().empty()) {
    refuse("device", device, "the product name of a GPU");
  }
  result.device = device.get<std::string>();
  auto const& values = at(document, "parameters");
  for (auto const& parameter : modelParameters) {
    auto const& value = at(values, parameter.name);
    bool const zero = mayBeZero(parameter);
    // The bound is a number's too: what is not finite fails it.
    bool const fits = value.is_number() && value.get<double>() <= largestValue &&
                      (zero ? value.get<double>() >= 0 : value.get<double>() > 0);
    if (!fits) {
      refuse(parameter.name, value,
             fmt::format("a number {}0 and at most {:.0e}", zero ? "from " : "above ", largestValue));
    }
    result.*parameter.member = value.get<double>() * parameter.unit;
  }
  for (auto const& item : values.items()) {
    bool const known = std::any_of(modelParameters.begin(), modelParameters.end(),
                                   [&](auto const& parameter) { return parameter.name == item.key(); });
    if (known) continue;
    std::vector<std::string_view> names;
    for (auto const& parameter : modelParameters) names.push_back(parameter.name);
    fail(ErrorCode::invalidUsage, "model {}: there is no parameter \"{}\"; there are {}", source, item.key(),
         fmt::join(names, ", "));
  }
  return result;
}

MachineModel MachineModel::load(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  std::string const text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) throwSystemError(fmt::format("model {}: it cannot be read", path), errno);
  return parse(text, path);
}

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
