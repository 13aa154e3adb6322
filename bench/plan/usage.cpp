// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/usage.hpp"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <utility>

namespace mscclpp::bench {

void refuse(std::string_view flag, std::string_view value, std::string_view allowed) {
  throw UsageError(fmt::format("{}={}: allowed is {}", flag, value, allowed));
}

void writeOutput(std::string const& path, std::string const& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw UsageError(fmt::format("--output={}: the file cannot be written", path));
}

std::uint64_t parseBytes(std::string_view flag, std::string_view text) {
  constexpr std::string_view allowed = "a whole number of bytes, or one followed by K, M or G";
  std::uint64_t number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view const unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  unsigned shift = 0;
  if (unit == "K" || unit == "k") {
    shift = 10;
  } else if (unit == "M" || unit == "m") {
    shift = 20;
  } else if (unit == "G" || unit == "g") {
    shift = 30;
  } else if (!unit.empty()) {
    refuse(flag, text, allowed);
  }
  constexpr std::uint64_t most = std::uint64_t{1} << 40;
  if (error != std::errc{} || number == 0 || number > (most >> shift)) {
    refuse(flag, text, fmt::format("{}, from 1 to 1024G", allowed));
  }
  return number << shift;
}

std::string formatBytes(std::uint64_t bytes) {
  for (auto const& [shift, unit] : {std::pair{30, 'G'}, std::pair{20, 'M'}, std::pair{10, 'K'}}) {
    if (bytes != 0 && bytes % (std::uint64_t{1} << shift) == 0) return fmt::format("{}{}", bytes >> shift, unit);
  }
  return fmt::format("{}", bytes);
}

}  // namespace mscclpp::bench
