// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An algorithm of the kernel table. Kernels are looked up, everything else is kept with the communicator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/call/remembered_calls.hpp"
#include "mscclpp/collectives/algorithm.hpp"
#include "mscclpp/collectives/kernel_table.hpp"

namespace mscclpp::collectives_impl {

class LibraryAlgorithm final : public Algorithm {
 public:
  LibraryAlgorithm(Collective collective, std::string name);

  using Algorithm::execute;
  using Algorithm::refusal;
  std::string const& name() const noexcept override { return name_; }
  Collective collective() const noexcept override { return collective_; }
  std::string refusal(World const& world, CollectiveCall const& call) const override;
  std::optional<KernelLaunch> launchFor(World const& world, CollectiveCall const& call) const override;
  void execute(Communicator const& communicator, Stream const& stream, CollectiveCall const& call) const override;

 private:
  Kernel const* kernelFor(World const& world, CollectiveCall const& call) const;

  std::string name_;
  Collective collective_;
  std::uint64_t id_;
};

// The first of equal calls of an algorithm that has kernels: starts it, or says why it cannot be.
void startFirst(Algorithm const& algorithm, std::optional<KernelLaunch> const& launch, CallKey const& key,
                Communicator const& communicator, Stream const& stream, CollectiveCall const& call);

}  // namespace mscclpp::collectives_impl
