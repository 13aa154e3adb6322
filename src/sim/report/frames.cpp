// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/report/frames.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

namespace mscclpp::sim {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool isStandardLibrary(SourceFrame const& frame) {
  return has(frame.file, "/include/c++/") || has(frame.file, "/c++/v1/") ||
         (frame.file.empty() && frame.function.starts_with("std::"));
}

// src/sim, as the compiler names it in debug information too; any project may have a folder that ends so.
std::string const& machineFolder() {
  static std::string const folder =
      std::filesystem::path(plainPath(__FILE__)).parent_path().parent_path().string() + "/";
  return folder;
}

bool isMachine(SourceFrame const& frame) {
  constexpr std::array<std::string_view, 4> places{"/include/mscclpp/sim/", "/mscclpp/device/arch/sim/",
                                                   "/mscclpp/launch/sim.hpp", "/boost/context/"};
  if (frame.file.starts_with(machineFolder())) return true;
  if (std::any_of(places.begin(), places.end(), [&](auto place) { return has(frame.file, place); })) return true;
  constexpr std::array<std::string_view, 4> names{"__tsan_", "__wrap_", "boost::context::", "make_fcontext"};
  auto const name = shortName(frame.function);
  return std::any_of(names.begin(), names.end(), [&](auto start) { return name.starts_with(start); }) ||
         (frame.file.empty() && name.starts_with("mscclpp::sim::"));
}

bool isPlumbing(SourceFrame const& frame) { return isMachine(frame) || isStandardLibrary(frame); }

// The characters of `text` outside of template arguments and parameter lists.
std::string withoutArguments(std::string_view text) {
  constexpr std::string_view unnamed = "(anonymous namespace)";
  std::string result;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto const rest = text.substr(i);
    if (depth == 0 && rest.starts_with("operator")) {
      // The operator's own signs are no brackets; the longest come first, and "operator<<int>" is a template.
      constexpr std::array<std::string_view, 11> signs{"<=>", "<<=", ">>=", "->*", "()", "->",
                                                       "<=",  ">=",  ">>",  "<",   ">"};
      auto const sign = std::find_if(signs.begin(), signs.end(), [&](auto s) { return rest.substr(8).starts_with(s); });
      bool const shift = rest.starts_with("operator<<(") || rest.starts_with("operator<< <");
      auto const length = 8 + (shift ? 2 : sign == signs.end() ? 0 : sign->size());
      result += rest.substr(0, length);
      i += length - 1;
    } else if (depth == 0 && rest.starts_with(unnamed)) {
      result += unnamed;
      i += unnamed.size() - 1;
    } else if (text[i] == '<' || text[i] == '(') {
      ++depth;
    } else if (text[i] == '>' || text[i] == ')') {
      depth -= depth > 0;
    } else if (depth == 0) {
      result += text[i];
    }
  }
  return result;
}

}  // namespace

std::string plainPath(std::string_view path) { return std::filesystem::path(path).lexically_normal().string(); }

std::vector<SourceFrame> withoutMachine(std::vector<SourceFrame> frames) {
  auto const first = std::find_if_not(frames.begin(), frames.end(), isPlumbing);
  auto const last = std::find_if_not(frames.rbegin(), frames.rend(), isPlumbing).base();
  if (first >= last) return frames;  // nothing else is there: better than nothing
  return {first, last};
}

bool isLibraryFrame(SourceFrame const& frame) { return has(frame.file, "/include/mscclpp/"); }

SourceFrame const* placeOf(AccessRecord const& access) {
  return access.stack.empty() ? nullptr : &access.stack.front();
}

SourceFrame const* callerOf(AccessRecord const& access) {
  auto const found = std::find_if_not(access.stack.begin(), access.stack.end(), isLibraryFrame);
  return found == access.stack.end() ? nullptr : &*found;
}

std::string shortName(std::string_view function) {
  if (auto const clone = function.find(" [clone"); clone != std::string_view::npos)
    function = function.substr(0, clone);
  auto name = withoutArguments(function);
  while (name.ends_with(" const") || name.ends_with(" &") || name.ends_with(' ')) name.resize(name.rfind(' '));
  // A template's name begins with its return type.
  std::size_t begin = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    std::string_view const before(name.data(), i);
    if (name[i] == ' ' && !before.ends_with("operator") && !before.ends_with("(anonymous")) begin = i + 1;
  }
  return name.substr(begin);
}

std::string whoIs(AccessRecord const& access) {
  if (access.host) return fmt::format("rank {}, host code", access.rank);
  auto const kernel = access.kernel.empty() ? std::string() : fmt::format("kernel \"{}\", ", access.kernel);
  return fmt::format("rank {}, {}block {}, thread {}", access.rank, kernel, access.block, access.thread);
}

}  // namespace mscclpp::sim
