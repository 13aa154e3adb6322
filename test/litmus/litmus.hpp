// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The notation of the litmus tests: small programs of up to four threads, the outcome that is asked for, and whether
// the PTX memory model allows it.
//
//   {"MP+rel+acq", program(on(d0b0, st(weak, x, 1), st(rel, gpu, y, 1)),
//                          on(d0b1, ld(acq, gpu, r0, y), ld(weak, r1, x).when(r0, 1))),
//    {t1[r0] == 1, t1[r1] == 0}, forbidden, raceFree},
//
// `d0b1` is block 1 of device 0. Every location and register is 0 at first unless startingWith() says otherwise. The
// table is read twice: by the axioms (axioms.hpp) and by kernels on the simulated machine (machine.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "mscclpp/base/order.hpp"

namespace litmus {

using mscclpp::Scope;

template <class T, std::size_t N>
class Few {
 public:
  static constexpr std::size_t capacity = N;
  constexpr Few() = default;
  constexpr Few(std::initializer_list<T> items) {
    for (T const& item : items) add(item);
  }
  constexpr void add(T const& item) {
    if (count_ == N) throw "a litmus test has too many parts";
    items_[count_++] = item;
  }
  constexpr std::size_t size() const { return count_; }
  constexpr T const& operator[](std::size_t i) const { return items_[i]; }
  constexpr T const* begin() const { return items_; }
  constexpr T const* end() const { return items_ + count_; }

 private:
  T items_[N]{};
  std::size_t count_ = 0;
};

// ---- operands

inline constexpr int maxThreads = 4;
inline constexpr int maxLocations = 4;
inline constexpr int maxRegisters = 4;

enum class Location : std::uint8_t { x, y, z, w };
using enum Location;

struct Register {
  std::int8_t number = -1;  // -1: none
  constexpr bool none() const { return number < 0; }
};
inline constexpr Register r0{0}, r1{1}, r2{2}, r3{3};

// A constant, or a register plus a constant.
struct Value {
  constexpr Value(int number = 0) : plus(number) {}
  constexpr Value(Register from, int number = 0) : base(from), plus(number) {}
  Register base;
  int plus = 0;
};
constexpr Value operator+(Register base, int plus) { return {base, plus}; }

// How an access is made: plain, or ordered in a scope.
enum class Strength : std::uint8_t { weak, relaxed, acquire, release, acquireRelease, sequential };
inline constexpr Strength rlx = Strength::relaxed, acq = Strength::acquire, rel = Strength::release,
                          acqRel = Strength::acquireRelease, sc = Strength::sequential;
struct Weak {};
inline constexpr Weak weak;
inline constexpr Scope cta = Scope::block, gpu = Scope::device, sys = Scope::system;

// ---- instructions

enum class Operation : std::uint8_t { load, store, add, exchange, compareExchange, fence, barrier };

struct Guard {
  enum class Kind : std::uint8_t { always, equal, different } kind = Kind::always;
  Register left;
  Value right;
};

struct Instruction {
  Operation operation = Operation::load;
  Strength strength = Strength::weak;
  Scope scope = Scope::system;
  Location location = x;
  Register result{};         // receives what was read
  Value value{};             // stored, added or swapped in
  int expected = 0;          // compareExchange: the value that is replaced
  std::uint8_t barrier = 0;  // 0: of the whole block; others: of the block's threads whose code names it
  Guard guard{};

  constexpr bool reads() const {
    return operation == Operation::load || operation == Operation::add || operation == Operation::exchange ||
           operation == Operation::compareExchange;
  }
  constexpr bool updates() const { return reads() && operation != Operation::load; }

  // Done only if the register holds the value.
  constexpr Instruction when(Register left, Value right) const { return guarded({Guard::Kind::equal, left, right}); }
  constexpr Instruction unless(Register left, Value right) const {
    return guarded({Guard::Kind::different, left, right});
  }

 private:
  constexpr Instruction guarded(Guard const& by) const {
    Instruction copy = *this;
    copy.guard = by;
    return copy;
  }
};

constexpr Instruction ld(Strength strength, Scope scope, Register result, Location location) {
  return {.operation = Operation::load, .strength = strength, .scope = scope, .location = location, .result = result};
}
constexpr Instruction ld(Weak, Register result, Location location) {
  return {.operation = Operation::load, .location = location, .result = result};
}
constexpr Instruction st(Strength strength, Scope scope, Location location, Value value) {
  return {.operation = Operation::store, .strength = strength, .scope = scope, .location = location, .value = value};
}
constexpr Instruction st(Weak, Location location, Value value) {
  return {.operation = Operation::store, .location = location, .value = value};
}
constexpr Instruction add(Strength strength, Scope scope, Register result, Location location, Value value) {
  return {.operation = Operation::add,
          .strength = strength,
          .scope = scope,
          .location = location,
          .result = result,
          .value = value};
}
// An addition without an answer.
constexpr Instruction red(Strength strength, Scope scope, Location location, Value value) {
  return add(strength, scope, Register{}, location, value);
}
constexpr Instruction exch(Strength strength, Scope scope, Register result, Location location, Value value) {
  return {.operation = Operation::exchange,
          .strength = strength,
          .scope = scope,
          .location = location,
          .result = result,
          .value = value};
}
// Replaces `expected` by `value`; the register receives what was found.
constexpr Instruction cas(Strength strength, Scope scope, Register result, Location location, int expected,
                          Value value) {
  return {.operation = Operation::compareExchange,
          .strength = strength,
          .scope = scope,
          .location = location,
          .result = result,
          .value = value,
          .expected = expected};
}
constexpr Instruction fence(Strength strength, Scope scope) {
  return {.operation = Operation::fence, .strength = strength, .scope = scope};
}
constexpr Instruction bar(std::uint8_t number) { return {.operation = Operation::barrier, .barrier = number}; }

// ---- programs

struct Place {
  std::uint8_t device = 0;
  std::uint8_t block = 0;
  constexpr bool operator==(Place const&) const = default;
};
inline constexpr Place d0b0{0, 0}, d0b1{0, 1}, d0b2{0, 2}, d0b3{0, 3}, d1b0{1, 0}, d1b1{1, 1}, d2b0{2, 0}, d3b0{3, 0};

struct Thread {
  Place place;
  Few<Instruction, 8> code;
};

template <class... Instructions>
constexpr Thread on(Place place, Instructions const&... code) {
  return {place, {code...}};
}

struct Initial {
  Location location = x;
  int value = 0;
};

struct Program {
  Few<Thread, maxThreads> threads;
  Few<Initial, maxLocations> initial;

  constexpr Program startingWith(Location location, int value) const {
    Program copy = *this;
    copy.initial.add({location, value});
    return copy;
  }
};

template <class... Threads>
constexpr Program program(Threads const&... threads) {
  return {{threads...}, {}};
}

// Does `to` lie in the scope that a thread at `from` names?
constexpr bool reaches(Scope scope, Place from, Place to) {
  return scope == Scope::system || (from.device == to.device && (scope == Scope::device || from.block == to.block));
}

// ---- outcomes

// What a run leaves behind.
struct Outcome {
  std::uint8_t registers[maxThreads][maxRegisters] = {};
  std::uint8_t memory[maxLocations] = {};
  constexpr auto operator<=>(Outcome const&) const = default;
};

// One condition on an outcome: on a register of a thread, or on a location's last value.
struct Term {
  std::int8_t thread = -1;  // -1: memory
  std::uint8_t index = 0;
  std::uint8_t value = 0;
  bool equal = true;

  constexpr bool holds(Outcome const& outcome) const {
    return ((thread < 0 ? outcome.memory[index] : outcome.registers[thread][index]) == value) == equal;
  }
};

struct Cell {
  std::int8_t thread;
  std::uint8_t index;
  constexpr Term operator==(int value) const { return {thread, index, static_cast<std::uint8_t>(value), true}; }
  constexpr Term operator!=(int value) const { return {thread, index, static_cast<std::uint8_t>(value), false}; }
};
struct ThreadName {
  std::int8_t number;
  constexpr Cell operator[](Register r) const { return {number, static_cast<std::uint8_t>(r.number)}; }
};
inline constexpr ThreadName t0{0}, t1{1}, t2{2}, t3{3};
constexpr Cell last(Location location) { return {-1, static_cast<std::uint8_t>(location)}; }

enum class Verdict : std::uint8_t {
  forbidden,
  allowed,
  allowedNotShown,  // needs an access to take effect before an earlier one of its thread has: README.md
};
using enum Verdict;

// Whether some execution of the program has a data race, in the words of PTX. The machine must report one then, and
// the values that it shows count only as far as they must not contradict the verdict.
enum class Races : std::uint8_t { raceFree, racy };
using enum Races;

struct Litmus {
  std::string_view name;
  Program program;
  Few<Term, 8> outcome;
  Verdict verdict;
  Races races;

  constexpr bool shownBy(Outcome const& seen) const {
    for (Term const& term : outcome) {
      if (!term.holds(seen)) return false;
    }
    return true;
  }
};

}  // namespace litmus
