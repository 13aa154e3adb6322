// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce of the rows of a matrix, with an epilogue that works on whole reduced rows in registers: a residual, a
// norm, a quantisation, in the kernel of the all-reduce.
//
//   AllReduceRows<RowOneShot, PacketTransport<LL128>, Sum> allReduce{team};
//   allReduce(thisGrid(), MatrixView{x, tokens, hidden}, [&](auto& row, auto const& r, auto const& g) {
//     row.map([](float v, float r) { return v + r; }, r);
//     float const scale = 1 / std::sqrt(row.sum([](float v) { return v * v; }) / hidden + 1e-6f);
//     row.store(residual);
//     row.map([=](float v, float g) { return v * scale * g; }, g);
//     row.store(y);
//   }, residual, View{gamma, hidden});
//
//   schedule    RowOneShot   every rank gets everything, and does the same with every row. One link latency; (n-1)
//                            times the matrix leaves each rank
//               RowTwoShot   a row is reduced and worked on by one rank alone: rank r has the rows from
//                            r * ceil(rows / n) on. What is stored in a SymmetricMatrix goes to all ranks, in the type
//                            that it is stored in; what is stored elsewhere stays with that rank
//   transport   PacketTransport<...> or MemoryTransport<...>. Its Unroll bounds the length of a row: the threads that
//               work on a row hold at most Unroll payloads each; of LL128, whose lines have flags, some hold none
//   row group   BlockPerRow (if none is named), WarpsPerRow<N>, ClusterPerRow: rows/row_group.hpp
//
// Called by all threads of the given blocks, on every rank, with the same blocks, matrix and composition. Any number of
// rows, columns and distance between rows. The epilogue is called once for each row that this rank makes, by all
// threads of the row, with a Row (rows/row.hpp) and what was fetched of the operands that are named behind it, a matrix
// or a vector for all rows each. Sums are in rank order, in the accumulator's type, and not rounded before it.
//
// On return the blocks have read the input, and written what they store; with RowTwoShot what the other ranks have
// stored here has come, too. Who reads what other blocks wrote meets them first (gridBarrier).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "mscclpp/algorithms/core/prologue.hpp"
#include "mscclpp/algorithms/core/reduction.hpp"
#include "mscclpp/algorithms/core/requirements.hpp"
#include "mscclpp/algorithms/rows/row.hpp"
#include "mscclpp/algorithms/transport/memory_transport.hpp"
#include "mscclpp/algorithms/transport/packet_transport.hpp"
#include "mscclpp/device/barrier.hpp"
#include "mscclpp/layout/launch_shape.hpp"

namespace mscclpp {
inline namespace MSCCLPP_BACKEND {

struct RowOneShot {
  // Rows of the workspace: one per source.
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t rows(std::uint32_t ranks) { return ranks; }
  static constexpr bool sameToAll = true;

  // Of the rows that `owner` makes, the first, and one behind the last.
  MSCCLPP_DEVICE static std::size_t first(std::size_t, int, int) { return 0; }
  MSCCLPP_DEVICE static std::size_t end(std::size_t all, int, int) { return all; }
};

struct RowTwoShot {
  MSCCLPP_HOST_DEVICE static constexpr std::uint32_t rows(std::uint32_t ranks) { return ranks; }
  static constexpr bool sameToAll = false;

  MSCCLPP_DEVICE static std::size_t first(std::size_t all, int owner, int ranks) {
    auto const each = ceilDiv<std::size_t>(all, static_cast<std::size_t>(ranks));
    return minimum<std::size_t>(each * static_cast<std::size_t>(owner), all);
  }
  MSCCLPP_DEVICE static std::size_t end(std::size_t all, int owner, int ranks) { return first(all, owner + 1, ranks); }
};

// Who makes which rows: one of the two above, and no type of a user's.
template <class S>
concept RowSchedule = std::same_as<S, RowOneShot> || std::same_as<S, RowTwoShot>;

namespace impl {

// Where sums go from slots of lines to chunks; one for all rows of a kernel. A call meets the block's threads before it
// uses it.
struct RowLines {
  static constexpr unsigned mostThreads = 1024;
  alignas(16) std::byte bytes[mostThreads * 32];
};

}  // namespace impl

// The state of a call, and what its rounds do. In a round each row group takes one row of those that each rank makes.
template <class Schedule, class Tr, int Ranks, class R, class T, BlockSet B, class G>
class RowExchange {
  static constexpr unsigned U = Tr::unroll;
  static constexpr unsigned W = Tr::words;
  // A peer's buffers are free once it has begun this call, and packets do not order that.
  static constexpr bool signalsApart = !Schedule::sameToAll && !Tr::signals;
  using Threads = typename G::template Threads<B>;
  using Slots = impl::RowSlots<Tr, T>;
  using RowOf = Row<Tr, T, typename R::Accumulator, U, Threads>;

 public:
  MSCCLPP_DEVICE RowExchange(DeviceTeam const& team, B const& blocks, MatrixView<T const> const& in)
      : team_(team),
        blocks_(blocks),
        in_(in),
        ranks_(Ranks != 0 ? Ranks : team.size),
        session_(team, blocks, Schedule::rows(static_cast<unsigned>(ranks_))),
        threads_(blocks, team.watch),
        stretch_(RowOf::stretchOf(threads_, in.columns)) {
    auto const block = arch::blockThreads();
    auto const capacity = RowOf::capacity(threads_);
    require(in.columns <= capacity, team.watch, -1, std::uint64_t(layout::Misuse::rowColumns), capacity, in.columns);
    auto const bytes = static_cast<std::uint32_t>(in.columns * sizeof(T));
    unsigned stretches = 0;
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < U; ++i) {
      auto const first = minimum(firstByte(i), bytes);
      slots_[i] = static_cast<std::uint32_t>(Tr::slotsFor(minimum(stretch_ * Slots::chunkBytes, bytes - first)));
      place_[i] = i * block + arch::threadIndex();
      if (i * threads_.parts() * stretch_ * Slots::chunkBytes < bytes) ++stretches;
    }
    auto const room = stretches * block;
    require(room <= session_.rowSlots(), team.watch, -1, std::uint64_t(layout::Misuse::workspaceBytes),
            std::uint64_t{session_.rowSlots()} * Tr::slotBytes, std::uint64_t{room} * Tr::slotBytes);
  }

  // The whole call, once, by all threads of the blocks: epilogue(row, fetched...) for each row that this rank makes, by
  // the threads of the row; then, with RowTwoShot, it waits until what peers store here has come.
  template <class Epilogue, class... Operands>
  MSCCLPP_DEVICE void run(Epilogue const& epilogue, Operands const&... operands) {
    auto const most = Schedule::end(in_.rows, 0, ranks_);  // nobody makes more
    for (std::size_t round = 0;; round += threads_.rows()) {
      bool const last = round + threads_.rows() >= most;
      oneRound(round, last, epilogue, operands...);
      if (last) break;
      session_.endRound();
    }
    threads_.leave();
    // The peers' rows have come when they say that they are done.
    if constexpr (signalsApart) {
      session_.publish(2);
      session_.await(2);
    } else if constexpr (!Schedule::sameToAll) {
      session_.exchange(1);
    }
  }

 private:
  using Values = typename RowOf::Values;

  // Of a chunk's sums, as they lie in impl::RowLines; where there is no room for all, those of one side at a time.
  struct Halves {
    static constexpr unsigned n = Slots::elements / 2;
    struct alignas(minimum<std::size_t>(16, n * sizeof(typename R::Accumulator))) Half {
      typename R::Accumulator of[n];
    };
    static constexpr unsigned passes = sizeof(Half) > 16 ? 2 : 1;
    static_assert(impl::RowLines::mostThreads * 2 / passes * sizeof(Half) <= sizeof(impl::RowLines));

    MSCCLPP_DEVICE static Half of(Values const& values, unsigned h) {
      Half half;
      MSCCLPP_UNROLL
      for (unsigned k = 0; k < n; ++k) half.of[k] = values[h * n + k];
      return half;
    }
    MSCCLPP_DEVICE static void set(Values& values, unsigned h, Half const& half) {
      MSCCLPP_UNROLL
      for (unsigned k = 0; k < n; ++k) values[h * n + k] = half.of[k];
    }
  };

  // The row of those that `owner` makes which threads of this round take; past the end where there is none.
  MSCCLPP_DEVICE std::size_t rowAt(int owner, std::size_t round, unsigned threadsRow) const {
    return Schedule::first(in_.rows, owner, ranks_) + round + threadsRow;
  }
  MSCCLPP_DEVICE bool exists(int owner, std::size_t row) const { return row < Schedule::end(in_.rows, owner, ranks_); }

  // Of a row, where the i-th stretch of this block begins.
  MSCCLPP_DEVICE std::uint32_t firstByte(unsigned i) const {
    return (i * threads_.parts() + threads_.part()) * stretch_ * Slots::chunkBytes;
  }

  // Whether this thread's slot of the row that `owner` makes is exchanged. A block without any slot of it still hears
  // from its peers, by the first that it could have.
  MSCCLPP_DEVICE void activeSlots(int owner, std::size_t round, bool (&active)[U]) const {
    bool const here = exists(owner, rowAt(owner, round, threads_.row()));
    bool const block = exists(owner, rowAt(owner, round, threads_.blockRow())) && slots_[0] != 0;
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < U; ++i) active[i] = here && threads_.rank() < slots_[i];
    if (!block && arch::threadIndex() < Tr::slotsPerGroup) active[0] = true;
  }

  MSCCLPP_DEVICE void read(int owner, std::size_t round, Payload<W> (&payloads)[U]) const {
    auto const index = rowAt(owner, round, threads_.row());
    bool const here = exists(owner, index);
    auto const reader = readerOf<W, Tr::granule>(View<T const>(in_.row(here ? index : 0)));
    auto const window = reader.window(0);
    auto const slot = threads_.rank();
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < U; ++i) {
      payloads[i] = here && slot < slots_[i]
                        ? reader.read(window, firstByte(i) + Tr::dataOffset(slot), Tr::dataBytes(slot))
                        : Payload<W>{};
    }
  }

  MSCCLPP_DEVICE void put(std::byte* to, Payload<W> const (&payloads)[U], bool const (&active)[U]) const {
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < U; ++i) {
      session_.put(to, static_cast<unsigned>(team_.rank), place_[i], payloads[i], active[i]);
    }
  }

  template <class Epilogue, class... Operands>
  MSCCLPP_DEVICE void oneRound(std::size_t round, bool last, Epilogue const& epilogue, Operands const&... operands) {
    if (round == 0) session_.open();
    auto const index = rowAt(team_.rank, round, threads_.row());
    bool const here = exists(team_.rank, index);
    RowOf row(team_, threads_, index, in_.columns, Schedule::sameToAll ? 1 : ranks_);
    Payload<W> own[U];
    bool active[U];
    read(team_.rank, round, own);
    activeSlots(team_.rank, round, active);
    session_.beginRound();
    if constexpr (signalsApart) {
      if (round == 0) session_.publish(1);
    }
    for (int distance = 1; distance < ranks_; ++distance) {
      int const peer = team_.peerAt(distance, ranks_);
      if constexpr (Schedule::sameToAll) {
        put(team_.workspace(peer), own, active);
      } else {
        Payload<W> theirs[U];
        bool theirActive[U];
        read(peer, round, theirs);
        activeSlots(peer, round, theirActive);
        put(team_.workspace(peer), theirs, theirActive);
      }
    }
    // While the peers' are on their way.
    if (round == 0) threads_.meet();
    auto const finish = [&](auto const&... fetched) {
      if (last) session_.commit();
      session_.exchange(0);
      fold(row, own, active);
      if constexpr (signalsApart) {
        if (round == 0) session_.await(1);
      }
      if (here) epilogue(row, fetched...);
    };
    finish(fetchIf(here, row, operands)...);
  }

  template <RowOperand O>
  MSCCLPP_DEVICE static auto fetchIf(bool here, RowOf const& row, O const& operand) {
    if (here) return row.fetch(operand);
    return decltype(row.fetch(operand)){};
  }

  MSCCLPP_DEVICE void fold(RowOf& row, Payload<W> const (&own)[U], bool const (&active)[U]) {
    constexpr unsigned batch = Tr::batch;
    static_assert(U % batch == 0);
    MSCCLPP_UNROLL
    for (unsigned first = 0; first < U; first += batch) {
      Payload<W> payloads[batch];
      std::uint32_t slots[batch];
      bool awaited[batch];
      typename R::template Accumulators<W> totals[batch]{};
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < batch; ++i) {
        payloads[i] = own[first + i];
        slots[i] = place_[first + i];
        awaited[i] = active[first + i];
      }
      R::template fold<batch>(team_, session_, 0, slots, awaited, payloads, totals);
      MSCCLPP_UNROLL
      for (unsigned i = 0; i < batch; ++i) row.values(first + i) = chunkOf(first + i, totals[i]);
    }
  }

  // What a thread has of the i-th stretch, in place of what came in its slot. Chunks are aligned to each other; of
  // lines each carries less than its slots have room for.
  MSCCLPP_DEVICE Values chunkOf(unsigned i, Values const& ofSlot) {
    if constexpr (!Slots::inLines) {
      return ofSlot;
    } else {
      constexpr auto passes = Halves::passes;
      auto& lines = arch::blockShared<impl::RowLines, impl::RowLines>();
      auto* const halves = reinterpret_cast<typename Halves::Half*>(lines.bytes);
      auto const rank = threads_.rank();
      auto const begin = arch::threadIndex() - rank;  // of the row's first thread
      Values chunk{};
      MSCCLPP_UNROLL
      for (unsigned pass = 0; pass < passes; ++pass) {
        if (linesUsed_) threads_.syncBlock();
        linesUsed_ = true;
        MSCCLPP_UNROLL
        for (unsigned h = 0; h < 2; ++h) {
          auto const at = Tr::dataOffset(rank) / 8 + h;  // which half of a chunk it is
          bool const carried = rank < slots_[i] && h * 8 < Tr::dataBytes(rank) && at < 2 * stretch_;
          if (carried && (passes == 1 || at % 2 == pass)) halves[(2 * begin + at) / passes] = Halves::of(ofSlot, h);
        }
        threads_.syncBlock();
        MSCCLPP_UNROLL
        for (unsigned h = 0; h < 2; ++h) {
          if (rank < stretch_ && (passes == 1 || h == pass)) {
            Halves::set(chunk, h, halves[(2 * (begin + rank) + h) / passes]);
          }
        }
      }
      return chunk;
    }
  }

  DeviceTeam const& team_;
  B blocks_;
  MatrixView<T const> in_;
  int ranks_;
  typename Tr::template Session<B> session_;
  Threads threads_;
  std::uint32_t stretch_;   // chunks
  std::uint32_t slots_[U];  // that carry each of this block's stretches
  std::uint32_t place_[U];  // of this thread's slots in the workspace
  bool linesUsed_ = false;
};

template <RowSchedule Schedule, SessionTransport Tr, class Op, int Ranks = 0, RowGroup G = BlockPerRow,
          class Acc = void>
class AllReduceRows : public Composed<Collective::allReduce, Schedule, Tr> {
 public:
  MSCCLPP_DEVICE explicit AllReduceRows(DeviceTeam const& team) : team_(team) {}

  template <BlockSet B, class In, class Epilogue, RowOperand... Operands>
  MSCCLPP_DEVICE void operator()(B const& blocks, MatrixView<In> const& in, Epilogue const& epilogue,
                                 Operands const&... operands) const {
    using T = std::remove_const_t<In>;
    static_assert(fitsTransport<T, Tr>,
                  "AllReduceRows: elements of this type do not fit into a packet of this transport");
    requireTeamSize(team_, Ranks);
    requireAligned(team_, in.data, in.data);
    if (in.rows == 0 || in.columns == 0) return;
    using R = ReductionFor<T, Acc, Op, Ranks>;
    MatrixView<T const> const source(in.data, in.rows, in.columns, in.stride);
    RowExchange<Schedule, Tr, Ranks, R, T, B, G>(team_, blocks, source).run(epilogue, operands...);
  }

  // A launch for rows of so many elements of T, by up to `maxBlocks` blocks: as many threads as a row has work for.
  // With the schedule RowTwoShot, `rows` are those of the rank that makes most.
  template <Number T>
  static constexpr LaunchShape shape(std::size_t rows, std::size_t columns, unsigned maxBlocks) {
    using Slots = impl::RowSlots<Tr, T>;
    auto shape = G::template shape<Slots>(Slots::holders(columns));
    auto const wanted = ceilDiv<std::uint64_t>(rows, G::rowsOfBlock(shape.threads)) * shape.clusterBlocks;
    auto const most = maxBlocks / shape.clusterBlocks * shape.clusterBlocks;
    shape.blocks = static_cast<unsigned>(minimum<std::uint64_t>(wanted, most));
    if (shape.blocks == 0) shape.blocks = shape.clusterBlocks;
    return shape;
  }

 private:
  DeviceTeam const& team_;
};

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp
