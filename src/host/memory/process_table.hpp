// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What ranks of one process find of each other's by a key that they were told. It keeps nothing alive.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/random.hpp"

namespace mscclpp {

template <class T>
class ProcessTable {
 public:
  static ProcessTable& instance() {
    static auto* const table = new ProcessTable;  // outlives static objects that hold memory
    return *table;
  }

  // Forgets those that are gone, too.
  void add(Key128 const& key, std::weak_ptr<T> entry) {
    std::lock_guard const lock(mutex_);
    std::erase_if(entries_, [](auto const& each) { return each.second.expired(); });
    entries_[key] = std::move(entry);
  }
  // Nothing where it is gone.
  std::shared_ptr<T> find(Key128 const& key) {
    std::lock_guard const lock(mutex_);
    auto const found = entries_.find(key);
    return found == entries_.end() ? nullptr : found->second.lock();
  }

 private:
  ProcessTable() = default;

  std::mutex mutex_;
  std::map<Key128, std::weak_ptr<T>> entries_;
};

}  // namespace mscclpp
