// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the parts for CUTLASS refuse, in words: an empty string is no refusal. On the host.
#pragma once

#include <cstdint>
#include <string>

#include "mscclpp/host/error.hpp"
#include "mscclpp/layout/tile_flags_handle.hpp"

namespace mscclpp::detail {

// Rows are dealt out to `ranks`, each share in tiles or clusters of tiles of `tileRows`.
inline std::string refuseRows(char const* part, std::int64_t rows, int ranks, int tileRows) {
  if (ranks < 1 || rows < 1 || rows % (std::int64_t{ranks} * tileRows) != 0) {
    return std::string(part) + ": " + std::to_string(rows) + " rows for " + std::to_string(ranks) +
           " ranks: each rank's share has to be whole tiles of " + std::to_string(tileRows) +
           " rows, so that no tile lies with two owners; pad the rows to a multiple of " +
           std::to_string(std::int64_t{ranks} * tileRows) + ", or take lower tiles";
  }
  return {};
}

inline std::string refuseFlags(char const* part, layout::TileFlagsHandle const& flags, std::int64_t tiles) {
  if (flags.size < 1) return std::string(part) + ": its arguments have no tile flags yet";
  if (tiles > flags.layout.tiles) {
    return std::string(part) + ": needs " + std::to_string(tiles) + " tile flags, these are " +
           std::to_string(flags.layout.tiles) + "; make TileFlags with more";
  }
  return {};
}

inline void demand(std::string const& refusal) {
  if (!refusal.empty()) throw Error(ErrorCode::invalidUsage, refusal);
}

}  // namespace mscclpp::detail
