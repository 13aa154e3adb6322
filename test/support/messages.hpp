// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random patterns of messages between pairs of ranks, run by kernels, with every byte compared.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "mscclpp/algorithms/collective/send_recv.hpp"
#include "mscclpp/host/point_to_point.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

namespace mscclpp_test {
inline namespace MSCCLPP_BACKEND {

// The same messages `times` over.
template <class P>
struct MessageKernel {
  MSCCLPP_DEVICE void operator()(layout::PointToPointHandle const& links, layout::Messages const& messages,
                                 int times) const {
    SendRecv<P> const exchange{links};
    for (int i = 0; i < times; ++i) exchange(thisGrid(), messages);
  }
};

struct MessagePattern {
  // Bytes from one rank to another; negative: no message.
  std::vector<std::vector<std::int64_t>> bytes;

  static MessagePattern random(int ranks, std::uint64_t seed, std::vector<std::int64_t> const& sizes) {
    std::mt19937_64 engine(seed);
    MessagePattern pattern;
    pattern.bytes.assign(static_cast<std::size_t>(ranks),
                         std::vector<std::int64_t>(static_cast<std::size_t>(ranks), -1));
    for (auto& row : pattern.bytes) {
      for (auto& one : row) {
        if (engine() % 3 != 0) one = sizes[engine() % sizes.size()];
      }
    }
    return pattern;
  }
};

inline std::uint8_t messageByte(std::uint64_t seed, int from, int to, std::size_t i) {
  return static_cast<std::uint8_t>(
      (seed * 31 + static_cast<std::size_t>(from) * 7 + static_cast<std::size_t>(to) * 3 + i) * 0x9E3779B97F4A7C15u >>
      56);
}

// One rank's buffers of a pattern, and the messages of its kernel. `offset`: bytes by which they are off.
struct MessageBuffers {
  MessageBuffers(Rank const& rank, MessagePattern const& pattern, std::uint64_t seed, std::size_t offset)
      : rank_(rank.rank), seed_(seed), offset_(offset) {
    for (int peer = 0; peer < rank.size; ++peer) {
      auto const own = static_cast<std::size_t>(rank.rank);
      auto const other = static_cast<std::size_t>(peer);
      auto const out = pattern.bytes[own][other];
      auto const in = pattern.bytes[other][own];
      sent_.push_back(buffer(rank, out));
      received_.push_back(buffer(rank, in));
      if (out >= 0) {
        std::vector<std::uint8_t> data(static_cast<std::size_t>(out));
        for (std::size_t i = 0; i < data.size(); ++i) data[i] = messageByte(seed, rank.rank, peer, i);
        copyToDevice(sent_.back(), std::span<std::uint8_t const>(data), offset);
        messages.addSend(peer, sent_.back().data() + offset, static_cast<std::uint64_t>(out));
      }
      if (in >= 0) {
        messages.addRecv(peer, received_.back().data() + offset, static_cast<std::uint64_t>(in));
      }
      sizes_.push_back(in);
    }
  }

  void check() const {
    for (std::size_t peer = 0; peer < received_.size(); ++peer) {
      auto expected = std::vector<std::uint8_t>(received_[peer].size(), 0x5a);
      for (std::int64_t i = 0; i < sizes_[peer]; ++i) {
        expected[offset_ + static_cast<std::size_t>(i)] =
            messageByte(seed_, static_cast<int>(peer), rank_, static_cast<std::size_t>(i));
      }
      // Ranks take turns while they copy, and doctest keeps one stack of messages for all.
      auto const different = countDifferent(copyToHost(received_[peer]), expected);
      CHECK_MESSAGE(different == 0, "from rank ", peer, " to rank ", rank_, ", ", sizes_[peer], " bytes");
    }
  }

  layout::Messages messages{};

 private:
  GpuBuffer<std::uint8_t> buffer(Rank const& rank, std::int64_t bytes) const {
    // Guards on both sides must stay as they are.
    GpuBuffer<std::uint8_t> made(rank.device, offset_ + 8 + static_cast<std::size_t>(std::max<std::int64_t>(bytes, 0)));
    made.fill(0x5a);
    return made;
  }

  int rank_;
  std::uint64_t seed_;
  std::size_t offset_;
  std::vector<GpuBuffer<std::uint8_t>> sent_;
  std::vector<GpuBuffer<std::uint8_t>> received_;
  std::vector<std::int64_t> sizes_;
};

template <class P>
void startMessages(Rank const& rank, PointToPoint const& links, MessageBuffers const& buffers, unsigned blocks,
                   unsigned threads, bool overlap = false, int times = 1) {
  launch(rank.stream, {.blocks = blocks, .threads = threads, .overlapPrevious = overlap}, MessageKernel<P>{},
         links.deviceHandle(), buffers.messages, times);
}

}  // namespace MSCCLPP_BACKEND
}  // namespace mscclpp_test
