// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention over the keys and values of all ranks, which have a share of the tokens each, in one kernel: some blocks
// push the own keys and values to all ranks, tile by tile, while the others go through all tiles, the own ones first,
// and wait for each tile's flag alone. So what a query gathers stays in its registers from the first key to the last,
// whoever the key is from; there are no parts of ranks to be merged.
//
// In a block that attends, the first warp loads tiles of keys and values into block-shared memory, ahead of the others,
// of which each has a query. The softmax is made as keys come: with each larger score, what there is so far shrinks.
//
// From compute capability 9.0, for its bulk copies. One head; scores, sums and output are floats.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/team.hpp"
#include "mscclpp/host/tile_flags.hpp"
#include "mscclpp/launch/launch.hpp"
#include "mscclpp/mscclpp.hpp"
#include "mscclpp/tiles.hpp"

namespace gated_attention {

using namespace mscclpp;

inline constexpr unsigned tileRows = 16;
inline constexpr unsigned stages = 2;  // tiles in block-shared memory

inline namespace MSCCLPP_BACKEND {

// What the loading warp and the others share.
template <unsigned Width>
struct Stage {
  alignas(16) bf16 keys[tileRows * Width];
  alignas(16) bf16 values[tileRows * Width];
  BulkBarrier loaded, used;
};

// A query, by a warp: each lane has some columns of it and of what it gathers.
template <unsigned Width>
class Query {
  static_assert(Width % 32 == 0, "Query: each lane has as many columns");

 public:
  MSCCLPP_DEVICE explicit Query(View<bf16 const> const& row) {
    float const scale = 1 / std::sqrt(static_cast<float>(Width));
    each([&](unsigned i, unsigned column) { query_[i] = static_cast<float>(row.data[column]) * scale; });
  }

  MSCCLPP_DEVICE void attend(bf16 const* key, bf16 const* value) {
    float part = 0;
    each([&](unsigned i, unsigned column) { part += query_[i] * static_cast<float>(key[column]); });
    float const score = reduce(thisWarp(), part, Sum{});
    float const largest = std::fmax(largest_, score);
    float const shrunk = std::exp(largest_ - largest);
    float const weight = std::exp(score - largest);
    each([&](unsigned i, unsigned column) {
      gathered_[i] = gathered_[i] * shrunk + weight * static_cast<float>(value[column]);
    });
    weights_ = weights_ * shrunk + weight;
    largest_ = largest;
  }

  MSCCLPP_DEVICE void store(View<float> const& row) const {
    each([&](unsigned i, unsigned column) { row.data[column] = gathered_[i] / weights_; });
  }

 private:
  template <class F>
  MSCCLPP_DEVICE static void each(F const& f) {
    MSCCLPP_UNROLL
    for (unsigned i = 0; i < Width / 32; ++i) f(i, thisWarp().rank() + 32 * i);
  }

  float query_[Width / 32];
  float gathered_[Width / 32] = {};
  float weights_ = 0;
  float largest_ = -INFINITY;
};

// ---- the kernel -----------------------------------------------------------------------------------------------------

template <unsigned Width>
struct GatedAttention {
  static constexpr unsigned maxThreads = 288;
  TileGrid tiles;  // of the keys of all ranks, one across, and of the values alike
  unsigned movers;

  MSCCLPP_DEVICE void operator()(MatrixView<bf16 const> const& queries, bf16 const* ownKeys, bf16 const* ownValues,
                                 MatrixView<float> const& out, layout::WindowHandle const& window,
                                 DeviceTileFlags const& flags) const {
    auto const round = flags.begin(thisGrid());
    SymmetricMatrix<bf16> const keys(window, 0, tiles.rows, Width);
    SymmetricMatrix<bf16> const values(window, std::uint64_t{tiles.rows} * Width * sizeof(bf16), tiles.rows, Width);
    values.check(flags.watch, flags.size);
    Roles{movers}.split(
        thisGrid(),
        [&](auto const& blocks) {
          for (auto const& tile : tilesOf<OwnOnly<>>(tiles, flags.rank, blocks)) {
            auto const own = std::size_t{tile.shardRow} * Width;
            push(tile, ownKeys + own, ownValues + own, keys, values, flags, round);
          }
        },
        [&](auto const& blocks) { attend(blocks, queries, out, keys.own(), values.own(), flags, round); });
    round.end();
  }

 private:
  using Keys = MatrixView<bf16>;

  template <class R>
  MSCCLPP_DEVICE void push(TileAt const& tile, bf16 const* ownKeys, bf16 const* ownValues,
                           SymmetricMatrix<bf16> const& keys, SymmetricMatrix<bf16> const& values,
                           DeviceTileFlags const& flags, R const& round) const {
    auto const block = thisBlock();
    for (int i = 0; i < flags.size; ++i) {
      int const peer = (flags.rank + flags.size - i) % flags.size;  // who wants these first comes first
      if (tiles.rowsOf(peer) == 0) continue;                        // no tokens, no queries
      if (block.rank() == 0) round.ready(peer);
      block.sync();
      copy(block, keys.of(peer).at(tile.row, 0), ownKeys, bytesOf(tile));
      copy(block, values.of(peer).at(tile.row, 0), ownValues, bytesOf(tile));
      block.sync();
      if (block.rank() == 0) round.arrive(peer, tile.number);
    }
  }

  // A query for each warp but the first, as often as there are some left.
  template <class B, class R>
  MSCCLPP_DEVICE void attend(B const& blocks, MatrixView<bf16 const> const& queries, MatrixView<float> const& out,
                             Keys const& keys, Keys const& values, DeviceTileFlags const& flags, R const& round) const {
    auto const block = thisBlock();
    auto const atOnce = block.size() / 32 - 1;
    auto const first = blocks.blockRank() * atOnce;
    auto const step = blocks.blockCount() * atOnce;
    struct Stages {
      Stage<Width> stage[stages];
    };
    auto& shared = arch::blockShared<Stages, GatedAttention>();
    for (auto& stage : shared.stage) {
      if (block.rank() != 0) continue;
      stage.loaded.init(1);
      stage.used.init(atOnce);
    }
    block.sync();
    Roles{1}.split(
        block,
        [&](auto const& warp) {
          if (warp.rank() != 0) return;
          unsigned turn = 0;
          for (auto row = first; row < queries.rows; row += step) {
            for (auto const& tile : tilesOf<OwnFirst<>>(tiles, flags.rank, block)) {
              auto& stage = shared.stage[turn % stages];
              if (turn >= stages) stage.used.wait(flags.watch, parityOf(turn - stages));
              round.await(tile.number, /*arrivals=*/1);
              bulkFence();  // peers have stored the rows
              auto const bytes = static_cast<std::uint32_t>(bytesOf(tile));
              stage.loaded.arriveExpect(2 * bytes);
              bulkLoad(stage.keys, keys.at(tile.row, 0), bytes, stage.loaded);
              bulkLoad(stage.values, values.at(tile.row, 0), bytes, stage.loaded);
              ++turn;
            }
          }
        },
        [&](auto const& warps) {
          unsigned turn = 0;
          for (auto row = first; row < queries.rows; row += step) {
            auto const mine = row + warps.rank() / 32;
            bool const is = mine < queries.rows;
            Query<Width> query(queries.row(is ? mine : row));
            for (auto const& tile : tilesOf<OwnFirst<>>(tiles, flags.rank, block)) {
              auto& stage = shared.stage[turn % stages];
              stage.loaded.wait(flags.watch, parityOf(turn));
              for (unsigned k = 0; is && k < tile.rows; ++k) {
                query.attend(stage.keys + k * Width, stage.values + k * Width);
              }
              thisWarp().sync();
              if (thisWarp().rank() == 0) stage.used.arrive();
              ++turn;
            }
            if (is) query.store(out.row(mine));
          }
        });
  }

  MSCCLPP_DEVICE static unsigned parityOf(unsigned turn) { return turn / stages % 2; }
  MSCCLPP_DEVICE static std::uint64_t bytesOf(TileAt const& tile) {
    return std::uint64_t{tile.rows} * Width * sizeof(bf16);
  }
};

// ---- its use --------------------------------------------------------------------------------------------------------

struct Case {
  unsigned tokens;  // of all ranks
  unsigned movers = 1;
  unsigned blocks = 3;     // movers included
  unsigned threads = 160;  // a query for each 32 but the first, so at least 64
  unsigned rounds = 2;
};

// From -1 to 1, of which bf16 has each exactly.
inline float element(unsigned kind, unsigned round, std::size_t token, std::size_t column) {
  auto const mixed = (token * 2654435761u ^ column * 2246822519u) + (kind + 3 * round) * 3266489917u;
  return static_cast<float>((mixed >> 8) % 65) / 32 - 1;
}

template <unsigned Width>
std::vector<bf16> matrix(unsigned kind, unsigned round, std::size_t first, std::size_t count) {
  std::vector<bf16> elements;
  for (auto token = first; token < first + count; ++token) {
    for (std::size_t c = 0; c < Width; ++c) elements.emplace_back(element(kind, round, token, c));
  }
  return elements;
}

// The output of a token, in double.
template <unsigned Width>
std::vector<double> expectedOf(unsigned round, std::size_t token, std::size_t tokens) {
  std::vector<double> scores, out(Width);
  for (std::size_t k = 0; k < tokens; ++k) {
    double score = 0;
    for (std::size_t c = 0; c < Width; ++c) score += double{element(0, round, token, c)} * element(1, round, k, c);
    scores.push_back(score / std::sqrt(double{Width}));
  }
  auto const largest = *std::max_element(scores.begin(), scores.end());
  double weights = 0;
  for (std::size_t k = 0; k < tokens; ++k) {
    auto const weight = std::exp(scores[k] - largest);
    weights += weight;
    for (std::size_t c = 0; c < Width; ++c) out[c] += weight * element(2, round, k, c);
  }
  for (auto& value : out) value /= weights;
  return out;
}

// On every rank; throws where an output is off by more than 1e-5, some 80 roundings of a float near 1.
template <unsigned Width>
void run(Communicator& communicator, Case const& test) {
  auto const device = communicator.device();
  auto const rank = communicator.rank();
  TileGrid const tiles{test.tokens, Width, tileRows, Width, communicator.size()};
  std::size_t const first = tiles.firstRow(rank), own = tiles.rowsOf(rank);
  auto const room = std::max<std::size_t>(own * Width, 1);
  GpuBuffer<bf16> const queries(device, room), keys(device, room), values(device, room);
  GpuBuffer<float> const out(device, room);
  GpuBuffer<bf16> const all(device, std::size_t{2} * test.tokens * Width);
  MemoryWindow const window(communicator, all.data(), all.bytes());
  TileFlags const flags(communicator, {.tiles = tiles.count(), .blocks = test.blocks});
  Stream const stream(device);
  for (unsigned round = 0; round < test.rounds; ++round) {
    for (unsigned kind = 0; auto const* const buffer : {&queries, &keys, &values}) {
      copyToDevice(*buffer, std::span<bf16 const>(matrix<Width>(kind++, round, first, own)));
    }
    launch(stream, {.blocks = test.blocks, .threads = test.threads}, GatedAttention<Width>{tiles, test.movers},
           MatrixView<bf16 const>{queries.data(), own, Width}, keys.data(), values.data(),
           MatrixView{out.data(), own, Width}, window.deviceHandle(), flags.deviceHandle());
    communicator.synchronize(stream);
    auto const found = copyToHost(out);
    for (std::size_t i = 0; i < own; ++i) {
      auto const expected = expectedOf<Width>(round, first + i, test.tokens);
      for (std::size_t c = 0; c < Width; ++c) {
        auto const value = found[i * Width + c];
        if (std::abs(value - expected[c]) <= 1e-5) continue;
        throw Error(ErrorCode::internalError, "rank " + std::to_string(rank) + " has " + std::to_string(value) +
                                                  " for token " + std::to_string(first + i) + ", column " +
                                                  std::to_string(c) + ", not " + std::to_string(expected[c]));
      }
    }
  }
  communicator.bootstrap()->barrier();
}

}  // namespace MSCCLPP_BACKEND
}  // namespace gated_attention
