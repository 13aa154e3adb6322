// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One memory access or fence of a task, as the scheduler and the checker see it.
#pragma once

#include <cstdint>

#include "mscclpp/base/order.hpp"

namespace mscclpp::sim {

enum class AccessKind : std::uint8_t { load, store, update, fence };

struct Access {
  std::uintptr_t address = 0;
  std::uint32_t bytes = 0;
  AccessKind kind = AccessKind::load;
  Order order = Order::relaxed;
  Scope scope = Scope::system;
  bool line = false;   // a lane's part in its warp's access of whole lines, which is carried out once all have come
  bool again = false;  // the same access to another rank's memory, through the switch
  bool writes() const { return kind == AccessKind::store || kind == AccessKind::update; }
};

inline bool acquires(Order order) {
  return order == Order::acquire || order == Order::acquireRelease || order == Order::sequential;
}
inline bool releases(Order order) {
  return order == Order::release || order == Order::acquireRelease || order == Order::sequential;
}

inline char const* nameOf(Order order) {
  switch (order) {
    case Order::relaxed:
      return "relaxed";
    case Order::acquire:
      return "acquire";
    case Order::release:
      return "release";
    case Order::acquireRelease:
      return "acquireRelease";
    case Order::sequential:
      return "sequential";
  }
  return "?";
}

inline char const* nameOf(Scope scope) {
  switch (scope) {
    case Scope::thread:
      return "thread";
    case Scope::block:
      return "block";
    case Scope::device:
      return "device";
    case Scope::system:
      return "system";
  }
  return "?";
}

inline char const* nameOf(AccessKind kind) {
  switch (kind) {
    case AccessKind::load:
      return "load";
    case AccessKind::store:
      return "store";
    case AccessKind::update:
      return "update";
    case AccessKind::fence:
      return "fence";
  }
  return "?";
}

// What a run has to decide beyond who runs next. Option 0 is what an undisturbed machine does.
enum class ChoiceKind : std::uint8_t {
  half,       // which half of a 16-byte access goes first
  staleRead,  // how many values before the newest a load returns
  lateStore,  // how many newer values a store is placed behind
  lateCopy,   // how much of a bulk copy waits for its end: nothing, the write, or both accesses
};

}  // namespace mscclpp::sim
