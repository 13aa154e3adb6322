// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/collectives/tuned_profile.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "host/format.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr std::string_view wholeLinesName = "whole_lines";
constexpr std::string_view tornLinesName = "torn_lines";

// A value and the way to it, for errors.
class Place {
 public:
  Place(Json const& value, std::string path, std::string const& source)
      : value_(value), path_(std::move(path)), source_(source) {}

  [[noreturn]] void refuse(std::string_view allowed) const {
    auto text = value_.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 60) + "...";
    fail(ErrorCode::invalidUsage, "profile {}: {} is {}; allowed is {}", source_, path_.empty() ? "the whole" : path_,
         text, allowed);
  }

  Place at(char const* name) const {
    if (!value_.is_object()) refuse("an object");
    auto const found = value_.find(name);
    if (found == value_.end()) {
      fail(ErrorCode::invalidUsage, "profile {}: {} has no \"{}\"; write it with mscclpp-tune", source_,
           path_.empty() ? "the file" : path_, name);
    }
    return Place(*found, path_.empty() ? name : path_ + "." + name, source_);
  }

  template <class F>
  void forEachItem(F&& f) const {
    if (!value_.is_array()) refuse("a list");
    for (std::size_t i = 0; i < value_.size(); ++i) f(Place(value_[i], fmt::format("{}[{}]", path_, i), source_));
  }
  template <class F>
  void forEachMember(F&& f) const {
    if (!value_.is_object()) refuse("an object");
    for (auto const& [name, value] : value_.items()) f(name, Place(value, path_ + "." + name, source_));
  }

  std::string text() const {
    if (!value_.is_string() || value_.get_ref<std::string const&>().empty()) refuse("a text that is not empty");
    return value_.get<std::string>();
  }
  std::uint64_t number(std::uint64_t least, std::uint64_t most) const {
    auto const allowed = fmt::format("a whole number from {} to {}", least, most);
    if (!value_.is_number_unsigned()) refuse(allowed);
    auto const result = value_.get<std::uint64_t>();
    if (result < least || result > most) refuse(allowed);
    return result;
  }
  // False where it is not there.
  bool flag(char const* name) const {
    if (!value_.contains(name)) return false;
    auto const place = at(name);
    if (!place.value_.is_boolean()) place.refuse("true or false");
    return place.value_.get<bool>();
  }
  double time() const {
    if (!value_.is_number() || !(value_.get<double>() > 0) || !std::isfinite(value_.get<double>())) {
      refuse("a number above 0");
    }
    return value_.get<double>();
  }

 private:
  Json const& value_;
  std::string path_;
  std::string const& source_;
};

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
  Json document;
  try {
    document = Json::parse(json);
  } catch (Json::exception const& error) {  // not only parse_error: a number may be too large
    fail(ErrorCode::invalidUsage, "profile {}: it is no JSON: {}", source, error.what());
  }
  TunedProfile result;
  Place const root(document, "", source);
  (void)root.at("version").number(1, 1);
  constexpr std::uint64_t anyBytes = std::numeric_limits<std::int64_t>::max();
  root.at("profiles").forEachItem([&](Place const& profile) {
    Subject subject;
    subject.device = profile.at("device").text();
    subject.ranks = static_cast<int>(profile.at("ranks").number(1, maxTeamSize));
    auto const links = profile.at("links");
    subject.wholeLines = links.text() == wholeLinesName;
    if (!subject.wholeLines && links.text() != tornLinesName) {
      links.refuse(fmt::format("\"{}\" or \"{}\"", wholeLinesName, tornLinesName));
    }
    profile.at("collectives").forEachMember([&](std::string const& name, Place const& table) {
      auto const collective = collectiveByName(name);
      if (!collective) {
        fail(ErrorCode::invalidUsage, "profile {}: there is no collective \"{}\"", source, name);
      }
      table.forEachItem([&](Place const& entry) {
        auto const bytes = entry.at("bytes").number(1, anyBytes);
        TunedEntry tuned;
        tuned.algorithm = entry.at("algorithm").text();
        tuned.blocks = static_cast<int>(entry.at("blocks").number(0, 65535));
        tuned.threads = static_cast<int>(entry.at("threads").number(0, 1024));
        tuned.microseconds = entry.at("time_us").time();
        result.set(subject, *collective, bytes, std::move(tuned), entry.flag("symmetric"));
      });
    });
  });
  return result;
}

TunedProfile TunedProfile::load(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  std::string const text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) throwSystemError(fmt::format("profile {}: it cannot be read", path), errno);
  return parse(text, path);
}

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

void TunedProfile::save(std::string const& path) const {
  // Nobody reads a file that is half written, and an interrupted run leaves the old one.
  auto const unfinished = path + ".new";
  {
    std::ofstream file(unfinished, std::ios::binary);
    file << json();
    file.close();
    if (!file) throwSystemError(fmt::format("profile {}: it cannot be written", unfinished), errno);
  }
  std::error_code error;
  fs::rename(unfinished, path, error);
  if (error) throwSystemError(fmt::format("profile {}: it cannot be renamed to {}", unfinished, path), error.value());
}

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
