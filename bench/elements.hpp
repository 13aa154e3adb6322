// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The element types and operations that the benchmark knows by name, and the way from the name to the C++ type.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "mscclpp/device/number.hpp"
#include "mscclpp/device/reduce_op.hpp"

namespace mscclpp::bench {

enum class ElementType : std::uint8_t {
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

enum class Operation : std::uint8_t { sum, prod, min, max, avg };

inline constexpr std::array elementTypes{ElementType::float32,  ElementType::float64,    ElementType::float16,
                                         ElementType::bfloat16, ElementType::float8E4M3, ElementType::float8E5M2,
                                         ElementType::int8,     ElementType::uint8,      ElementType::int32,
                                         ElementType::uint32,   ElementType::int64,      ElementType::uint64};
inline constexpr std::array operations{Operation::sum, Operation::prod, Operation::min, Operation::max, Operation::avg};

// Calls f(std::type_identity<T>{}) for the C++ type of `type`.
template <class F>
constexpr auto withElementType(ElementType type, F&& f) {
  switch (type) {
    case ElementType::float64:
      return f(std::type_identity<double>{});
    case ElementType::float16:
      return f(std::type_identity<Half>{});
    case ElementType::bfloat16:
      return f(std::type_identity<BFloat16>{});
    case ElementType::float8E4M3:
      return f(std::type_identity<Float8E4M3>{});
    case ElementType::float8E5M2:
      return f(std::type_identity<Float8E5M2>{});
    case ElementType::int8:
      return f(std::type_identity<std::int8_t>{});
    case ElementType::uint8:
      return f(std::type_identity<std::uint8_t>{});
    case ElementType::int32:
      return f(std::type_identity<std::int32_t>{});
    case ElementType::uint32:
      return f(std::type_identity<std::uint32_t>{});
    case ElementType::int64:
      return f(std::type_identity<std::int64_t>{});
    case ElementType::uint64:
      return f(std::type_identity<std::uint64_t>{});
    case ElementType::float32:
      break;
  }
  return f(std::type_identity<float>{});
}

// The same for an operation.
template <class F>
constexpr auto withOperation(Operation operation, F&& f) {
  switch (operation) {
    case Operation::prod:
      return f(std::type_identity<Prod>{});
    case Operation::min:
      return f(std::type_identity<Min>{});
    case Operation::max:
      return f(std::type_identity<Max>{});
    case Operation::avg:
      return f(std::type_identity<Avg>{});
    case Operation::sum:
      break;
  }
  return f(std::type_identity<Sum>{});
}

constexpr std::string_view name(ElementType type) {
  return withElementType(type, []<class T>(std::type_identity<T>) { return numberName<T>(); });
}
constexpr std::string_view name(Operation operation) {
  return withOperation(operation, []<class Op>(std::type_identity<Op>) { return Op::name; });
}
constexpr std::size_t bytesOf(ElementType type) {
  return withElementType(type, []<class T>(std::type_identity<T>) { return sizeof(T); });
}

template <Number T>
constexpr ElementType elementTypeOf() {
  for (auto type : elementTypes) {
    if (name(type) == numberName<T>()) return type;
  }
  return ElementType::float32;
}
template <class Op>
constexpr Operation operationOf() {
  for (auto operation : operations) {
    if (name(operation) == Op::name) return operation;
  }
  return Operation::sum;
}

constexpr std::optional<ElementType> elementTypeByName(std::string_view wanted) {
  for (auto type : elementTypes) {
    if (name(type) == wanted) return type;
  }
  return std::nullopt;
}
constexpr std::optional<Operation> operationByName(std::string_view wanted) {
  for (auto operation : operations) {
    if (name(operation) == wanted) return operation;
  }
  return std::nullopt;
}

}  // namespace mscclpp::bench
