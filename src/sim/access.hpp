// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One memory access or fence of a task, as the scheduler and the checker see it.
#pragma once

#include <cstdint>

#include "mscclpp/device/order.hpp"

namespace mscclpp::sim {

enum class AccessKind : std::uint8_t { load, store, update, fence };

struct Access {
  std::uintptr_t address = 0;
  std::uint32_t bytes = 0;
  AccessKind kind = AccessKind::load;
  Order order = Order::relaxed;
  Scope scope = Scope::system;
  bool writes() const { return kind == AccessKind::store || kind == AccessKind::update; }
};

// What a run has to decide beyond who runs next. Option 0 is what an undisturbed machine does.
enum class ChoiceKind : std::uint8_t {
  half,       // which half of a 16-byte access goes first
  staleRead,  // how many values before the newest a load returns
  lateStore,  // how many newer values a store is placed behind
};

}  // namespace mscclpp::sim
