// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jit/background.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/own_thread.hpp"

namespace mscclpp::jit {
namespace {

std::atomic<bool> ending{false};

class Worker {
 public:
  Worker() : thread_(startOwnThread([this] { work(); })) {}
  ~Worker() {
    if (!ownProcess_) {
      thread_.detach();
      return;
    }
    {
      std::lock_guard const lock(mutex_);
      ending.store(true);
    }
    wake_.notify_all();
    thread_.join();
  }

  void add(std::function<void()> task) {
    if (!ownProcess_) return;
    {
      std::lock_guard const lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake_.notify_all();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return ending.load() || !tasks_.empty(); });
      if (ending.load()) return;
      auto const task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  OwnProcess ownProcess_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_;
};

}  // namespace

void inBackground(std::function<void()> task) {
  static Worker worker;
  worker.add(std::move(task));
}

bool isEnding() noexcept { return ending.load(); }

}  // namespace mscclpp::jit
