// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The library's collectives over several nodes, as kernels: in rounds of what the data of a HierarchicalTeam holds,
// from the caller's buffers into it, and back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/kernels/device/any_operation.hpp"
#include "collectives/kernels/two_level_kernels.hpp"
#include "mscclpp/algorithms/collective/hierarchical.hpp"
#include "mscclpp/algorithms/collective/hierarchical_alltoall.hpp"
#include "mscclpp/algorithms/collective/hierarchical_rooted.hpp"
#include "mscclpp/algorithms/collective/hierarchical_send_recv.hpp"

namespace mscclpp::collectives_impl {
inline namespace MSCCLPP_BACKEND {

// A call in rounds of what the team's data holds. All ranks make the same ones, since parts have one size.
struct TwoLevelRounds {
  TwoLevelCall const& call;
  DeviceHierarchy const& h;
  GridGroup const grid = thisGrid();
  DeviceTeam const local{h.local};

  MSCCLPP_DEVICE std::byte* data() const { return h.data.bases[h.local.rank]; }
  MSCCLPP_DEVICE std::uint64_t ranks() const { return static_cast<std::uint64_t>(h.size()); }
  MSCCLPP_DEVICE std::uint64_t self() const { return static_cast<std::uint64_t>(h.rank()); }
  MSCCLPP_DEVICE bool isRoot() const { return h.rank() == call.root; }
  MSCCLPP_DEVICE std::byte const* in() const { return static_cast<std::byte const*>(call.in); }
  MSCCLPP_DEVICE std::byte* out() const { return static_cast<std::byte*>(call.out); }
  // Bytes of a round where the data has so many parts.
  MSCCLPP_DEVICE std::uint64_t room(std::uint64_t parts) const { return h.data.bytes / parts / 16 * 16; }

  // round(first, count) for `all` in steps of at most `most`: fill(), then collect() once the other has been done by
  // all of this rank's blocks.
  template <class Fill, class Work, class Collect>
  MSCCLPP_DEVICE void run(std::uint64_t all, std::uint64_t most, Fill const& fill, Work const& work,
                          Collect const& collect) const {
    for (std::uint64_t first = 0; first < all; first += most) {
      auto const count = minimum(most, all - first);
      fill(first, count);
      gridBarrier(local, grid);
      work(count);
      gridBarrier(local, grid);
      if (call.out != nullptr) collect(first, count);
      gridBarrier(local, grid);
    }
  }
};

// Of the buffer's equal parts, what one round moves.
struct RoundParts {
  std::size_t each, stride, first;

  static constexpr bool equal = true;
  MSCCLPP_HOST_DEVICE constexpr std::size_t count(int) const { return each; }
  MSCCLPP_HOST_DEVICE constexpr std::size_t offset(int rank) const {
    return static_cast<std::size_t>(rank) * stride + first;
  }
  MSCCLPP_HOST_DEVICE constexpr std::size_t largest() const { return each; }
};

struct TwoLevelMoveKernel {
  static constexpr unsigned maxThreads = 512;

  MSCCLPP_DEVICE void operator()(TwoLevelCall const& call, DeviceHierarchy const& h) const {
    TwoLevelRounds const r{call, h};
    auto const& grid = r.grid;
    auto const part = call.part;
    switch (call.collective) {
      case Collective::broadcast:
        return r.run(
            part, r.room(1),
            [&](std::uint64_t first, std::uint64_t bytes) {
              if (r.isRoot()) copy(grid, r.data(), r.in() + first, bytes);
            },
            [&](std::uint64_t bytes) { hierarchicalBroadcast(h, grid, bytes, call.root); },
            [&](std::uint64_t first, std::uint64_t bytes) { copy(grid, r.out() + first, r.data(), bytes); });
      case Collective::scatter:
        return r.run(
            part, r.room(r.ranks()),
            [&](std::uint64_t first, std::uint64_t bytes) {
              for (std::uint64_t to = 0; r.isRoot() && to < r.ranks(); ++to) {
                copy(grid, r.data() + to * bytes, r.in() + to * part + first, bytes);
              }
            },
            [&](std::uint64_t bytes) { hierarchicalScatter(h, grid, bytes, call.root); },
            [&](std::uint64_t first, std::uint64_t bytes) {
              copy(grid, r.out() + first, r.data() + r.self() * bytes, bytes);
            });
      case Collective::allToAll: {
        auto* const out = static_cast<std::uint8_t*>(call.out);
        for (std::uint64_t first = 0; first < part; first += h.partBytes) {
          RoundParts const parts{minimum(h.partBytes, part - first), part, first};
          hierarchicalAllToAll(h, grid, static_cast<std::uint8_t const*>(call.in), parts, out, parts);
        }
        return;
      }
      case Collective::sendRecv:
        for (std::uint64_t first = 0, most = hierarchicalSendRecvRoom(h); first < part; first += most) {
          hierarchicalSendRecv(h, grid, r.in() + first, r.out() + first, minimum(most, part - first));
        }
        return;
      case Collective::barrier:
        return hierarchicalAllGather(h, grid, 0);
      default:  // allGather, gather
        return r.run(
            part, r.room(r.ranks()),
            [&](std::uint64_t first, std::uint64_t bytes) {
              copy(grid, r.data() + r.self() * bytes, r.in() + first, bytes);
            },
            [&](std::uint64_t bytes) {
              if (call.collective == Collective::gather) {
                hierarchicalGather(h, grid, bytes, call.root);
              } else {
                hierarchicalAllGather(h, grid, bytes);
              }
            },
            [&](std::uint64_t first, std::uint64_t bytes) {
              for (std::uint64_t from = 0; from < r.ranks(); ++from) {
                copy(grid, r.out() + from * part + first, r.data() + from * bytes, bytes);
              }
            });
    }
  }
};

template <class T>
struct TwoLevelReduceKernel {
  static constexpr unsigned maxThreads = 512;

  MSCCLPP_DEVICE void operator()(TwoLevelCall const& call, DeviceHierarchy const& h) const {
    auto const block = thisBlock();
    if (block.rank() == 0) BlocksOperation::chosen() = call.op;
    block.sync();
    TwoLevelRounds const r{call, h};
    auto const& grid = r.grid;
    auto const* const in = static_cast<T const*>(call.in);
    auto* const out = static_cast<T*>(call.out);
    if (call.collective == Collective::reduceScatter) {
      for (std::uint64_t first = 0, most = r.room(r.ranks()) / sizeof(T); first < call.part; first += most) {
        auto const count = minimum(most, call.part - first);
        auto const stride = hierarchicalPartBytes<T>(count);
        for (std::uint64_t to = 0; to < r.ranks(); ++to) {
          copy(grid, r.data() + to * stride, reinterpret_cast<std::byte const*>(in + to * call.part + first),
               count * sizeof(T));
        }
        // Also behind the round before: on its return nobody reads the data any more, but perhaps the inbox.
        gridBarrier(r.local, grid);
        hierarchicalReduceScatter<T, BlocksOperation>(h, grid, View{out + first, count});
      }
      return;
    }
    r.run(
        call.part, r.room(1) / sizeof(T),
        [&](std::uint64_t first, std::uint64_t count) {
          copy(grid, r.data(), reinterpret_cast<std::byte const*>(in + first), count * sizeof(T));
        },
        [&](std::uint64_t count) {
          if (call.collective == Collective::reduce) {
            hierarchicalReduce<T, BlocksOperation>(h, grid, count, call.root);
          } else {
            hierarchicalAllReduce<T, BlocksOperation>(h, grid, count, h.scheduleFor(count * sizeof(T), call.direct));
          }
        },
        [&](std::uint64_t first, std::uint64_t count) {
          copy(grid, reinterpret_cast<std::byte*>(out + first), r.data(), count * sizeof(T));
        });
  }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp::collectives_impl
