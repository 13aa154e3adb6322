// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A round of tile flags in a kernel of which one writes single threads only: it takes part in the round that another
// kernel ends.
//
//   JoinedRound::tell(flags, block, blocks)     tells the peers that the round has begun; by one thread of each block
//   JoinedRound round;
//   round.join(flags)                           by the thread that calls the rest; only the first call does something
//   round.ready(flags, rank), round.arrive(flags, rank, tile), round.await(flags, tile, arrivals)    as of TileRound
//   launch(stream, {.blocks = 1, .threads = 128}, EndRound{}, flags.deviceHandle())    ends a round
//
// Which round it is comes from the flags' own counter, which the kernel that ends the round moves on. So that kernel
// begins when all that have joined have ended, by the order of the stream or runAfter(). Nothing is passed from the
// host, and graphs can be replayed.
//
// The other threads of such a kernel wait for each other in ways that this library does not know, so none may leave. A
// wait that is given up is reported as any other and leads later launches astray; the kernel itself goes on to its end
// with whatever is there, and arrives nowhere any more.
//
// Cost: a load for each object that joins; otherwise as TileRound.
#pragma once

#include <cstdint>

#include "mscclpp/device/group.hpp"
#include "mscclpp/device/memory.hpp"
#include "mscclpp/device/poll.hpp"
#include "mscclpp/device/round_counter.hpp"
#include "mscclpp/device/tiles/tile_flags.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

class JoinedRound {
 public:
  // Block b tells peer b, so that none has much to do.
  MSCCLPP_DEVICE static void tell(DeviceTileFlags const& flags, unsigned block, unsigned blocks) {
    JoinedRound round;
    round.join(flags);
    if (round.number_ == lost) return;
    for (unsigned peer = block; peer < static_cast<unsigned>(flags.size); peer += blocks) {
      if (static_cast<int>(peer) == flags.rank) continue;
      store<Order::release, Scope::system>(flags.begun(static_cast<int>(peer), flags.rank), round.number_);
    }
  }

  MSCCLPP_DEVICE void join(DeviceTileFlags const& flags) {
    if (number_ != 0) return;
    waitForPreviousKernel();
    auto const read = loadRounds(flags.epochs());
    number_ = read.rounds + 1;
    if (read.astray != 0) lose(flags, {layout::WaitKind::misuse, -1, std::uint64_t(layout::Misuse::astray), 0}, 0, 0);
  }

  MSCCLPP_DEVICE void ready(DeviceTileFlags const& flags, int rank) {
    if (rank == flags.rank) return;
    auto const* const word = flags.begun(flags.rank, rank);
    wait(flags, {layout::WaitKind::tileRound, rank, 0, number_},
         [&] { return load<Order::acquire, Scope::system>(word); });
  }

  MSCCLPP_DEVICE void arrive(DeviceTileFlags const& flags, int rank, unsigned tile) const {
    if (number_ != lost) reduceAdd<Order::release, Scope::system>(flags.counter(rank, number_, tile), 1u);
  }

  MSCCLPP_DEVICE void await(DeviceTileFlags const& flags, unsigned tile, std::uint32_t arrivals) {
    auto const* const word = flags.counter(flags.rank, number_, tile);
    wait(flags, {layout::WaitKind::tile, -1, tile, arrivals},
         [&] { return std::uint64_t{load<Order::acquire, Scope::system>(word)}; });
  }

 private:
  static constexpr std::uint64_t lost = ~std::uint64_t{0};

  template <class Look>
  MSCCLPP_DEVICE void wait(DeviceTileFlags const& flags, layout::WaitFor const& what, Look const& look) {
    if (number_ == lost) return;
    auto const missing = [&](std::uint64_t&) { return what; };
    arch::Spin spin(flags.watch);
    for (auto seen = look(); seen < what.expected; seen = look()) {
      if (spin.again(missing)) [[likely]]
        continue;
      lose(flags, what, seen, spin.waitedNs());
      return;
    }
    spin.end(missing);
  }

  MSCCLPP_DEVICE void lose(DeviceTileFlags const& flags, layout::WaitFor const& what, std::uint64_t seen,
                           std::uint64_t waitedNs) {
    // No call: with one, ptxas leaves the kernel's warps the registers that they begin with (C7507).
    if (writeReport(flags.watch, what, seen, waitedNs)) markAstray(flags.watch);
    store<Order::relaxed, Scope::system>(&flags.watch->abort, 1u);
    number_ = lost;
  }

  std::uint64_t number_ = 0;
};

// A kernel: ends the round that those ahead of it have begun or joined.
struct EndRound {
  MSCCLPP_DEVICE void operator()(DeviceTileFlags const& flags) const { flags.begin(thisGrid()).end(); }
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
