// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory in which tokens travel to experts and back, as kernels receive it, by value: what it is made for, what
// lies where, and where each rank's is mapped here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/bits.hpp"
#include "mscclpp/base/config.hpp"
#include "mscclpp/layout/tile_flags_handle.hpp"
#include "mscclpp/layout/window_handle.hpp"

namespace mscclpp::layout {

// How rows travel. memory: as they are, some with a flag behind a fence. packets: as LL128 lines, of which each tells
// by itself that it has come; for links that deliver 128 bytes whole. automatic: packets of few tokens over such links.
enum class ExpertTransport : std::uint8_t { automatic, memory, packets };

// What it is made for; the same on every rank. Rank r has the experts from r * ceil(experts / ranks) on.
struct ExpertLimits {
  std::uint32_t experts = 0;       // of all ranks, 1 to 512
  std::uint32_t topK = 0;          // of a token, at most; 1 to 16
  std::uint32_t tokens = 0;        // of a rank in a call, at most
  std::uint32_t hidden = 0;        // elements of a token
  std::uint32_t elementBytes = 2;  // of the largest type that travels
  std::uint32_t blocks = 132;      // of the largest grid
  std::uint32_t gates = 0;         // tiles of placed rows that kernels wait for (experts/dispatch.hpp)
  bool partOfEach = false;         // room at home for a part from each of a token's experts, not from each rank
  ExpertTransport transport = ExpertTransport::automatic;
  std::uint32_t variant = 0;  // whatever else all ranks shall agree on

  static constexpr std::uint32_t mostExperts = 512;
  static constexpr std::uint32_t mostTopK = 16;
  static constexpr std::uint32_t mostPacketTokens = 4096;  // a packet has 16 bits for a token's place at its expert

  friend constexpr bool operator==(ExpertLimits const&, ExpertLimits const&) = default;
};

// Offsets in bytes from the start of a rank's memory, the same on every rank.
struct ExpertsLayout {
  ExpertLimits limits;
  std::uint32_t ranks;
  std::uint32_t perRank;       // experts
  std::uint32_t tileTokens;    // rows of one source that arrive together
  std::uint32_t pieceColumns;  // of a row, that one warp moves
  std::uint32_t pieces;        // of a row
  std::uint32_t rowBytes;      // from one row to the next
  std::uint32_t partBytes;     // from one part to the next
  std::uint32_t packets;       // 1: rows and parts are lines of packets (algorithms/experts/row_lines.hpp)
  std::uint32_t headLines;     // of a row of packets, ahead of those of its pieces
  std::uint32_t pieceLines;    // of each piece, at most
  std::uint32_t scalesOfRow;
  std::uint32_t partsOfToken;
  std::uint64_t rows;    // [source][slot], as they came
  std::uint64_t scales;  // float [source][slot][scalesOfRow], of quantised rows; packets carry them
  std::uint64_t heads;   // ExpertRow [source][slot]
  std::uint64_t counts;  // LL8 [source][perRank + 1]: tokens for each expert, and rows
  std::uint64_t parts;   // [token][partsOfToken], on their way home
  std::uint64_t total;

  static constexpr std::uint32_t scaleColumns = 128;  // that share a scale
  // Of a rank: more are many, as where a prompt is read. Packets save the fence, the flag and the wait for both, some 8
  // us on H100, and are 7 % more bytes, of which 4 H100 send those of a token of 7,168 bfloat16 in 0.17 us: as much for
  // some 700 tokens.
  static constexpr std::uint32_t fewTokens = 512;

  // Of packets: a warp takes eight lines in a step, which hold 60 words of 16 bytes, or seven groups with their scales.
  static constexpr std::uint32_t lineBytes = 128;
  static constexpr std::uint32_t stepLines = 8;
  static constexpr std::uint32_t stepWords = 60;
  static constexpr std::uint32_t stepGroups = 7;
  static constexpr std::uint32_t entriesOfLine = 14;  // of the first of a row

  // `wholeLines`: every link between the ranks delivers 128 bytes whole.
  static constexpr ExpertsLayout make(std::uint32_t ranks, ExpertLimits const& limits, bool wholeLines = true);

  // Of so many blocks, those that send while the others place. Of many tokens half of them load the links, and memory
  // has time for the rows that come; of few tokens all blocks send, and then place.
  MSCCLPP_HOST_DEVICE constexpr std::uint32_t senders(std::uint32_t blocks) const {
    return limits.tokens <= fewTokens ? blocks : ceilDiv(blocks, 2u);
  }

  // Bytes from the beginning of a row or part of packets to its piece's.
  MSCCLPP_HOST_DEVICE constexpr std::uint32_t pieceOfPart(std::uint32_t number) const {
    return number * pieceLines * lineBytes;
  }
  MSCCLPP_HOST_DEVICE constexpr std::uint32_t pieceOfRow(std::uint32_t number) const {
    return headLines * lineBytes + pieceOfPart(number);
  }

  // Numbers of flags, in rounds that dispatch: of a tile of a source's rows, of a tile of placed rows. Packets have
  // none of the former.
  MSCCLPP_HOST_DEVICE constexpr std::uint32_t tilesOfSource() const { return ceilDiv(limits.tokens, tileTokens); }
  MSCCLPP_HOST_DEVICE constexpr std::uint32_t rowFlag(std::uint32_t source, std::uint32_t tile) const {
    return source * tilesOfSource() + tile;
  }
  MSCCLPP_HOST_DEVICE constexpr std::uint32_t gateFlag(std::uint32_t gate) const {
    return (packets != 0 ? 0 : rowFlag(ranks, 0)) + gate;
  }
  constexpr std::uint32_t flags() const {
    auto const dispatch = gateFlag(limits.gates);
    auto const combine = packets != 0 ? 1 : limits.tokens;  // in rounds that combine, one for each token
    return dispatch > combine ? dispatch : combine;
  }
};

// One of a token's experts, of the rank that got the row.
struct alignas(16) ExpertEntry {
  std::int32_t expert;     // among the rank's; -1: the expert is another rank's
  std::uint32_t position;  // among those of the same source for the same expert
  float weight;
  std::uint32_t row;  // where the receiver has placed it; noExpertRow: nowhere
};

// What travels with a row.
struct alignas(16) ExpertRow {
  std::uint32_t token;  // its number at its source
  std::uint32_t part;   // of the token, which its experts here make at home
  std::uint32_t row;    // where the receiver has placed it once for all of them; noExpertRow: not in that way
  ExpertEntry entries[ExpertLimits::mostTopK];
};

inline constexpr std::uint32_t noExpertRow = 0xffffffffu;

constexpr ExpertsLayout ExpertsLayout::make(std::uint32_t ranks, ExpertLimits const& limits, bool wholeLines) {
  constexpr std::uint64_t line = 128;
  // A warp moves a row of 4 KiB in about the time that its flag takes; decoding, all warps shall have something to do.
  constexpr std::uint32_t pieceBytes = 4096;
  ExpertsLayout l{};
  l.limits = limits;
  l.ranks = ranks;
  l.perRank = ceilDiv(limits.experts, ranks);
  bool const few = limits.tokens <= fewTokens;
  l.tileTokens = few ? 4 : 32;
  auto const pieces = few ? ceilDiv(limits.hidden * limits.elementBytes, pieceBytes) : 1;
  l.pieceColumns = roundUp(ceilDiv(limits.hidden, pieces), scaleColumns);
  l.pieces = ceilDiv(limits.hidden, l.pieceColumns);
  l.packets =
      limits.transport == ExpertTransport::automatic ? wholeLines && few : limits.transport == ExpertTransport::packets;
  l.headLines = limits.topK <= entriesOfLine ? 1 : 2;
  auto const plainSteps = ceilDiv(l.pieceColumns * limits.elementBytes, stepWords * 16);
  auto const scaledSteps = ceilDiv(l.pieceColumns / scaleColumns, stepGroups);
  l.pieceLines = stepLines * (plainSteps > scaledSteps ? plainSteps : scaledSteps);
  l.rowBytes = roundUp(limits.hidden * limits.elementBytes, std::uint32_t{16});
  l.partBytes = l.rowBytes;
  if (l.packets != 0) {
    l.partBytes = l.pieces * l.pieceLines * lineBytes;
    l.rowBytes = l.headLines * lineBytes + l.partBytes;
  }
  l.scalesOfRow = ceilDiv(limits.hidden, scaleColumns);
  auto const ofRanks = limits.topK < ranks ? limits.topK : ranks;
  l.partsOfToken = limits.partOfEach ? limits.topK : ofRanks;
  auto const slots = std::uint64_t{ranks} * limits.tokens;
  l.rows = 0;
  l.scales = roundUp<std::uint64_t>(l.rows + slots * l.rowBytes, line);
  auto const scalesOfSlot = l.packets != 0 ? 0 : l.scalesOfRow;
  l.heads = roundUp<std::uint64_t>(l.scales + slots * scalesOfSlot * sizeof(float), line);
  l.counts = roundUp<std::uint64_t>(l.heads + slots * sizeof(ExpertRow), line);
  l.parts = roundUp<std::uint64_t>(l.counts + std::uint64_t{ranks} * (l.perRank + 1) * sizeof(std::uint64_t), line);
  l.total = l.parts + std::uint64_t{limits.tokens} * l.partsOfToken * l.partBytes;
  return l;
}

struct ExpertsHandle {
  ExpertsLayout layout;
  WindowHandle window;
  TileFlagsHandle flags;
  std::int32_t const* failed;  // of each rank, not 0: it has failed (host/fused/experts.hpp); null: none
};

}  // namespace mscclpp::layout
