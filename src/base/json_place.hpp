// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the JSON files that users give: execution plans, tuned profiles, the figures of machines. What is refused is
// named: the file, the way to the value, what is there and what is allowed. For the library's own sources.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "base/read_file.hpp"

namespace mscclpp {

// A file's content, and what errors call it. Outlives the places in it.
struct JsonFile {
  using Json = nlohmann::ordered_json;

  // Brackets within each other. What goes through values calls itself for each, and the stack is short; no format of
  // ours has more than 12.
  static constexpr int mostDepth = 64;

  // `itsName`: as "plan my.json"; `help`: how to get a right one, or empty.
  JsonFile(std::string_view text, std::string itsName, std::string_view help = {})
      : what(std::move(itsName)), remedy(help) {
    if (auto const depth = depthOf(text); depth > mostDepth) {
      refuse(fmt::format("its brackets are {} deep within each other; allowed are {}", depth, mostDepth));
    }
    try {
      content = Json::parse(text);
    } catch (Json::exception const& error) {  // not only parse_error: a number may be too large
      refuse(fmt::format("it is no JSON: {}", error.what()));
    }
  }

  [[noreturn]] void refuse(std::string_view why) const {
    fail(ErrorCode::invalidUsage, "{}: {}{}{}", what, why, remedy.empty() ? "" : "; ", remedy);
  }

  std::string what;
  std::string_view remedy;
  Json content;

 private:
  // Also of what is no JSON.
  static int depthOf(std::string_view text) {
    int depth = 0, most = 0;
    bool quoted = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
      char const c = text[i];
      if (c == '"') {
        quoted = !quoted;
      } else if (quoted) {
        if (c == '\\') ++i;
      } else if (c == '[' || c == '{') {
        most = std::max(most, ++depth);
      } else if (c == ']' || c == '}') {
        --depth;
      }
    }
    return most;
  }
};

// A value and the way to it.
class JsonPlace {
 public:
  explicit JsonPlace(JsonFile const& file) : JsonPlace(file.content, "", file) {}

  [[noreturn]] void refuse(std::string_view allowed) const {
    auto text = value_->dump(-1, ' ', false, JsonFile::Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 60) + "...";
    fail(ErrorCode::invalidUsage, "{}: {} is {}; allowed is {}", file_->what, path_.empty() ? "the whole" : path_, text,
         allowed);
  }

  bool has(std::string_view name) const { return value_->is_object() && value_->contains(name); }
  JsonPlace at(std::string_view name) const {
    if (!value_->is_object()) refuse("an object");
    auto const found = value_->find(name);
    if (found == value_->end()) {
      file_->refuse(fmt::format("{} has no \"{}\"", path_.empty() ? "the file" : path_, name));
    }
    return below(*found, name);
  }
  std::vector<JsonPlace> items() const {
    if (!value_->is_array()) refuse("a list");
    std::vector<JsonPlace> all;
    for (std::size_t i = 0; i < value_->size(); ++i) {
      all.push_back({(*value_)[i], fmt::format("{}[{}]", path_, i), *file_});
    }
    return all;
  }
  // None where there is no such list.
  std::vector<JsonPlace> items(std::string_view name) const {
    return has(name) ? at(name).items() : std::vector<JsonPlace>();
  }
  std::vector<std::pair<std::string, JsonPlace>> members() const {
    if (!value_->is_object()) refuse("an object");
    std::vector<std::pair<std::string, JsonPlace>> all;
    for (auto const& [name, value] : value_->items()) all.emplace_back(name, below(value, name));
    return all;
  }

  // Refuses an object with other members than those that `names` has; `kind`: what they are.
  template <class Names>
  void requireKnown(Names const& names, std::string_view kind) const {
    for (auto const& [name, value] : members()) {
      if (std::find(std::begin(names), std::end(names), name) != std::end(names)) continue;
      file_->refuse(fmt::format("there is no {} \"{}\", but {}", kind, name, fmt::join(names, ", ")));
    }
  }

  std::string text() const {
    if (!value_->is_string()) refuse("a text");
    return value_->get<std::string>();
  }
  std::string name() const {
    if (!value_->is_string() || value_->get_ref<std::string const&>().empty()) refuse("a text that is not empty");
    return text();
  }
  std::uint64_t whole(std::uint64_t least, std::uint64_t most) const {
    if (!value_->is_number_unsigned() || value_->get<std::uint64_t>() < least || value_->get<std::uint64_t>() > most) {
      refuse(fmt::format("a whole number from {} to {}", least, most));
    }
    return value_->get<std::uint64_t>();
  }
  int number(int least, int most) const {
    return static_cast<int>(whole(static_cast<std::uint64_t>(least), static_cast<std::uint64_t>(most)));
  }
  // What is not finite is in no range.
  double real(double least, double most) const {
    if (!isWithin(least, most)) refuse(fmt::format("a number from {:g} to {:g}", least, most));
    return value_->get<double>();
  }
  double above(double bound, double most) const {
    if (!isWithin(bound, most) || value_->get<double>() == bound) {
      refuse(fmt::format("a number above {:g} and at most {:g}", bound, most));
    }
    return value_->get<double>();
  }
  bool flag() const {
    if (!value_->is_boolean()) refuse("true or false");
    return value_->get<bool>();
  }
  // False where it is not there.
  bool flag(std::string_view name) const { return has(name) && at(name).flag(); }

 private:
  JsonPlace(JsonFile::Json const& value, std::string path, JsonFile const& file)
      : value_(&value), path_(std::move(path)), file_(&file) {}
  JsonPlace below(JsonFile::Json const& value, std::string_view name) const {
    return {value, path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name), *file_};
  }
  bool isWithin(double least, double most) const {
    return value_->is_number() && value_->get<double>() >= least && value_->get<double>() <= most;
  }

  JsonFile::Json const* value_;
  std::string path_;
  JsonFile const* file_;
};

}  // namespace mscclpp
