// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A barrier through the store of the group, in which rank 0 names the ranks that do not come. Nothing of the device
// takes part, so it tells who is late also while a collective hangs. Its words are those of gloo, which programs know.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace mscclpp::torch {

class MonitoredBarrier {
 public:
  // Collective. `all`: waits for each rank before it tells who is missing, otherwise up to the first.
  void operator()(c10d::Store& store, int rank, int size, std::chrono::milliseconds limit, bool all) {
    auto const prefix = "mscclpp/barrier/" + std::to_string(++number_) + "/";
    auto const end = Clock::now() + limit;
    auto const verdict = prefix + "verdict";
    if (rank != 0) {
      store.set(prefix + std::to_string(rank), std::string("here"));
      bool const passed = arrives(store, verdict, end) && store.get_to_str(verdict) == passes;
      TORCH_CHECK_WITH(DistBackendError, passed, "Rank ", rank,
                       " successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
                       "rank 0. Please check rank 0 logs for faulty rank.");
      return;
    }
    std::vector<std::string> missing;
    bool late = false;
    for (int other = 1; other < size && (all || missing.empty()); ++other) {
      auto const key = prefix + std::to_string(other);
      late = missing.empty() && Clock::now() >= end;
      if (late) break;
      if (!arrives(store, key, end)) {
        missing.push_back(std::to_string(other));
      } else {
        store.deleteKey(key);
      }
    }
    store.set(verdict, missing.empty() && !late ? passes : std::string("failed"));
    TORCH_CHECK_WITH(DistBackendError, !late, "Rank 0 timed out in monitoredBarrier after ", limit.count(), " ms.");
    TORCH_CHECK_WITH(DistBackendError, missing.empty(), "[Rank 0]: Rank", all ? "s " : " ", c10::Join(", ", missing),
                     " failed to pass monitoredBarrier in ", limit.count(), " ms");
  }

 private:
  using Clock = std::chrono::steady_clock;
  static inline std::string const passes = "passed";

  // One look at least.
  static bool arrives(c10d::Store& store, std::string const& key, Clock::time_point end) {
    for (;;) {
      if (store.check({key})) return true;
      if (Clock::now() >= end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  int number_ = 0;
};

}  // namespace mscclpp::torch
