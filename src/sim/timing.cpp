// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Timing models as JSON.
#include "mscclpp/sim/timing.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mscclpp/host/error.hpp"

namespace mscclpp::sim {
namespace {

using Json = nlohmann::ordered_json;

constexpr double largest = 1e9;  // a second, and as many bytes in a nanosecond
constexpr double slowest = 1e-6;

[[noreturn]] void refuse(std::string const& source, std::string const& why) {
  throw Error(ErrorCode::invalidUsage,
              fmt::format("timing model {}: {}; mscclpp-bench-timing prints one", source, why));
}

// What is not finite is not.
void requireWithin(std::string const& source, std::string_view name, double value, double least) {
  if (value >= least && value <= largest) return;
  refuse(source, fmt::format("{} is {}, the range is {} to {}", name, value, least, largest));
}

std::string shortly(Json const& value) {
  auto text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 60) + "..." : text;
}

}  // namespace

void TimingModel::check(std::string const& source) const {
  for (auto const& figure : timingFigures) {
    requireWithin(source, figure.name, this->*figure.member, figure.isRate ? slowest : 0);
  }
  requireWithin(source, "multiprocessors", multiprocessors, 1);
}

TimingModel TimingModel::parse(std::string_view json, std::string const& source) {
  Json document;
  try {
    document = Json::parse(json);
  } catch (Json::exception const& error) {
    refuse(source, fmt::format("it is no JSON: {}", error.what()));
  }
  auto const at = [&](Json const& object, std::string_view name) -> Json const& {
    auto const found = object.is_object() ? object.find(name) : object.end();
    if (found == object.end()) refuse(source, fmt::format("there is no \"{}\" in {}", name, shortly(object)));
    return *found;
  };
  auto const number = [&](Json const& value, std::string_view name) {
    if (!value.is_number()) refuse(source, fmt::format("{} is {}, expected is a number", name, shortly(value)));
    return value.get<double>();
  };
  if (auto const& version = at(document, "version"); version != 1) {
    refuse(source, fmt::format("version is {}, this library knows 1", shortly(version)));
  }
  TimingModel result;
  auto const& device = at(document, "device");
  if (!device.is_string()) refuse(source, fmt::format("device is {}, expected is a name", shortly(device)));
  result.device = device.get<std::string>();
  auto const multiprocessors = number(at(document, "multiprocessors"), "multiprocessors");
  requireWithin(source, "multiprocessors", multiprocessors, 1);
  result.multiprocessors = static_cast<int>(multiprocessors);
  auto const& figures = at(document, "figures");
  for (auto const& figure : timingFigures) {
    result.*figure.member = number(at(figures, figure.name), figure.name);
  }
  for (auto const& item : figures.items()) {
    bool const known =
        std::ranges::any_of(timingFigures, [&](auto const& figure) { return figure.name == item.key(); });
    if (!known) refuse(source, fmt::format("there is no figure \"{}\"", item.key()));
  }
  result.check(source);
  return result;
}

TimingModel TimingModel::load(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  std::string const text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) throwSystemError(fmt::format("timing model {}: it cannot be read", path), errno);
  return parse(text, path);
}

std::string TimingModel::json() const {
  Json figures;
  for (auto const& figure : timingFigures) figures[std::string(figure.name)] = this->*figure.member;
  return Json{{"version", 1}, {"device", device}, {"multiprocessors", multiprocessors}, {"figures", figures}}.dump(1) +
         "\n";
}

}  // namespace mscclpp::sim
