// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank's part of an exchange in which every rank sends several messages to every rank, the own one included, each
// pair's of bytes of their own, with what must have come out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "mscclpp/collectives/message_group.hpp"
#include "mscclpp/host/gpu_buffer.hpp"

namespace mscclpp_test {

using namespace mscclpp;

class MessageExchange {
 public:
  // Of the sizes of messages one follows from both ranks and the message's number.
  MessageExchange(PointToPoint const& links, std::vector<std::size_t> sizes, std::size_t each = 3)
      : rank_(links.rank()), size_(links.size()), each_(each), sizes_(std::move(sizes)) {
    for (int peer = 0; peer < size_; ++peer) {
      for (std::size_t k = 0; k < each_; ++k) {
        out_.emplace_back(links.device(), bytes(rank_, peer, k) + 1);
        in_.emplace_back(links.device(), bytes(peer, rank_, k) + 1);
      }
    }
    renew(0);
  }

  // Messages of the same sizes with other bytes, of which none has come.
  void renew(std::size_t turn) {
    turn_ = turn;
    for (int peer = 0; peer < size_; ++peer) {
      for (std::size_t k = 0; k < each_; ++k) {
        std::vector<std::uint8_t> values(bytes(rank_, peer, k) + 1);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(rank_, peer, k, i);
        copyToDevice(out_[at(peer, k)], std::span<std::uint8_t const>(values));
        in_[at(peer, k)].fill(untouched);
      }
    }
  }

  void addTo(MessageGroup& group) const {
    for (std::size_t k = 0; k < each_; ++k) {
      for (int peer = 0; peer < size_; ++peer) {
        group.send(out_[at(peer, k)].data(), bytes(rank_, peer, k), peer);
        group.recv(in_[at(peer, k)].data(), bytes(peer, rank_, k), peer);
      }
    }
  }

  // How many bytes, of messages or behind them.
  std::size_t wrong() const {
    std::size_t count = 0;
    for (int peer = 0; peer < size_; ++peer) {
      for (std::size_t k = 0; k < each_; ++k) {
        auto const values = copyToHost(in_[at(peer, k)]);
        for (std::size_t i = 0; i + 1 < values.size(); ++i) count += values[i] == value(peer, rank_, k, i) ? 0 : 1;
        count += values.back() == untouched ? 0 : 1;
      }
    }
    return count;
  }

 private:
  static constexpr std::uint8_t untouched = 0x5a;

  std::size_t at(int peer, std::size_t k) const { return static_cast<std::size_t>(peer) * each_ + k; }
  std::size_t bytes(int from, int to, std::size_t k) const {
    return sizes_[(static_cast<std::size_t>(from) + 2 * static_cast<std::size_t>(to) + 3 * k) % sizes_.size()];
  }
  std::uint8_t value(int from, int to, std::size_t k, std::size_t i) const {
    return static_cast<std::uint8_t>(static_cast<std::size_t>(from) * 31 + static_cast<std::size_t>(to) * 7 + k * 3 +
                                     turn_ * 11 + i % 251);
  }

  int rank_;
  int size_;
  std::size_t each_;
  std::vector<std::size_t> sizes_;
  std::size_t turn_ = 0;
  std::vector<GpuBuffer<std::uint8_t>> out_, in_;
};

}  // namespace mscclpp_test
