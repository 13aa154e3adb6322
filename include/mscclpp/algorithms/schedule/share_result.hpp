// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A rank's reduced share in collectives of two exchanges: how it is folded between them, and what becomes of results
// where they end.
#pragma once

#include <concepts>
#include <cstdint>

#include "mscclpp/algorithms/core/concepts.hpp"
#include "mscclpp/algorithms/core/partition.hpp"
#include "mscclpp/algorithms/core/reduction.hpp"
#include "mscclpp/device/view.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

namespace impl {

// Folds the own share `Tr::batch` payloads at a time and hands each result, as it will travel, to `emit`.
template <class Tr, class R, class Session, class Source, class Reader, unsigned U, class Emit>
MSCCLPP_DEVICE void reduceShare(DeviceTeam const& team, Session const& session, Source const& source,
                                Reader const& reader, ThreadSlots<U> const& mine, Emit emit) {
  constexpr unsigned batch = Tr::batch;
  static_assert(U % batch == 0);
  MSCCLPP_UNROLL
  for (unsigned first = 0; first < U; first += batch) {
    Payload<Tr::words> own[batch];
    std::uint32_t slots[batch];
    bool active[batch];
    typename R::template Accumulators<Tr::words> totals[batch]{};
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < batch; ++i) {
      slots[i] = mine.slot[first + i];
      active[i] = mine.active[first + i];
      own[i] = mine.valid[first + i] ? reader.read(source, Tr::dataOffset(slots[i]), Tr::dataBytes(slots[i]))
                                     : Payload<Tr::words>{};
    }
    R::template fold<batch>(team, session, 0, slots, active, own, totals);
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < batch; ++i) emit(first + i, R::template narrow<Tr::words>(totals[i]));
  }
}

// The epilogue sees, on every rank, the result as it travelled: rounded to the element type.
template <class Tr, class R, class Writer, class Target, class Epilogue>
MSCCLPP_DEVICE void storeResult(Writer const& writer, Target const& target, Epilogue const& epilogue,
                                Payload<Tr::words> const& result, std::uint64_t tileOffset, std::uint32_t slot) {
  auto const offset = Tr::dataOffset(slot);
  if constexpr (std::same_as<Epilogue, Identity>) {
    writer.write(target, offset, result, Tr::dataBytes(slot));
  } else {
    if (R::template isPastEnd<Epilogue>(target, offset)) return;
    auto const index = (tileOffset + offset) / R::elementBytes;
    auto const stored = minimum(target.bytes - offset, Tr::dataBytes(slot));
    writer.write(target, offset, R::template conclude<Tr::words>(epilogue, R::widen(result), index, stored),
                 Tr::dataBytes(slot));
  }
}

}  // namespace impl

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
