// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The element types and reductions that the host can name, and the way from the name to the C++ type.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "mscclpp/device/number.hpp"
#include "mscclpp/device/reduce_op.hpp"

namespace mscclpp {

enum class DataType : std::uint8_t {
  float32,
  float64,
  float16,
  bfloat16,
  float8E4M3,
  float8E5M2,
  int8,
  uint8,
  int32,
  uint32,
  int64,
  uint64,
};

// `none`: for collectives that only move data.
enum class ReduceOp : std::uint8_t { sum, prod, min, max, avg, none };

inline constexpr std::array dataTypes{DataType::float32,    DataType::float64,    DataType::float16, DataType::bfloat16,
                                      DataType::float8E4M3, DataType::float8E5M2, DataType::int8,    DataType::uint8,
                                      DataType::int32,      DataType::uint32,     DataType::int64,   DataType::uint64};
// Those that reduce.
inline constexpr std::array reduceOps{ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg};

// Calls f(std::type_identity<T>{}) for the C++ type of `type`.
template <class F>
constexpr auto withDataType(DataType type, F&& f) {
  switch (type) {
    case DataType::float64:
      return f(std::type_identity<double>{});
    case DataType::float16:
      return f(std::type_identity<Half>{});
    case DataType::bfloat16:
      return f(std::type_identity<BFloat16>{});
    case DataType::float8E4M3:
      return f(std::type_identity<Float8E4M3>{});
    case DataType::float8E5M2:
      return f(std::type_identity<Float8E5M2>{});
    case DataType::int8:
      return f(std::type_identity<std::int8_t>{});
    case DataType::uint8:
      return f(std::type_identity<std::uint8_t>{});
    case DataType::int32:
      return f(std::type_identity<std::int32_t>{});
    case DataType::uint32:
      return f(std::type_identity<std::uint32_t>{});
    case DataType::int64:
      return f(std::type_identity<std::int64_t>{});
    case DataType::uint64:
      return f(std::type_identity<std::uint64_t>{});
    case DataType::float32:
      break;
  }
  return f(std::type_identity<float>{});
}

// In words, as programs, profiles and messages have it: "bfloat16", "float8_e4m3", "sum".
constexpr std::string_view nameOf(DataType type) {
  return withDataType(type, []<class T>(std::type_identity<T>) { return numberName<T>(); });
}
constexpr std::string_view nameOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::prod:
      return Prod::name;
    case ReduceOp::min:
      return Min::name;
    case ReduceOp::max:
      return Max::name;
    case ReduceOp::avg:
      return Avg::name;
    case ReduceOp::none:
      return "none";
    case ReduceOp::sum:
      break;
  }
  return Sum::name;
}
// Of one element: 1, 2, 4 or 8.
constexpr std::size_t bytesOf(DataType type) {
  return withDataType(type, []<class T>(std::type_identity<T>) { return sizeof(T); });
}

// What nameOf() calls so; nothing for any other word, and for "none".
constexpr std::optional<DataType> dataTypeByName(std::string_view wanted) {
  for (auto type : dataTypes) {
    if (nameOf(type) == wanted) return type;
  }
  return std::nullopt;
}
constexpr std::optional<ReduceOp> reduceOpByName(std::string_view wanted) {
  for (auto op : reduceOps) {
    if (nameOf(op) == wanted) return op;
  }
  return std::nullopt;
}

// The DataType of a C++ type, and the ReduceOp whose name is Op::name. Integers of 16 bits and operations of one's own
// have none, and do not compile.
template <Number T>
constexpr DataType dataTypeOf() {
  constexpr auto type = dataTypeByName(numberName<T>());
  static_assert(type.has_value(), "there is no DataType of this number");
  return *type;
}
template <class Op>
constexpr ReduceOp reduceOpOf() {
  constexpr auto op = reduceOpByName(Op::name);
  static_assert(op.has_value(), "there is no ReduceOp with this operation's name");
  return *op;
}

}  // namespace mscclpp
