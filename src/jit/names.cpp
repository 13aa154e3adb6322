// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <array>

#include "base/format.hpp"
#include "mscclpp/jit/source.hpp"

namespace mscclpp::jit {
namespace {

// In the order of the enumerations.
constexpr std::array<char const*, dataTypes.size()> typeNames{
    "float",       "double",       "mscclpp::Half", "mscclpp::BFloat16", "mscclpp::Float8E4M3", "mscclpp::Float8E5M2",
    "std::int8_t", "std::uint8_t", "std::int32_t",  "std::uint32_t",     "std::int64_t",        "std::uint64_t"};
constexpr std::array<char const*, 6> opNames{"Sum", "Prod", "Min", "Max", "Avg", "Sum"};  // nothing is reduced

}  // namespace

std::string instanceName(std::string const& type, DataType element) {
  return fmt::format("{}<{}>", type, typeNames[static_cast<std::size_t>(element)]);
}

std::string instanceName(std::string const& type, DataType element, ReduceOp op) {
  return fmt::format("{}<{}, mscclpp::{}>", type, typeNames[static_cast<std::size_t>(element)],
                     opNames[static_cast<std::size_t>(op)]);
}

}  // namespace mscclpp::jit
