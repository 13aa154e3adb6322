// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "copy_engine.hpp"

#include <atomic>
#include <cstring>
#include <deque>
#include <vector>

#include "checker/checker.hpp"
#include "machine.hpp"

namespace mscclpp::sim {
namespace {

class SimCopyEngine final : public CopyEngine {
 public:
  explicit SimCopyEngine(int device) : device_(device) {}

  void copy(void* dst, void const* src, std::size_t bytes) override {
    post({dst, src, bytes, 0, false, false, {}, {}});
  }
  void signal(std::uint64_t* word, std::uint64_t value) override {
    post({word, nullptr, sizeof *word, value, true, false, {}, {}});
  }
  std::uint64_t posted() const noexcept override { return posted_; }

  std::uint64_t progress() override {
    std::vector<Post*> eligible;
    bool allDone = true;
    for (auto& post : posts_) {
      if (!post.done && (!post.isSignal || allDone)) eligible.push_back(&post);
      allDone = allDone && post.done;
    }
    if (!eligible.empty()) {
      auto& machine = Machine::instance();
      auto const count = static_cast<std::uint32_t>(eligible.size());
      auto const chosen = machine.deterministic() ? machine.scheduler().choose(ChoiceKind::lateCopy, count) : 0u;
      carryOut(*eligible[chosen]);
    }
    auto* const agent = proxyAgent();
    for (; !posts_.empty() && posts_.front().done; posts_.pop_front(), ++done_) {
      auto& post = posts_.front();
      ended_.join(post.end);
      if (agent == nullptr) continue;
      Machine::instance().checker()->acquire(*agent, post.end);
      if (post.agent != nullptr) agents_.push_back(post.agent);
    }
    return done_;
  }

 private:
  struct Post {
    void* dst;
    void const* src;
    std::size_t bytes;
    std::uint64_t value;
    bool isSignal;
    bool done;
    Clock begin;  // what the proxy knew
    Clock end;    // what the copy knows once it is done
    Agent* agent = nullptr;
  };

  // The running proxy, as the checker knows it.
  static Agent* proxyAgent() {
    auto* const task = currentTask();
    return task == nullptr || Machine::instance().checker() == nullptr ? nullptr : task->agent;
  }

  void post(Post post) {
    if (auto* const agent = proxyAgent()) post.begin = Machine::instance().checker()->release(*agent);
    posts_.push_back(std::move(post));
    ++posted_;
  }

  void carryOut(Post& post) {
    auto& machine = Machine::instance();
    Agent* agent = nullptr;
    if (auto* const checker = machine.checker()) {
      // One that the proxy knows to have ended may be another copy now; others would pass for ordered with it.
      if (agents_.empty()) {
        agent = &checker->addProxyCopies(device_);
      } else {
        agent = agents_.back();
        agents_.pop_back();
      }
      checker->acquire(*agent, post.begin);
      if (post.isSignal) {
        checker->acquire(*agent, ended_);
        for (auto const& earlier : posts_) {
          if (&earlier == &post) break;
          checker->acquire(*agent, earlier.end);
        }
      }
    }
    Unwatched const unwatched;
    if (post.isSignal) {
      if (agent != nullptr) {
        machine.checker()->store(*agent, post.dst, 8, post.value, Order::release, Scope::system, 0);
      } else {
        std::atomic_ref(*static_cast<std::uint64_t*>(post.dst)).store(post.value, std::memory_order_release);
      }
    } else {
      if (agent != nullptr) {
        machine.checker()->plain(*agent, reinterpret_cast<std::uintptr_t>(post.src), post.bytes, false, 0);
        machine.checker()->plain(*agent, reinterpret_cast<std::uintptr_t>(post.dst), post.bytes, true, 0);
      }
      std::memmove(post.dst, post.src, post.bytes);
    }
    if (agent != nullptr) post.end = machine.checker()->release(*agent);
    post.agent = agent;
    post.done = true;
    if (machine.deterministic()) machine.scheduler().noteProgress();
  }

  int device_;
  std::deque<Post> posts_;  // from the first on that is not done
  std::uint64_t posted_ = 0;
  std::uint64_t done_ = 0;
  Clock ended_;                 // of all before those
  std::vector<Agent*> agents_;  // that may be used again
};

}  // namespace

std::unique_ptr<CopyEngine> makeCopyEngine(int device) { return std::make_unique<SimCopyEngine>(device); }

}  // namespace mscclpp::sim
