// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "data/inputs.hpp"

#include <cstring>
#include <limits>

#include "mscclpp/collectives/reduce_op_type.hpp"

namespace mscclpp::bench {
namespace {

template <class T>
std::vector<std::byte> bytesOfVector(std::vector<T> const& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class Element>
std::vector<std::byte> generate(DataType type, std::size_t period, Element element) {
  return withDataType(type, [&]<class T>(std::type_identity<T> tag) {
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
  constexpr auto operation = reduceOpOf<Op>();
  std::vector<A> totals(period);
  bool const exact = std::is_integral_v<T> || operation == ReduceOp::min || operation == ReduceOp::max || !withSlack;
  std::vector<double> magnitudes(exact ? 0 : period);
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < period; ++i) {
      auto const value = convertNumber<A>(checkedElement<T>(randomWord(seed, rank, i), operation));
      totals[i] = rank == 0 ? value : Op{}(totals[i], value);
      if (exact) continue;
      auto const magnitude = std::abs(static_cast<double>(value));
      magnitudes[i] = rank == 0                     ? magnitude
                      : operation == ReduceOp::prod ? magnitudes[i] * magnitude
                                                    : magnitudes[i] + magnitude;
    }
  }
  std::vector<T> results(period);
  for (std::size_t i = 0; i < period; ++i) results[i] = convertNumber<T>(Op{}.finish(totals[i], ranks));
  Expected expected{dataTypeOf<T>(), bytesOfVector(results), std::vector<float>(magnitudes.size())};
  for (std::size_t i = 0; i < magnitudes.size(); ++i) {
    // Every step may round once more; the smallest normal number covers results near zero.
    double const scale = operation == ReduceOp::avg ? 1.0 / ranks : 1.0;
    double const floor = std::is_same_v<T, Half> || sizeof(T) == 1 ? 0x1p-14 : std::numeric_limits<float>::min();
    expected.slack[i] = static_cast<float>(2.0 * ranks * roundingError<T>() * magnitudes[i] * scale + floor);
  }
  return expected;
}

Expected reduceBlocks(DataType type, ReduceOp operation, std::uint64_t seed, int ranks, std::size_t period,
                      bool withSlack) {
  return withDataType(type, [&]<class T>(std::type_identity<T>) {
    return withReduceOp(
        operation, [&]<class Op>(std::type_identity<Op>) { return reduce<T, Op>(seed, ranks, period, withSlack); });
  });
}

}  // namespace

std::vector<std::byte> checkedBlock(DataType type, ReduceOp operation, std::uint64_t seed, int rank,
                                    std::size_t period) {
  return generate(type, period, [&]<class T>(std::type_identity<T>, std::size_t i) {
    return checkedElement<T>(randomWord(seed, rank, i), operation);
  });
}

std::vector<std::byte> timedBlock(DataType type, ReduceOp operation, std::uint64_t seed, int rank, std::size_t period) {
  return generate(type, period, [&]<class T>(std::type_identity<T>, std::size_t i) {
    return timedElement<T>(randomWord(seed, rank, i), operation);
  });
}

Expected expectedBlock(DataType type, ReduceOp operation, std::uint64_t seed, int ranks, std::size_t period) {
  return reduceBlocks(type, operation, seed, ranks, period, false);
}

Expected expectedWithSlack(DataType type, ReduceOp operation, std::uint64_t seed, int ranks, std::size_t period) {
  return reduceBlocks(type, operation, seed, ranks, period, true);
}

Answers answersFor(DataType type, ReduceOp operation, std::uint64_t seed, int ranks, std::size_t period) {
  Answers answers;
  for (int rank = 0; rank < ranks; ++rank) {
    answers.inputs.push_back({type, checkedBlock(type, operation, seed, rank, period), {}});
  }
  if (operation != ReduceOp::none) answers.reduced = expectedBlock(type, operation, seed, ranks, period);
  constexpr std::size_t poisonPeriod = 1024;
  answers.poison = {type, std::vector<std::byte>(poisonPeriod * bytesOf(type), std::byte{poisonByte}), {}};
  return answers;
}

}  // namespace mscclpp::bench
