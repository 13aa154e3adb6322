// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Several ways to do one operation, such as a fused kernel beside a product and a collective of their own, of which
// each call takes the one that is fastest for its shape, the same on all ranks.
//
//   Arms arms(communicator, "gemm_rs o_proj", {{"unfused", runPair}, {"fused", runFused}});
//   arms({m, n, k}, stream);              // the callables get these two
//
//   Arms<bf16 const*, bf16*> arms(...);   // and these: arms({m, n, k}, stream, x, y)
//
// The first call of a key measures, and is collective over the ranks, as making Arms is: all make the same ones and
// call them with the same keys in the same order. The key is all that an arm's time depends on. Each arm is called once
// to see whether it runs, then in samples, a sample of each arm in turn, so that what drifts meets all alike. Of each
// arm the slowest rank's median counts. The fastest arm is taken, but one that was named earlier where that takes at
// most `margin` longer: name the one first that you have today. Measuring takes arms * samples * (operations + 1)
// calls, and leaves the stream idle. Every later call looks the key up.
//
// An arm puts its work into the stream and returns nothing, or whether it takes the shape: false, or an exception of
// its own, leaves it out for this key on all ranks. It refuses ahead of its first kernel, and by what is the same on
// all ranks; else the kernels of those that have not refused wait for it in vain, and the call throws. Arms read and
// write the same, and a call leaves the same behind whichever arm it takes. Where one overwrites what it reads, such as
// a residual, preserve() says how to give that back; else measuring calls them many times on it.
//
// A call that is captured into a graph measures nothing: a key that is not known takes the arm of the nearest known one
// by ratio, else the first that does not refuse. Call each key once before it is captured.
//
// MSCCLPP_ARMS names arms that are always taken, as "gemm_rs o_proj=fused,*=unfused", the first that fits; `*` skips
// operations without such an arm. Such calls measure nothing, and throw where the arm refuses.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/stream.hpp"

namespace mscclpp {

// What tells the shapes of an operation apart: 1 to 6 whole numbers, none below 0.
class ArmKey {
 public:
  static constexpr std::size_t mostNumbers = 6;

  template <std::integral... N>
  requires(sizeof...(N) >= 1 && sizeof...(N) <= mostNumbers) ArmKey(N... numbers)
      : ArmKey(std::array{static_cast<std::int64_t>(numbers)...}) {}
  // Throws invalidUsage.
  explicit ArmKey(std::span<std::int64_t const> numbers);

  std::span<std::int64_t const> numbers() const noexcept { return {numbers_.data(), size_}; }

  friend bool operator<(ArmKey const& one, ArmKey const& other) noexcept {
    return std::tie(one.size_, one.numbers_) < std::tie(other.size_, other.numbers_);
  }

 private:
  std::array<std::int64_t, mostNumbers> numbers_{};
  std::size_t size_ = 0;
};

// Seconds that `work`, which it calls once to put it into the stream, takes there. Ahead in the stream is a call that
// brings all ranks to one point.
using ArmTimer = std::function<double(Stream const& stream, std::function<void()> const& work)>;

// How arms are measured, and where that is kept.
struct ArmsOptions {
  int samples = 7;     // of each arm
  int operations = 8;  // calls in a sample, one behind the other
  double margin = 0.02;
  // File of what was measured, such as cacheFolder() + "/arms.json"; empty: none. Rank 0 reads it when Arms are made,
  // and writes each new key into it, beside what it holds of other operations, devices, ranks and links. Measured with
  // other arms, a key is measured again; with new kernels behind the same names only if the file goes.
  std::string profile{};
  // Empty: events on GPUs, which say what the processor's launches take where those are slower; elsewhere the
  // processor's clock, which says nothing about a GPU.
  ArmTimer time{};
};

// What is known of a key.
struct ArmTimes {
  std::vector<std::optional<double>> seconds;  // a call of each arm on the slowest rank; none: refused
  std::size_t best = 0;
};

// The choice by itself, of arms that go by numbers in the order of their names.
class ArmChoice {
 public:
  // Calls an arm; false: it refuses.
  using Run = std::function<bool(std::size_t arm)>;
  // Notes what the arms overwrite, and returns how to give it back. Both put work into the stream.
  using Preserve = std::function<std::function<void()>()>;

  // Collective. Throws invalidUsage on all ranks where they differ in any of it, or in MSCCLPP_ARMS, and where rank 0's
  // profile is not right.
  ArmChoice(Communicator const& communicator, std::string operation, std::vector<std::string> names,
            ArmsOptions options = {});

  void call(ArmKey const& key, Stream const& stream, Run const& run, Preserve const& preserve);

  // Null where it is not known.
  ArmTimes const* find(ArmKey const& key) const;
  // The name of the arm that a call would take; empty where it would have to measure.
  std::string_view chosen(ArmKey const& key) const;
  // For people: a line for each key, with times and choice.
  std::string describe() const;

 private:
  void checkNames() const;
  void readForced();
  void join();
  ArmTimes measure(ArmKey const& key, Stream const& stream, Run const& run, Preserve const& preserve) const;
  void runUnmeasured(ArmKey const& key, Run const& run) const;
  std::size_t fastest(std::vector<std::optional<double>> const& seconds) const;
  std::string title(ArmKey const& key) const;
  void keep(ArmKey const& key, ArmTimes const& times) const noexcept;

  Communicator const& communicator_;
  std::string operation_;
  std::vector<std::string> names_;
  ArmsOptions options_;
  std::optional<std::size_t> forced_;
  std::string device_;  // product names of all ranks' devices
  bool wholeLines_ = true;
  std::map<ArmKey, ArmTimes> known_;
};

template <class... Args>
class Arms {
 public:
  // A name, and what is called for it: with the key, the stream and the arguments of the call.
  struct Arm {
    template <class F>
    requires std::invocable<F&, ArmKey const&, Stream const&, Args...> Arm(std::string itsName, F f)
        : name(std::move(itsName)) {
      run = [f = std::move(f)](ArmKey const& key, Stream const& stream, Args... args) mutable -> bool {
        using Result = std::invoke_result_t<F&, ArmKey const&, Stream const&, Args...>;
        static_assert(std::is_void_v<Result> || std::same_as<Result, bool>,
                      "an arm returns nothing, or whether it takes the shape");
        if constexpr (std::is_void_v<Result>) {
          f(key, stream, args...);
          return true;
        } else {
          return f(key, stream, args...);
        }
      };
    }

    std::string name;
    std::function<bool(ArmKey const&, Stream const&, Args...)> run;
  };
  using Preserve = std::function<std::function<void()>(ArmKey const&, Stream const&, Args...)>;

  // As ArmChoice; the communicator outlives it.
  Arms(Communicator const& communicator, std::string operation, std::vector<Arm> arms, ArmsOptions options = {})
      : arms_(std::move(arms)), choice_(communicator, std::move(operation), namesOf(arms_), std::move(options)) {}

  // Before the first call. `preserve` puts a copy of what the arms overwrite into the stream, and returns a callable
  // that gives it back there; that is called ahead of each sample and before the call that counts.
  void preserve(Preserve preserve) { preserve_ = std::move(preserve); }

  // Throws invalidUsage on all ranks where no arm takes the shape; what an arm throws while it is measured, after its
  // first call, on all ranks too.
  void operator()(ArmKey const& key, Stream const& stream, Args... args) {
    auto const run = [&](std::size_t arm) { return arms_[arm].run(key, stream, args...); };
    auto const keep = [&]() -> std::function<void()> {
      return preserve_ ? preserve_(key, stream, args...) : std::function<void()>();
    };
    choice_.call(key, stream, std::ref(run), std::ref(keep));
  }

  // What is known and chosen; describe() in lines for people.
  ArmChoice const& choice() const noexcept { return choice_; }
  std::string describe() const { return choice_.describe(); }

 private:
  static std::vector<std::string> namesOf(std::vector<Arm> const& arms) {
    std::vector<std::string> names;
    for (auto const& arm : arms) names.push_back(arm.name);
    return names;
  }

  std::vector<Arm> arms_;
  ArmChoice choice_;
  Preserve preserve_{};
};

}  // namespace mscclpp
