// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Small programs at random: two or three threads with two or three instructions on two locations.
#pragma once

#include <cstdint>
#include <random>

#include "litmus.hpp"

namespace litmus {

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}

  Program next() {
    // Programs of one kind each, so that some have no race and some have many.
    allSystem_ = chance(50);
    weakPercent_ = chance(50) ? 0 : 25;
    stored_ = 0;
    Program program;
    int const threads = chance(70) ? 2 : 3;
    for (int t = 0; t < threads; ++t) program.threads.add(thread());
    return program;
  }

 private:
  unsigned below(unsigned limit) { return std::uniform_int_distribution<unsigned>(0, limit - 1)(random_); }
  bool chance(unsigned percent) { return below(100) < percent; }
  template <class T>
  T among(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<unsigned>(choices.size()))];
  }

  Thread thread() {
    Thread thread;
    thread.place = among({d0b0, d0b0, d0b1, d1b0});
    std::int8_t reads = 0;
    unsigned const steps = 2 + below(2);
    for (unsigned i = 0; i < steps; ++i) {
      auto instruction = this->instruction(Register{reads});
      if (reads > 0 && chance(25)) {
        Register const seen{static_cast<std::int8_t>(reads - 1)};
        instruction = chance(50) ? instruction.unless(seen, 0) : instruction.when(seen, 0);
      }
      if (instruction.reads()) ++reads;
      thread.code.add(instruction);
    }
    return thread;
  }

  Instruction instruction(Register result) {
    auto const location = among({x, y});
    auto const scope = allSystem_ ? sys : among({cta, gpu, gpu, sys});
    auto const updateStrength = among({rlx, acq, rel, acqRel});
    switch (below(10)) {
      case 0:
      case 1:
      case 2:
        return chance(weakPercent_) ? ld(weak, result, location) : ld(among({rlx, acq}), scope, result, location);
      case 3:
      case 4:
      case 5:
      case 6:
        return chance(weakPercent_) ? st(weak, location, ++stored_) : st(among({rlx, rel}), scope, location, ++stored_);
      case 7:
        return fence(among({acqRel, sc}), scope);
      case 8:
        return add(updateStrength, scope, result, location, 16);
      default:
        return chance(50) ? exch(updateStrength, scope, result, location, ++stored_)
                          : cas(updateStrength, scope, result, location, among({0, 1}), ++stored_);
    }
  }

  std::mt19937_64 random_;
  bool allSystem_ = true;
  unsigned weakPercent_ = 0;
  int stored_ = 0;
};

}  // namespace litmus
