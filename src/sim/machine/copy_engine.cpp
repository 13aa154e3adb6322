// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/machine/copy_engine.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <vector>

#include "sim/machine/host_task.hpp"
#include "sim/machine/machine.hpp"
#include "sim/machine/observer.hpp"

namespace mscclpp::sim {
namespace {

class SimCopyEngine final : public CopyEngine {
 public:
  explicit SimCopyEngine(int device) : device_(device) {}

  void copy(void* dst, void const* src, std::size_t bytes) override { post({.dst = dst, .src = src, .bytes = bytes}); }
  void signal(std::uint64_t* word, std::uint64_t value) override {
    post({.dst = word, .bytes = sizeof *word, .value = value, .isSignal = true});
  }
  std::uint64_t posted() const noexcept override { return posted_; }

  std::uint64_t progress() override {
    if (auto* const time = Machine::instance().scheduler().time()) return progressTimed(*time);
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
      Machine::instance().observer()->acquire(*agent, post.end);
      if (post.agent != nullptr) agents_.push_back(post.agent);
    }
    return done_;
  }

 private:
  struct Post {
    void* dst = nullptr;
    void const* src = nullptr;
    std::size_t bytes = 0;
    std::uint64_t value = 0;
    bool isSignal = false;
    bool done = false;
    Clock begin{};  // what the proxy knew
    Clock end{};    // what the copy knows once it is done
    Agent* agent = nullptr;
    Picoseconds endTime = 0;  // of a timed run
  };

  // Whoever waits for a signal sees it no earlier than when its copies have ended, so these are carried out at once.
  std::uint64_t progressTimed(VirtualTime& time) {
    for (auto& post : posts_) {
      if (post.done) continue;
      carryOut(post);
      if (post.isSignal) time.written(post.dst, sizeof(std::uint64_t), post.endTime);
    }
    auto* const task = currentTask();
    if (task == nullptr || posts_.empty()) return done_;
    // The proxy looks often at first, and has something else to do in between.
    constexpr Picoseconds look = 200'000;
    constexpr Picoseconds looks = 16;
    auto& now = task->time.now;
    if (auto const next = posts_.front().endTime; next > now) {
      now = std::min(next, now + std::max(look, (next - now) / looks));
    }
    for (; !posts_.empty() && posts_.front().endTime <= now; posts_.pop_front()) ++done_;
    return done_;
  }

  // The running proxy, as the observer knows it.
  static Agent* proxyAgent() {
    auto* const task = currentTask();
    return task == nullptr || Machine::instance().observer() == nullptr ? nullptr : task->agent;
  }

  void post(Post post) {
    if (auto* const agent = proxyAgent()) post.begin = Machine::instance().observer()->release(*agent);
    if (auto* const time = Machine::instance().scheduler().time()) {
      // A signal is behind all that was posted before it.
      lastEnd_ = std::max(lastEnd_, time->copy(device_, post.dst, post.bytes, time->now()));
      post.endTime = lastEnd_;
    }
    posts_.push_back(std::move(post));
    ++posted_;
  }

  void carryOut(Post& post) {
    auto& machine = Machine::instance();
    Agent* agent = nullptr;
    auto* const observer = machine.observer();
    if (observer != nullptr) {
      // One that the proxy knows to have ended may be another copy now; others would pass for ordered with it.
      if (agents_.empty()) {
        agent = &observer->addProxyCopies(device_);
      } else {
        agent = agents_.back();
        agents_.pop_back();
      }
      observer->acquire(*agent, post.begin);
      if (post.isSignal) {
        observer->acquire(*agent, ended_);
        for (auto const& earlier : posts_) {
          if (&earlier == &post) break;
          observer->acquire(*agent, earlier.end);
        }
      }
    }
    Unwatched const unwatched;
    if (post.isSignal) {
      if (agent != nullptr) {
        observer->store(*agent, orderedAccess(post.dst, 8, AccessKind::store, Order::release, Scope::system),
                        post.value, 0);
      } else {
        std::atomic_ref(*static_cast<std::uint64_t*>(post.dst)).store(post.value, std::memory_order_release);
      }
    } else {
      if (agent != nullptr) {
        observer->note(*agent, unorderedAccess(post.src, post.bytes, false), 0);
        observer->note(*agent, unorderedAccess(post.dst, post.bytes, true), 0);
      }
      std::memmove(post.dst, post.src, post.bytes);
    }
    if (agent != nullptr) post.end = observer->release(*agent);
    post.agent = agent;
    post.done = true;
    if (machine.deterministic()) machine.scheduler().noteProgress();
  }

  int device_;
  std::deque<Post> posts_;  // from the first on that is not done
  std::uint64_t posted_ = 0;
  std::uint64_t done_ = 0;
  Clock ended_;  // of all before those
  Picoseconds lastEnd_ = 0;
  std::vector<Agent*> agents_;  // that may be used again
};

}  // namespace

std::unique_ptr<CopyEngine> makeCopyEngine(int device) { return std::make_unique<SimCopyEngine>(device); }

}  // namespace mscclpp::sim
