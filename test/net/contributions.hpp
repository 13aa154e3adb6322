// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What each rank gives to a collective, of any type, and what must come out of it by the collective's definition:
// computed in doubles, by no code of the library but the last conversion.
//
// Of each element of a reduction three ranks, others for each element, give small whole numbers, all others what
// changes nothing, so every type has every result on the way exactly, in any order. A mean is rounded once, as the
// library does.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "mscclpp/algorithms/core/traits.hpp"
#include "mscclpp/device/data_type.hpp"

namespace mscclpp_test {

using namespace mscclpp;

template <class T>
class Contributions {
 public:
  // `count`: of a part, below 2^32. What is given in another turn, below 2^8, is other.
  Contributions(Collective collective, ReduceOp op, std::size_t ranks, std::size_t count, std::size_t root,
                std::size_t turn = 0)
      : collective_(collective), op_(op), ranks_(ranks), count_(count), root_(root), turn_(turn) {}

  T of(std::size_t rank, std::size_t i) const {
    return reduces(collective_) ? rounded(number(rank, i)) : anyBits(rank, i);
  }

  // Element i of what `rank` gets.
  T expected(std::size_t rank, std::size_t i) const {
    auto const own = rank * count_ + i;
    switch (collective_) {
      case Collective::allReduce:
      case Collective::reduce:
        return reduced(i);
      case Collective::reduceScatter:
        return reduced(own);
      case Collective::allToAll:
        return of(i / count_, rank * count_ + i % count_);
      case Collective::broadcast:
        return of(root_, i);
      case Collective::scatter:
        return of(root_, own);
      case Collective::sendRecv:
        return of((rank + ranks_ - 1) % ranks_, i);
      default:  // those that gather
        return of(i / count_, i % count_);
    }
  }

 private:
  static constexpr bool isWhole = std::is_integral_v<T>;
  static constexpr bool isSigned = !std::is_unsigned_v<T>;

  static std::uint64_t mixed(std::uint64_t x) {
    x = (x + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 29) * 0x94d049bb133111eb;
    return x ^ x >> 32;
  }

  T anyBits(std::size_t rank, std::size_t i) const {
    auto const bits = mixed(rank << 40 | turn_ << 32 | i);
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  static T rounded(double value) {
    if constexpr (isWhole) {
      return static_cast<T>(value);
    } else if constexpr (std::is_same_v<T, double>) {
      return value;
    } else {
      return convertNumber<T>(static_cast<float>(value));
    }
  }

  double number(std::size_t rank, std::size_t i) const {
    auto const bits = mixed(turn_ << 32 | i);
    auto const turn = (rank + ranks_ - bits % ranks_) % ranks_;
    if (turn >= 3) return neutral();
    bool const compares = op_ == ReduceOp::min || op_ == ReduceOp::max;
    auto const magnitude = static_cast<double>(1 + (bits >> (32 + 8 * turn)) % (compares ? 6 : 2));
    auto const value = isSigned && (bits >> (56 + turn)) % 2 == 0 ? -magnitude : magnitude;
    // Means of integers that are not 0, and have a rest.
    return isWhole && op_ == ReduceOp::avg ? value * static_cast<double>(ranks_ - 1) : value;
  }
  double neutral() const {
    if (op_ == ReduceOp::min) return 7;
    if (op_ == ReduceOp::max) return isSigned ? -7 : 0;
    return op_ == ReduceOp::prod ? 1 : 0;
  }

  T reduced(std::size_t i) const {
    auto total = number(0, i);
    for (std::size_t rank = 1; rank < ranks_; ++rank) {
      auto const value = number(rank, i);
      total = op_ == ReduceOp::prod  ? total * value
              : op_ == ReduceOp::min ? std::min(total, value)
              : op_ == ReduceOp::max ? std::max(total, value)
                                     : total + value;
    }
    if (op_ == ReduceOp::avg) total /= static_cast<double>(ranks_);
    return rounded(isWhole ? std::trunc(total) : total);
  }

  Collective collective_;
  ReduceOp op_;
  std::size_t ranks_, count_, root_, turn_;
};

}  // namespace mscclpp_test
