// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The multicast windows of this process: addresses of no memory of their own, each of which stands for one place in the
// memory of every rank of its window. A plain access to one faults.
//
// All functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "mscclpp/host/runtime.hpp"

namespace mscclpp::sim {

class Multicasts {
 public:
  struct Window {
    int device = 0;
    std::size_t bytes = 0;
    std::vector<MulticastReplicas> replicas;  // by offset
  };
  // One place in a window, and how much of it belongs together from there.
  struct Place {
    std::shared_ptr<Window const> window;
    MulticastReplicas const* replicas = nullptr;
    std::size_t offset = 0;  // into the replicas
  };

  std::byte* map(Window window);
  void unmap(std::byte* base) noexcept;
  // Null window: the address is in none; null replicas: nothing is bound there.
  Place find(std::uintptr_t address) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::uintptr_t, std::shared_ptr<Window const>> windows_;
};

}  // namespace mscclpp::sim
