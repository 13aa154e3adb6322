// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/report/describe.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include "base/run_command.hpp"
#include "sim/report/frames.hpp"

namespace mscclpp::sim {
namespace {

// Ways to start a symbolizer, the first that works to be used. LLVM's knows the names of more inlined functions.
std::vector<std::vector<std::string>> symbolizers() {
  if (char const* named = std::getenv("MSCCLPP_SYMBOLIZER"); named != nullptr) {
    if (*named == '\0') return {};
    return {{named}};
  }
  return {{"llvm-symbolizer", "--output-style=GNU"}, {"llvm-addr2line"}, {"addr2line"}};
}

// ---- addresses ------------------------------------------------------------------------------------------------------

struct Location {
  std::string module;  // empty: in none
  std::uintptr_t offset = 0;
};

Location locate(std::uintptr_t address) {
  Dl_info info{};
  link_map* map = nullptr;
  if (::dladdr1(reinterpret_cast<void*>(address), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0 ||
      map == nullptr) {
    return {"", address};
  }
  // The program itself has no name there.
  std::string module = map->l_name;
  if (module.empty()) {
    std::array<char, 4096> path;
    auto const length = ::readlink("/proc/self/exe", path.data(), path.size());
    module = length > 0 ? std::string(path.data(), static_cast<std::size_t>(length)) : "/proc/self/exe";
  }
  return {std::move(module), address - map->l_addr};
}

SourceFrame nameless(Location const& at) {
  if (at.module.empty()) return {fmt::format("{:#x}", at.offset), "", 0};
  auto const slash = at.module.rfind('/');
  return {fmt::format("{}+{:#x}", at.module.substr(slash == std::string::npos ? 0 : slash + 1), at.offset), "", 0};
}

// "path/file.cpp:12 (discriminator 3)"; unknown parts are "??" and "?" or 0.
void parsePlace(std::string_view text, SourceFrame& frame) {
  if (auto const note = text.find(" (discriminator"); note != std::string_view::npos) text = text.substr(0, note);
  auto const colon = text.rfind(':');
  if (colon == std::string_view::npos || text.starts_with("??")) return;
  auto const digits = text.substr(colon + 1);
  std::from_chars(digits.data(), digits.data() + digits.size(), frame.line);
  frame.file = plainPath(text.substr(0, colon));
}

// The answer to -a -f -i: for each address a line with it, then two lines for each frame.
std::vector<std::vector<SourceFrame>> parse(std::string_view text) {
  std::vector<std::vector<SourceFrame>> result;
  std::optional<SourceFrame> open;
  while (!text.empty()) {
    auto const end = std::min(text.find('\n'), text.size());
    auto const line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!open && line.starts_with("0x")) {
      result.emplace_back();
    } else if (!open) {
      open = SourceFrame{std::string(line), "", 0};
    } else if (!result.empty()) {
      parsePlace(line, *open);
      result.back().push_back(*std::move(open));
      open.reset();
    }
  }
  return result;
}

// For an inlined function of an unnamed namespace, addr2line gives the name of the function that it was inlined into.
void correctInlinedName(std::vector<SourceFrame>& frames) {
  if (frames.size() < 2) return;
  auto& inner = frames.front().function;
  auto& outer = frames.back().function;
  auto const name = shortName(inner);
  auto const last = shortName(outer);
  if (inner != outer && (name == last || name.ends_with("::" + last))) outer = std::exchange(inner, {});
}

using Cache = std::unordered_map<std::uintptr_t, std::vector<SourceFrame>>;

void resolveModule(std::string const& module, std::vector<std::pair<std::uintptr_t, std::uintptr_t>> const& offsets,
                   Cache& cache) {
  std::vector<std::vector<SourceFrame>> answers;
  for (auto command : symbolizers()) {
    command.insert(command.end(), {"-a", "-f", "-C", "-i", "-e", module});
    for (auto const& [address, offset] : offsets) command.push_back(fmt::format("{:#x}", offset));
    auto const result = runCommand(command, CommandErrors::dropped);
    if (result.status != 0) continue;
    answers = parse(result.said);
    if (answers.size() == offsets.size()) break;
    answers.clear();
  }
  for (std::size_t i = 0; i < answers.size(); ++i) {
    auto& frames = answers[i];
    bool const known = !frames.empty() && (frames[0].function != "??" || !frames[0].file.empty());
    if (!known) continue;
    correctInlinedName(frames);
    cache[offsets[i].first] = std::move(frames);
  }
}

// Fills the cache for all of these call addresses.
void resolve(std::span<std::uintptr_t const> addresses, Cache& cache) {
  std::map<std::string, std::vector<std::pair<std::uintptr_t, std::uintptr_t>>> byModule;
  for (auto const address : addresses) {
    auto const [entry, isNew] = cache.try_emplace(address);
    if (!isNew) continue;
    auto at = locate(address);
    entry->second = {nameless(at)};
    if (!at.module.empty()) byModule[std::move(at.module)].emplace_back(address, at.offset);
  }
  for (auto const& [module, offsets] : byModule) resolveModule(module, offsets, cache);
}

// A return address is behind its call, perhaps in the next line or function.
std::vector<std::uintptr_t> callsOf(std::span<std::uintptr_t const> returnAddresses) {
  std::vector<std::uintptr_t> calls;
  for (auto const address : returnAddresses) calls.push_back(address == 0 ? 0 : address - 1);
  return calls;
}

Cache& cache() {
  static Cache instance;
  return instance;
}

// "@0x7f12" in a line of text.
struct AddressMark {
  std::size_t begin;
  std::size_t length;
  std::uintptr_t address;
};

std::optional<AddressMark> addressMark(std::string const& line) {
  constexpr std::string_view sign = "@0x";
  auto const begin = line.find(sign);
  if (begin == std::string::npos) return std::nullopt;
  AddressMark mark{begin, sign.size(), 0};
  auto const* const digits = line.data() + begin + sign.size();
  auto const end = std::from_chars(digits, line.data() + line.size(), mark.address, 16).ptr;
  mark.length += static_cast<std::size_t>(end - digits);
  return mark;
}

// "kernel.cpp:12", or the function where the line is not known.
std::string placeName(std::uintptr_t returnAddress) {
  auto const frame = withoutMachine(sourceFrames({&returnAddress, 1})).front();
  if (frame.file.empty()) return frame.function;
  return fmt::format("{}:{}", std::filesystem::path(frame.file).filename().string(), frame.line);
}

}  // namespace

std::vector<SourceFrame> sourceFrames(std::span<std::uintptr_t const> returnAddresses) {
  auto const calls = callsOf(returnAddresses);
  resolve(calls, cache());
  std::vector<SourceFrame> result;
  for (auto const call : calls) {
    auto const& frames = cache().at(call);
    result.insert(result.end(), frames.begin(), frames.end());
  }
  return result;
}

void describe(Finding& finding) {
  std::vector<std::uintptr_t> all;
  for (auto const& access : finding.accesses) all.insert(all.end(), access.calls.begin(), access.calls.end());
  for (auto const& line : finding.timeline) {
    if (auto const mark = addressMark(line)) all.push_back(mark->address);
  }
  resolve(callsOf(all), cache());  // one child process for each module, not for each access
  for (auto& access : finding.accesses) access.stack = withoutMachine(sourceFrames(access.calls));
  for (auto& line : finding.timeline) {
    if (auto const mark = addressMark(line)) line.replace(mark->begin, mark->length, "at " + placeName(mark->address));
  }
}

}  // namespace mscclpp::sim
