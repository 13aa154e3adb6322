// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An algorithm of the kernel table. It holds no state of its own: kernels are looked up, everything else is kept with
// the communicator.
#pragma once

#include <string>
#include <utility>

#include "mscclpp/collectives/algorithm.hpp"
#include "mscclpp/collectives/kernel_table.hpp"

namespace mscclpp::collectives_impl {

class LibraryAlgorithm final : public Algorithm {
 public:
  LibraryAlgorithm(Collective collective, std::string name) : name_(std::move(name)), collective_(collective) {}

  using Algorithm::execute;
  std::string const& name() const noexcept override { return name_; }
  Collective collective() const noexcept override { return collective_; }
  std::string refusal(Communicator const& communicator, CollectiveCall const& call) const override;
  void execute(Communicator const& communicator, Stream const& stream, CollectiveCall const& call) const override;

 private:
  Kernel const* kernelFor(Communicator const& communicator, CollectiveCall const& call) const;
  std::string refusal(Communicator const& communicator, CollectiveCall const& call, Kernel const* kernel) const;

  std::string name_;
  Collective collective_;
};

}  // namespace mscclpp::collectives_impl
