// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Who wants to know which of several things, by their numbers, have been lost for good, and which have: ranks, devices.
#pragma once

#include <algorithm>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/own_thread.hpp"

namespace mscclpp {

class LossListeners {
 public:
  using Listener = std::function<void(int which, std::string const& reason)>;

  // Hears also of what was lost before. Until what this returns is destroyed, which waits for a call that runs.
  std::shared_ptr<void> add(Listener listener) { return std::make_shared<Listening>(state_, std::move(listener)); }
  // Each is told of once, with its first reason.
  void tell(int which, std::string const& reason) {
    std::lock_guard const lock(state_->mutex);
    auto& lost = state_->lost;
    if (std::any_of(lost.begin(), lost.end(), [&](auto const& one) { return one.first == which; })) return;
    lost.emplace_back(which, reason);
    for (auto const* const one : state_->listeners) (*one)(which, reason);
  }

 private:
  struct State {
    std::mutex mutex;  // held during calls
    std::vector<std::pair<int, std::string>> lost;
    std::list<Listener const*> listeners;
  };

  class Listening {
   public:
    Listening(std::shared_ptr<State> state, Listener listener)
        : state_(std::move(state)), listener_(std::move(listener)) {
      std::lock_guard const lock(state_->mutex);
      for (auto const& [which, reason] : state_->lost) listener_(which, reason);
      state_->listeners.push_back(&listener_);
    }
    ~Listening() {
      // In a child of fork() nobody calls, and the lock may be held for ever.
      if (!process_) return;
      std::lock_guard const lock(state_->mutex);
      state_->listeners.remove(&listener_);
    }
    Listening(Listening const&) = delete;
    Listening& operator=(Listening const&) = delete;

   private:
    OwnProcess const process_;
    std::shared_ptr<State> const state_;
    Listener const listener_;
  };

  std::shared_ptr<State> const state_ = std::make_shared<State>();
};

}  // namespace mscclpp
