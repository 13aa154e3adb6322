// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Events that calls borrow, since to make and destroy one costs more than to record it. From any threads.
#pragma once

#include <c10/core/Event.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace mscclpp::torch {

class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  // Of one device.
  explicit EventPool(c10::DeviceType type) : type_(type) {}

  class Borrowed {
   public:
    Borrowed(std::shared_ptr<EventPool> pool, c10::Event event) : pool_(std::move(pool)), event_(std::move(event)) {}
    Borrowed(Borrowed&&) = default;
    Borrowed& operator=(Borrowed&&) = delete;
    ~Borrowed() {
      if (pool_) pool_->giveBack(std::move(event_));
    }
    c10::Event* operator->() { return &event_; }

   private:
    std::shared_ptr<EventPool> pool_;
    c10::Event event_;
  };

  Borrowed borrow() {
    std::unique_lock lock(mutex_);
    if (free_.empty()) {
      lock.unlock();
      return {shared_from_this(), c10::Event(type_)};
    }
    auto event = std::move(free_.back());
    free_.pop_back();
    return {shared_from_this(), std::move(event)};
  }

 private:
  void giveBack(c10::Event event) {
    std::lock_guard const lock(mutex_);
    free_.push_back(std::move(event));
  }

  c10::DeviceType type_;
  std::mutex mutex_;
  std::vector<c10::Event> free_;
};

}  // namespace mscclpp::torch
