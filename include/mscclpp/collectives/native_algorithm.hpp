// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A user's own algorithm beside the library's: functions that prepare, find and run what its kernel needs.
//
//   NativeAlgorithm mine("ring", Collective::allGather, {.makeContext = ..., .run = ...});
//
// Order of a call: initialize (once per communicator), contextKey, makeContext where no context of that key and stream
// is kept, run. The first and third may be collective: contexts are made by all ranks or by none if their keys are
// alike. A context lives as long as it is kept (contexts.hpp); `run` puts work into the stream and returns.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "mscclpp/collectives/algorithm.hpp"

namespace mscclpp {

// Equal keys share a context.
struct ContextKey {
  void const* in = nullptr;
  void const* out = nullptr;
  std::size_t inBytes = 0;
  std::size_t outBytes = 0;
  std::uint64_t tag = 0;

  friend auto operator<=>(ContextKey const&, ContextKey const&) = default;
};

// What an algorithm is made of; only `run` must be there.
struct NativeFunctions {
  // May be left empty.
  std::function<void(Communicator const&)> initialize{};
  // Left empty: one context for all calls.
  std::function<ContextKey(Communicator const&, CollectiveCall const&)> contextKey{};
  // Left empty: `run` gets a null context.
  std::function<std::shared_ptr<void>(Communicator const&, CollectiveCall const&)> makeContext{};
  std::function<void(std::shared_ptr<void> const& context, CollectiveCall const&, Stream const&)> run{};
  // Why a call cannot be done; left empty: it can. Must say the same on all ranks.
  std::function<std::string(World const&, CollectiveCall const&)> refusal{};
};

class NativeAlgorithm final : public Algorithm {
 public:
  // Throws invalidUsage without a name or `run`.
  NativeAlgorithm(std::string name, Collective collective, NativeFunctions functions);
  // In the form that MSCCL++ has for it: see mscclpp/algorithm.hpp, which has to be included.
  template <class Initialize, class Run, class MakeContext, class KeyOf>
  NativeAlgorithm(std::string name, std::string_view collective, Initialize initialize, Run run,
                  MakeContext makeContext, KeyOf keyOf);

  using Algorithm::execute;
  std::string const& name() const noexcept override { return name_; }
  Collective collective() const noexcept override { return collective_; }
  using Algorithm::refusal;
  std::string refusal(World const& world, CollectiveCall const& call) const override;
  void execute(Communicator const& communicator, Stream const& stream, CollectiveCall const& call) const override;

 private:
  std::string name_;
  Collective collective_;
  NativeFunctions functions_;
  std::uint64_t id_;  // of this object, among all that this process ever has
};

// What makes an algorithm; for libraries that hand out theirs.
class AlgorithmBuilder {
 public:
  virtual ~AlgorithmBuilder() = default;
  // The algorithm, for AlgorithmCollection::add(). Called by the program that has been handed the builder, not by this
  // library.
  virtual std::shared_ptr<Algorithm> build() = 0;
};

}  // namespace mscclpp
