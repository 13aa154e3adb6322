// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/shared/arms_profile.hpp"

#include <unistd.h>

#include <filesystem>
#include <limits>
#include <system_error>
#include <vector>

#include "base/json_place.hpp"
#include "base/replace_file.hpp"
#include "mscclpp/base/config.hpp"

namespace mscclpp {
namespace {

using Json = JsonFile::Json;

constexpr std::string_view wholeLinesName = "whole_lines";
constexpr std::string_view tornLinesName = "torn_lines";
constexpr double longestTime = 1e12;  // microseconds: eleven days

std::string titleOf(std::string const& source) { return fmt::format("profile of arms {}", source); }

ArmKey parseKey(JsonPlace const& place) {
  constexpr std::uint64_t largest = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> numbers;
  for (auto const& number : place.items()) numbers.push_back(static_cast<std::int64_t>(number.whole(0, largest)));
  if (numbers.empty() || numbers.size() > ArmKey::mostNumbers) {
    place.refuse(fmt::format("1 to {} numbers", ArmKey::mostNumbers));
  }
  return ArmKey(numbers);
}

}  // namespace

ArmsProfile ArmsProfile::parse(std::string_view json, std::string const& source) {
  JsonFile const file(json, titleOf(source), "remove it, and Arms measure anew and write it");
  ArmsProfile result;
  JsonPlace const root(file);
  (void)root.at("version").whole(1, 1);
  for (auto const& profile : root.at("profiles").items()) {
    Subject subject;
    subject.device = profile.at("device").name();
    subject.ranks = profile.at("ranks").number(1, std::numeric_limits<int>::max());
    subject.ranksPerDevice = profile.at("ranks_per_device").number(1, subject.ranks);
    auto const links = profile.at("links");
    subject.wholeLines = links.text() == wholeLinesName;
    if (!subject.wholeLines && links.text() != tornLinesName) {
      links.refuse(fmt::format("\"{}\" or \"{}\"", wholeLinesName, tornLinesName));
    }
    for (auto const& [operation, entries] : profile.at("operations").members()) {
      for (auto const& entry : entries.items()) {
        auto& seconds = result.operations[subject][operation][parseKey(entry.at("key"))];
        seconds.clear();
        for (auto const& [arm, time] : entry.at("time_us").members()) seconds[arm] = time.real(0, longestTime) * 1e-6;
        for (auto const& arm : entry.items("refused")) seconds[arm.name()] = std::nullopt;
      }
    }
  }
  return result;
}

std::string ArmsProfile::json() const {
  auto profiles = Json::array();
  for (auto const& [subject, byOperation] : operations) {
    auto tables = Json::object();
    for (auto const& [operation, keys] : byOperation) {
      auto& entries = tables[operation] = Json::array();
      for (auto const& [key, seconds] : keys) {
        Json entry{{"key", key.numbers()}, {"time_us", Json::object()}};
        for (auto const& [arm, time] : seconds) {
          if (time) {
            entry["time_us"][arm] = *time * 1e6;
          } else {
            entry["refused"].push_back(arm);
          }
        }
        entries.push_back(std::move(entry));
      }
    }
    profiles.push_back({{"device", subject.device},
                        {"ranks", subject.ranks},
                        {"ranks_per_device", subject.ranksPerDevice},
                        {"links", subject.wholeLines ? wholeLinesName : tornLinesName},
                        {"operations", std::move(tables)}});
  }
  return Json{{"version", 1}, {"profiles", std::move(profiles)}}.dump(1) + "\n";
}

void ArmsProfile::save(std::string const& path) const {
  namespace fs = std::filesystem;
  std::error_code error;
  if (auto const folder = fs::path(path).parent_path(); !folder.empty()) fs::create_directories(folder, error);
  replaceFile(path, fmt::format("{}.{}", path, ::getpid()), json(), "profile of arms");
}

}  // namespace mscclpp
