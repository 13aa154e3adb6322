// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Allocations of other processes, mapped into this one.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "base/format.hpp"
#include "host/memory/split_memory.hpp"
#include "mscclpp/host/runtime.hpp"

namespace mscclpp {

// A peer's allocation, as mapped here, at this address; ends with the last copy.
using Import = std::shared_ptr<void>;

inline Import importDescriptors(Runtime& machine, int device, std::span<SharedPiece const> pieces) {
  auto const close = [&machine](void* base) { machine.releaseImport(base); };
  if (pieces.size() == 1) return {machine.importDescriptor(device, pieces[0].descriptor, pieces[0].bytes), close};
  auto* const split = dynamic_cast<SplitMemory*>(&machine);
  if (split == nullptr) {
    fail(ErrorCode::unsupported, "memory of {} pieces on device {}: this machine maps none side by side", pieces.size(),
         device);
  }
  return {split->importPieces(device, pieces), close};
}

// A runtime may refuse to open one handle twice, so all memory of one allocation shares its mapping. It is opened,
// counted and closed under one lock: a handle is opened again only when it has been closed.
class IpcImports {
 public:
  // Never destroyed: memory in static objects may be released after everything here.
  static IpcImports& instance() {
    static auto* const imports = new IpcImports;
    return *imports;
  }

  Import open(Runtime& machine, int device, IpcHandle const& handle) {
    Key const key{device, handle};
    return {take(machine, key), [this, &machine, key](void*) { close(machine, key); }};
  }

 private:
  using Key = std::pair<int, IpcHandle>;
  struct Mapping {
    void* base;
    int users;
  };

  void* take(Runtime& machine, Key const& key) {
    std::lock_guard const lock(mutex_);
    if (auto const found = mappings_.find(key); found != mappings_.end()) {
      ++found->second.users;
      return found->second.base;
    }
    void* const base = machine.importIpc(key.first, key.second);
    mappings_[key] = {base, 1};
    return base;
  }
  void close(Runtime& machine, Key const& key) {
    std::lock_guard const lock(mutex_);
    auto const found = mappings_.find(key);
    if (--found->second.users != 0) return;
    machine.releaseImport(found->second.base);
    mappings_.erase(found);
  }

  std::mutex mutex_;
  std::map<Key, Mapping> mappings_;
};

}  // namespace mscclpp
