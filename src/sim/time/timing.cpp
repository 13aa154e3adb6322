// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Timing models as JSON.
#include "mscclpp/sim/timing.hpp"

#include <string_view>
#include <vector>

#include "base/json_place.hpp"

namespace mscclpp::sim {
namespace {

using Json = JsonFile::Json;

constexpr double largest = 1e9;  // a second, and as many bytes in a nanosecond
constexpr double slowest = 1e-6;
constexpr int mostMultiprocessors = 1'000'000;
constexpr std::string_view writeIt = "mscclpp-bench-timing prints one";

std::string titleOf(std::string const& source) { return fmt::format("timing model {}", source); }
double leastOf(TimingFigure const& figure) { return figure.isRate ? slowest : 0; }

}  // namespace

void TimingModel::check(std::string const& source) const {
  auto const require = [&](std::string_view name, double value, double least, double most) {
    if (value >= least && value <= most) return;  // what is not finite is not
    fail(ErrorCode::invalidUsage, "{}: {} is {}; allowed is a number from {:g} to {:g}; {}", titleOf(source), name,
         value, least, most, writeIt);
  };
  for (auto const& figure : timingFigures) require(figure.name, this->*figure.member, leastOf(figure), largest);
  require("multiprocessors", multiprocessors, 1, mostMultiprocessors);
}

TimingModel TimingModel::parse(std::string_view json, std::string const& source) {
  JsonFile const file(json, titleOf(source), writeIt);
  JsonPlace const root(file);
  (void)root.at("version").whole(1, 1);
  TimingModel result;
  result.device = root.at("device").name();
  result.multiprocessors = root.at("multiprocessors").number(1, mostMultiprocessors);
  auto const figures = root.at("figures");
  std::vector<std::string_view> names;
  for (auto const& figure : timingFigures) {
    names.push_back(figure.name);
    result.*figure.member = figures.at(figure.name).real(leastOf(figure), largest);
  }
  figures.requireKnown(names, "figure");
  return result;
}

TimingModel TimingModel::load(std::string const& path) { return parse(readFile(path, titleOf(path)), path); }

std::string TimingModel::json() const {
  Json figures;
  for (auto const& figure : timingFigures) figures[std::string(figure.name)] = this->*figure.member;
  return Json{{"version", 1}, {"device", device}, {"multiprocessors", multiprocessors}, {"figures", figures}}.dump(1) +
         "\n";
}

}  // namespace mscclpp::sim
