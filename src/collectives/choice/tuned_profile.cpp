// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/collectives/tuned_profile.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <sstream>
#include <vector>

#include "base/json_place.hpp"
#include "base/replace_file.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

using Json = JsonFile::Json;
namespace fs = std::filesystem;

constexpr std::string_view wholeLinesName = "whole_lines";
constexpr std::string_view tornLinesName = "torn_lines";
constexpr double longestTime = 1e12;  // eleven days

std::string titleOf(std::string const& source) { return fmt::format("profile {}", source); }

// The folder that the program or library holding this code was installed with.
fs::path installedFolder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void const*>(&installedFolder), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  auto const file = fs::canonical(info.dli_fname, ignored);
  for (auto folder = file.parent_path(); folder.has_relative_path(); folder = folder.parent_path()) {
    auto candidate = folder / "share" / "mscclpp" / "profiles";
    if (fs::is_directory(candidate, ignored)) return candidate;
  }
  return {};
}

std::vector<fs::path> filesOf(fs::path const& path) {
  std::vector<fs::path> result;
  if (!fs::is_directory(path)) return {path};
  for (auto const& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() == ".json") result.push_back(entry.path());
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace

TunedProfile TunedProfile::parse(std::string_view json, std::string const& source) {
  JsonFile const file(json, titleOf(source), "write it with mscclpp-tune");
  TunedProfile result;
  JsonPlace const root(file);
  (void)root.at("version").whole(1, 1);
  constexpr std::uint64_t anyBytes = std::numeric_limits<std::int64_t>::max();
  for (auto const& profile : root.at("profiles").items()) {
    Subject subject;
    subject.device = profile.at("device").name();
    subject.ranks = profile.at("ranks").number(1, maxTeamSize);
    auto const links = profile.at("links");
    subject.wholeLines = links.text() == wholeLinesName;
    if (!subject.wholeLines && links.text() != tornLinesName) {
      links.refuse(fmt::format("\"{}\" or \"{}\"", wholeLinesName, tornLinesName));
    }
    for (auto const& [name, table] : profile.at("collectives").members()) {
      auto const collective = collectiveByName(name);
      if (!collective) file.refuse(fmt::format("there is no collective \"{}\"", name));
      for (auto const& entry : table.items()) {
        auto const bytes = entry.at("bytes").whole(1, anyBytes);
        TunedEntry tuned;
        tuned.algorithm = entry.at("algorithm").name();
        tuned.blocks = entry.at("blocks").number(0, 65535);
        tuned.threads = entry.at("threads").number(0, 1024);
        tuned.microseconds = entry.at("time_us").above(0, longestTime);
        result.set(subject, *collective, bytes, std::move(tuned), entry.flag("symmetric"));
      }
    }
  }
  return result;
}

TunedProfile TunedProfile::load(std::string const& path) { return parse(readFile(path, titleOf(path)), path); }

std::shared_ptr<TunedProfile const> TunedProfile::installed() {
  std::vector<fs::path> files;
  if (auto const given = processVariable("MSCCLPP_PROFILE"); given) {
    std::istringstream parts(*given);
    for (std::string part; std::getline(parts, part, ':');) {
      if (part.empty()) continue;
      if (!fs::exists(part)) fail(ErrorCode::invalidUsage, "MSCCLPP_PROFILE names {}, which is not there", part);
      for (auto& file : filesOf(part)) files.push_back(std::move(file));
    }
  } else if (auto const folder = installedFolder(); !folder.empty()) {
    files = filesOf(folder);
  }
  auto result = std::make_shared<TunedProfile>();
  for (auto const& file : files) result->merge(load(file.string()));
  return result->empty() ? nullptr : result;
}

std::string TunedProfile::json() const {
  auto profiles = Json::array();
  for (auto const& [subject, byCalls] : tables_) {
    auto tables = Json::object();
    for (auto const& [calls, table] : byCalls) {
      auto& entries = tables[std::string(nameOf(calls.first))];
      for (auto const& [bytes, tuned] : table) {
        Json entry{{"bytes", bytes},
                   {"algorithm", tuned.algorithm},
                   {"blocks", tuned.blocks},
                   {"threads", tuned.threads},
                   {"time_us", tuned.microseconds}};
        if (calls.second) entry["symmetric"] = true;
        entries.push_back(std::move(entry));
      }
    }
    profiles.push_back({{"device", subject.device},
                        {"ranks", subject.ranks},
                        {"links", subject.wholeLines ? wholeLinesName : tornLinesName},
                        {"collectives", std::move(tables)}});
  }
  return Json{{"version", 1}, {"profiles", std::move(profiles)}}.dump(1) + "\n";
}

void TunedProfile::save(std::string const& path) const { replaceFile(path, path + ".new", json(), "profile"); }

TunedProfile::Table const* TunedProfile::find(Subject const& subject, Collective collective, bool symmetric) const {
  auto const found = tables_.find(subject);
  if (found == tables_.end()) return nullptr;
  auto const table = found->second.find({collective, symmetric});
  return table == found->second.end() ? nullptr : &table->second;
}

TunedEntry const* TunedProfile::nearest(SelectionRequest const& request) const {
  Subject const subject{request.device, request.ranks, request.wholeLines};
  auto const* table = request.symmetric ? find(subject, request.collective, true) : nullptr;
  if (table == nullptr) table = find(subject, request.collective);
  if (table == nullptr || table->empty()) return nullptr;
  auto const above = table->lower_bound(request.bytes);
  if (above == table->end()) {
    // What was best for the largest measured size says little about much larger ones.
    auto const& [largest, entry] = *std::prev(above);
    return request.bytes / 2 <= largest ? &entry : nullptr;
  }
  if (above == table->begin()) return &above->second;
  auto const below = std::prev(above);
  // Nearest by ratio: bytes / below against above / bytes.
  auto const bytes = static_cast<double>(request.bytes);
  return bytes * bytes < static_cast<double>(below->first) * static_cast<double>(above->first) ? &below->second
                                                                                               : &above->second;
}

void TunedProfile::set(Subject const& subject, Collective collective, std::uint64_t bytes, TunedEntry entry,
                       bool symmetric) {
  tables_[subject][{collective, symmetric}][bytes] = std::move(entry);
}

void TunedProfile::merge(TunedProfile const& other) {
  for (auto const& [subject, byCalls] : other.tables_) {
    for (auto const& [calls, table] : byCalls) {
      for (auto const& [bytes, entry] : table) set(subject, calls.first, bytes, entry, calls.second);
    }
  }
}

}  // namespace mscclpp
