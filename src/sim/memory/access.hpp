// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One memory access or fence, as the scheduler and the observer see it, and what an update makes of its word.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mscclpp/base/order.hpp"

namespace mscclpp::sim {

enum class AccessKind : std::uint8_t { load, store, update, fence };

// How it goes to memory.
enum class AccessWay : std::uint8_t {
  ordered,    // names an order and a scope
  multicast,  // so too, by a multicast address; Access::address is that of one rank's memory
  plain,
  bulk,  // by a bulk copy
};

struct Access {
  std::uintptr_t address = 0;
  std::size_t bytes = 0;
  AccessKind kind = AccessKind::load;
  Order order = Order::relaxed;
  Scope scope = Scope::system;
  bool line = false;   // a lane's part in its warp's access of whole lines, which is carried out once all have come
  bool again = false;  // the same access to another rank's memory, through the switch
  AccessWay way = AccessWay::ordered;

  void* memory() const { return reinterpret_cast<void*>(address); }
  bool writes() const { return kind == AccessKind::store || kind == AccessKind::update; }
};

inline Access orderedAccess(void const* memory, std::size_t bytes, AccessKind kind, Order order, Scope scope) {
  return {.address = reinterpret_cast<std::uintptr_t>(memory),
          .bytes = bytes,
          .kind = kind,
          .order = order,
          .scope = scope};
}
inline Access unorderedAccess(void const* memory, std::size_t bytes, bool write, AccessWay way = AccessWay::plain) {
  return {.address = reinterpret_cast<std::uintptr_t>(memory),
          .bytes = bytes,
          .kind = write ? AccessKind::store : AccessKind::load,
          .way = way};
}

enum class UpdateKind : std::uint8_t { add, exchange, compareExchange, bitAnd, bitOr, bitXor, bitNand, combine };

struct WordUpdate {
  UpdateKind kind;
  std::uint64_t operand;
  std::uint64_t expected = 0;                                                      // compareExchange
  std::uint64_t (*combine)(std::uint64_t found, std::uint64_t operand) = nullptr;  // combine

  // What it makes of a word of so many bytes; false where it leaves it alone.
  bool apply(std::uint64_t found, unsigned bytes, std::uint64_t& value) const;
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
