// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jit/request.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

#include "base/format.hpp"
#include "base/keyed_hash.hpp"
#include "base/read_file.hpp"
#include "jit/embedded.hpp"

namespace mscclpp::jit {
namespace {

constexpr std::size_t mostLines = 20;

Key128 libraryFingerprint() {
  static Key128 const value = [] {
    Fingerprint all;
    for (auto const& header : embeddedHeaders()) all.add(header.name).add(header.text);
    return all.value();
  }();
  return value;
}

// What a line includes, or nothing.
std::string_view includedBy(std::string_view line) {
  auto const skipSpaces = [&] { line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size())); };
  skipSpaces();
  if (!line.starts_with('#')) return {};
  line.remove_prefix(1);
  skipSpaces();
  if (!line.starts_with("include")) return {};
  line.remove_prefix(7);
  skipSpaces();
  if (line.empty() || (line.front() != '"' && line.front() != '<')) return {};
  auto const end = line.find(line.front() == '"' ? '"' : '>', 1);
  return end == std::string_view::npos ? std::string_view{} : line.substr(1, end - 1);
}

void addFiles(Fingerprint& to, std::string_view text, std::span<std::string const> folders,
              std::set<std::string>& seen) {
  while (!text.empty()) {
    auto const end = std::min(text.find('\n'), text.size());
    auto const name = includedBy(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (name.empty()) continue;
    for (auto const& folder : folders) {
      auto const path = std::filesystem::path(folder) / name;
      std::error_code absent;
      if (!std::filesystem::is_regular_file(path, absent)) continue;
      if (!seen.insert(path.string()).second) break;
      auto const content = readFile(path.string(), fmt::format("header {}", path.string()));
      to.add(path.string()).add(content);
      addFiles(to, content, folders, seen);
      break;
    }
  }
}

std::string firstErrors(std::string const& output) {
  std::istringstream lines(output);
  std::string found;
  std::size_t count = 0;
  bool begun = false;
  for (std::string line; std::getline(lines, line) && count < mostLines;) {
    begun = begun || line.find("error") != std::string::npos;
    if (!begun || line.empty()) continue;
    found += '\n' + line;
    ++count;
  }
  return found.empty() ? '\n' + output.substr(0, 2000) : found;
}

}  // namespace

Source Source::fromFile(std::string const& path) { return {readFile(path, fmt::format("source {}", path)), path}; }

std::string Request::text() const {
  std::string extents;
  for (auto const& one : parameters) extents += fmt::format("{{{}u, {}u}}, ", one.bytes, one.alignment);
  return fmt::format(
      "{}\n#include \"mscclpp/launch/late.hpp\"\n"
      "static_assert(mscclpp::arch::takes<{}>({{{}{{0u, 0u}}}}), "
      "\"the kernel's parameters are not as many, or not as long, as those that jit::Kernel names\");\n",
      source.text, type, extents);
}

std::string Request::entry() const {
  return fmt::format("mscclpp::arch::lateEntry<{0}, mscclpp::arch::LateArguments<{0}>>", type);
}

std::string Request::instance() const {
  return fmt::format("template __global__ void {}(const __grid_constant__ mscclpp::arch::LateArguments<{}>);\n",
                     entry(), type);
}

std::string Request::describe(std::string_view target) const {
  return fmt::format("kernel {} of {}, for {},", type, source.name, target);
}

Fingerprint& Fingerprint::add(std::string_view part) {
  auto const bytes = std::as_bytes(std::span(part));
  Key128 other = value_;
  other[0] ^= 1;
  std::array const halves{keyedHash(value_, bytes), keyedHash(other, bytes)};
  std::memcpy(value_.data(), halves.data(), sizeof halves);
  return *this;
}

Fingerprint& Fingerprint::addIncludes(std::string_view text, std::span<std::string const> folders) {
  std::set<std::string> seen;
  addFiles(*this, text, folders, seen);
  return *this;
}

Fingerprint fingerprintOf(Request const& request) {
  auto const library = libraryFingerprint();
  Fingerprint all;
  all.add(std::string_view(reinterpret_cast<char const*>(library.data()), library.size()));
  all.add(request.source.name).add(request.text()).add(request.type);
  for (auto const& definition : request.options.definitions) all.add("-D").add(definition);
  for (auto const& folder : request.options.folders) all.add("-I").add(folder);
  return all.addIncludes(request.source.text, request.options.folders);
}

void appendOptions(std::vector<std::string>& command, Options const& options) {
  for (auto const& definition : options.definitions) command.push_back("-D" + definition);
  for (auto const& folder : options.folders) command.push_back("-I" + folder);
}

void failToCompile(std::string const& what, std::string const& output) {
  fail(ErrorCode::invalidUsage, "{} does not compile:{}", what, firstErrors(output));
}

}  // namespace mscclpp::jit
