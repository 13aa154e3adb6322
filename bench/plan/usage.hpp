// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the commands that run something say to users who ask for what cannot be, and how they read and write sizes.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace mscclpp::bench {

// What the user asked for cannot be: the text goes to stderr, and the program ends with status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws UsageError: "flag=value: allowed is ...".
[[noreturn]] void refuse(std::string_view flag, std::string_view value, std::string_view allowed);

// What --output=path asks for. Throws UsageError.
void writeOutput(std::string const& path, std::string const& text);

// "64K" to 65536: a whole number, then K, M or G for powers of 1024. Throws UsageError naming `flag`.
std::uint64_t parseBytes(std::string_view flag, std::string_view text);

// 65536 to "64K"; what is no whole number of K, M or G stays in digits.
std::string formatBytes(std::uint64_t bytes);

}  // namespace mscclpp::bench
