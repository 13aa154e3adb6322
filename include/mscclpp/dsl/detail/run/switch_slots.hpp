// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// 16 bytes of elements T through the switch: what everybody's memory holds there as one sum, minimum or maximum, and
// one value into everybody's memory. Types and operations that the switch lacks are for plain accesses.
#pragma once

#include <concepts>
#include <cstddef>

#include "mscclpp/device/multimem.hpp"
#include "mscclpp/device/packet.hpp"
#include "mscclpp/dsl/core/kinds.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {
namespace dsl_impl {

// The operation of `op` where the switch may have it, else asCalled.
template <class Op>
MSCCLPP_DEVICE constexpr dsl::ReduceKind kindOf(Op const& op) {
  if constexpr (requires { op.kind(); }) {
    return op.kind();
  } else if constexpr (std::same_as<Op, Sum>) {
    return dsl::ReduceKind::sum;
  } else if constexpr (std::same_as<Op, Min>) {
    return dsl::ReduceKind::min;
  } else if constexpr (std::same_as<Op, Max>) {
    return dsl::ReduceKind::max;
  } else {
    return dsl::ReduceKind::asCalled;
  }
}

template <Number T>
class SwitchSlots {
 public:
  // FP8 is left out: only some devices combine it.
  static constexpr bool moves = multimemMoves<T> && sizeof(T) != 1;

  MSCCLPP_DEVICE static bool reduces(dsl::ReduceKind kind) {
    switch (kind) {
      case dsl::ReduceKind::sum:
        return multimemLoadReduces<T, Sum>;
      case dsl::ReduceKind::min:
        return multimemLoadReduces<T, Min>;
      case dsl::ReduceKind::max:
        return multimemLoadReduces<T, Max>;
      default:
        return false;
    }
  }

  // `kind` is one of those.
  MSCCLPP_DEVICE static Payload<4> load(std::byte const* multicast, dsl::ReduceKind kind) {
    if (kind == dsl::ReduceKind::min) return loadBy<Min>(multicast);
    if (kind == dsl::ReduceKind::max) return loadBy<Max>(multicast);
    return loadBy<Sum>(multicast);
  }
  MSCCLPP_DEVICE static void store(std::byte* multicast, Payload<4> const& payload) {
    auto const parts = bitCast<Parts>(payload);
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < count; ++i) {
      multimemStore<Order::relaxed, Scope::system>(reinterpret_cast<Part*>(multicast) + i, parts.part[i]);
    }
  }

 private:
  using Part = Vector<T, multimemWidest<T>>;
  static constexpr unsigned count = 16 / sizeof(Part);
  struct Parts {
    Part part[count];
  };

  template <class Op>
  MSCCLPP_DEVICE static Payload<4> loadBy(std::byte const* multicast) {
    if constexpr (multimemLoadReduces<T, Op>) {
      Parts parts{};
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < count; ++i) {
        parts.part[i] =
            multimemLoadReduce<Order::relaxed, Scope::system, Op>(reinterpret_cast<Part const*>(multicast) + i);
      }
      return bitCast<Payload<4>>(parts);
    } else {
      return {};
    }
  }
};

}  // namespace dsl_impl
}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
