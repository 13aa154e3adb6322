// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The engines of a process group, and when its ranks meet to make them.
//
// Without GPUs they meet when the group is made. With GPUs, as by NCCL: where init_process_group() was given a
// device_id, then, on that device; else at the first call, on the device of its tensors. Two ranks whose first call is
// a message between them meet by themselves, so that others need not come. Used by one thread at a time, but for
// forEach().
#pragma once

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/extension.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "engine.hpp"
#include "tensor_call.hpp"

namespace mscclpp::torch {

// Ranks that have met.
struct Meeting {
  std::shared_ptr<Engine> engine;
  // Of two ranks by themselves: 0 and 1 in their engine.
  std::string pair;

  // Whom its errors are about, where their numbers are not those of the group.
  std::string about() const { return pair.empty() ? pair : "between ranks " + pair + ", 0 and 1 here: "; }
};

class Engines {
 public:
  Engines(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout, bool hasGpus)
      : store_(std::move(store)), rank_(rank), size_(size), timeout_(timeout), hasGpus_(hasGpus) {
    if (!hasGpus) (void)all(at::kCPU);
  }

  bool hasGpus() const { return hasGpus_; }
  // The group's, or where it has none yet, the thread's.
  at::Device gpu(char const* what) const {
    TORCH_CHECK_VALUE(hasGpus_, backendName, ": rank ", rank_, ": ", what,
                      " is of a GPU, and the group was made without a GPU");
    return gpu_.value_or(c10::impl::VirtualGuardImpl(at::kCUDA).getDevice());
  }
  // Whether all ranks have, for tensors there.
  bool haveMet(at::DeviceType type) const { return met_.contains({type, everyone}); }

  // Collective, where they have not met.
  std::shared_ptr<Meeting> all(at::Device device) { return of(device, everyone); }
  // For messages with that rank, which calls it, too.
  std::shared_ptr<Meeting> with(int peer, at::Device device) {
    bool const areAll = size_ == 2 && peer != rank_;
    return of(device, haveMet(device.type()) || areAll ? everyone : peer);
  }
  // Whose tensors these can be. Throws.
  void require(at::Device device) const {
    TORCH_CHECK_VALUE(device.is_cuda() || device.is_cpu(), backendName, ": a tensor on ", device,
                      "; tensors of CUDA and of the CPU can be used");
    if (!device.is_cuda()) return;
    TORCH_CHECK_VALUE(hasGpus_, backendName, ": rank ", rank_, ": a tensor on ", device,
                      " in a group that was made without a GPU");
    TORCH_CHECK_VALUE(!gpu_ || device == *gpu_, backendName, ": rank ", rank_, ": a tensor on ", device,
                      " in a group on ", gpu_.value_or(device),
                      ", where its first call was, or the device_id of init_process_group(); make another group");
  }

  void setTimeout(std::chrono::milliseconds timeout) {
    timeout_ = timeout;
    forEach([&](Engine& engine) { engine.setTimeLimit(timeout); });
  }
  std::chrono::milliseconds timeout() const { return timeout_.load(); }
  // In the same order on all ranks. From any thread.
  template <class F>
  void forEach(F&& body) {
    auto copy = [this] {
      std::lock_guard const lock(mutex_);
      return met_;
    }();
    for (auto const& [key, meeting] : copy) body(*meeting->engine);
  }

 private:
  static constexpr int everyone = -1;
  // What for, and the other rank.
  using Key = std::pair<at::DeviceType, int>;

  std::shared_ptr<Meeting> of(at::Device device, int peer) {
    Key const key{device.type(), peer};
    if (auto const found = met_.find(key); found != met_.end()) return found->second;
    require(device);
    TORCH_CHECK_WITH(DistBackendError, failure_.empty(), backendName, ": rank ", rank_,
                     ": the ranks of the group did not meet before, make another: ", failure_);
    auto meeting = std::make_shared<Meeting>();
    std::string name = device.is_cuda() ? "cuda" : "cpu";
    int rank = rank_, size = size_;
    if (peer != everyone) {
      rank = rank_ > peer ? 1 : 0;
      size = rank_ == peer ? 1 : 2;
      meeting->pair = std::to_string(std::min(rank_, peer)) + " and " + std::to_string(std::max(rank_, peer));
      name += "/" + meeting->pair;
    }
    auto const there = device.is_cuda() ? Device{DeviceKind::cuda, device.index()} : Engine::simulatedDevice();
    try {
      auto const id = std::string(backendName) + "/" + name;
      if (rank == 0) store_->set(id, Engine::createId());
      meeting->engine = Engine::join(rank, size, store_->get_to_str(id), there, timeout());
    } catch (std::exception const& error) {
      failure_ = meeting->about() + error.what();
      TORCH_CHECK_WITH(DistBackendError, false, backendName, ": rank ", rank_,
                       ": the ranks of the group have not met: ", failure_);
    }
    if (device.is_cuda()) gpu_ = device;
    std::lock_guard const lock(mutex_);
    return met_.emplace(key, std::move(meeting)).first->second;
  }

  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  int size_;
  std::atomic<std::chrono::milliseconds> timeout_;
  bool hasGpus_;
  std::optional<at::Device> gpu_;
  std::string failure_;
  std::mutex mutex_;  // of changes, and of readers on other threads
  std::map<Key, std::shared_ptr<Meeting>> met_;
};

}  // namespace mscclpp::torch
