// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who sends to whom, told through the store of the group, so that a rank can receive from any: two requests to the
// store a message. Messages between two ranks arrive in the order in which they were sent, whoever asks for them.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace mscclpp::torch {

class SenderNews {
 public:
  SenderNews(c10::intrusive_ptr<c10d::Store> store, int rank) : store_(std::move(store)), rank_(rank) {}

  void sends(int to) {
    auto const number = store_->add(prefix(to), 1);
    store_->set(prefix(to) + std::to_string(number), std::to_string(rank_));
  }
  void receives(int from) { ++of_[from].received; }
  // The rank of a message here that nobody receives yet, which then counts as received.
  std::optional<int> next() {
    for (;;) {
      auto const key = prefix(rank_) + std::to_string(read_ + 1);
      if (!store_->check({key})) return std::nullopt;
      int const from = std::stoi(store_->get_to_str(key));
      store_->deleteKey(key);
      ++read_;
      auto& news = of_[from];
      if (++news.sent <= news.received) continue;
      ++news.received;
      return from;
    }
  }

 private:
  struct Counts {
    std::int64_t sent = 0;      // as far as read
    std::int64_t received = 0;  // or being received
  };
  static std::string prefix(int to) { return "mscclpp/messages/" + std::to_string(to) + "/"; }

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  std::int64_t read_ = 0;
  std::map<int, Counts> of_;
};

}  // namespace mscclpp::torch
