// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "inputs.hpp"

#include <cstring>
#include <limits>

namespace mscclpp::bench {
namespace {

template <class T>
std::vector<std::byte> bytesOfVector(std::vector<T> const& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class Element>
std::vector<std::byte> generate(ElementType type, std::size_t period, Element element) {
  return withElementType(type, [&]<class T>(std::type_identity<T> tag) {
    std::vector<T> values(period);
    for (std::size_t i = 0; i < period; ++i) values[i] = element(tag, i);
    return bytesOfVector(values);
  });
}

// Half the distance between neighbours, relative to the value.
template <class T>
constexpr double roundingError() {
  if constexpr (std::is_same_v<T, double>) return 0x1p-53;
  if constexpr (std::is_same_v<T, float>) return 0x1p-24;
  if constexpr (std::is_same_v<T, Half>) return 0x1p-11;
  if constexpr (std::is_same_v<T, BFloat16>) return 0x1p-8;
  if constexpr (std::is_same_v<T, Float8E4M3>) return 0x1p-4;
  return 0x1p-3;
}

template <class T, class Op>
Expected reduce(std::uint64_t seed, int ranks, std::size_t period, bool withSlack) {
  using A = DefaultAccumulator<T>;
  constexpr auto operation = operationOf<Op>();
  std::vector<A> totals(period);
  bool const exact = std::is_integral_v<T> || operation == Operation::min || operation == Operation::max || !withSlack;
  std::vector<double> magnitudes(exact ? 0 : period);
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < period; ++i) {
      auto const value = convertNumber<A>(checkedElement<T>(randomWord(seed, rank, i), operation));
      totals[i] = rank == 0 ? value : Op{}(totals[i], value);
      if (exact) continue;
      auto const magnitude = std::abs(static_cast<double>(value));
      magnitudes[i] = rank == 0                      ? magnitude
                      : operation == Operation::prod ? magnitudes[i] * magnitude
                                                     : magnitudes[i] + magnitude;
    }
  }
  std::vector<T> results(period);
  for (std::size_t i = 0; i < period; ++i) results[i] = convertNumber<T>(Op{}.finish(totals[i], ranks));
  Expected expected{elementTypeOf<T>(), bytesOfVector(results), std::vector<float>(magnitudes.size())};
  for (std::size_t i = 0; i < magnitudes.size(); ++i) {
    // Every step may round once more; the smallest normal number covers results near zero.
    double const scale = operation == Operation::avg ? 1.0 / ranks : 1.0;
    double const floor = std::is_same_v<T, Half> || sizeof(T) == 1 ? 0x1p-14 : std::numeric_limits<float>::min();
    expected.slack[i] = static_cast<float>(2.0 * ranks * roundingError<T>() * magnitudes[i] * scale + floor);
  }
  return expected;
}

Expected reduceBlocks(ElementType type, Operation operation, std::uint64_t seed, int ranks, std::size_t period,
                      bool withSlack) {
  return withElementType(type, [&]<class T>(std::type_identity<T>) {
    return withOperation(
        operation, [&]<class Op>(std::type_identity<Op>) { return reduce<T, Op>(seed, ranks, period, withSlack); });
  });
}

}  // namespace

std::vector<std::byte> checkedBlock(ElementType type, Operation operation, std::uint64_t seed, int rank,
                                    std::size_t period) {
  return generate(type, period, [&]<class T>(std::type_identity<T>, std::size_t i) {
    return checkedElement<T>(randomWord(seed, rank, i), operation);
  });
}

std::vector<std::byte> timedBlock(ElementType type, Operation operation, std::uint64_t seed, int rank,
                                  std::size_t period) {
  return generate(type, period, [&]<class T>(std::type_identity<T>, std::size_t i) {
    return timedElement<T>(randomWord(seed, rank, i), operation);
  });
}

Expected expectedBlock(ElementType type, Operation operation, std::uint64_t seed, int ranks, std::size_t period) {
  return reduceBlocks(type, operation, seed, ranks, period, false);
}

Expected expectedWithSlack(ElementType type, Operation operation, std::uint64_t seed, int ranks, std::size_t period) {
  return reduceBlocks(type, operation, seed, ranks, period, true);
}

}  // namespace mscclpp::bench
