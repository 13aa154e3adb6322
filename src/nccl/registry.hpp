// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Algorithms that this process has registered (mscclpp/nccl/registration_abi.hpp), as the collections of communicators
// have them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mscclpp/collectives/algorithm.hpp"
#include "mscclpp/nccl/registration_abi.hpp"

namespace mscclpp::nccl {

// Outside of this library. A plan is none: it is read, and is the library's own from then on.
class RegisteredAlgorithm final : public Algorithm {
 public:
  RegisteredAlgorithm(MscclppNcclAlgorithm const& described, Collective collective);
  ~RegisteredAlgorithm() override;
  RegisteredAlgorithm(RegisteredAlgorithm const&) = delete;
  RegisteredAlgorithm& operator=(RegisteredAlgorithm const&) = delete;

  using Algorithm::execute;
  std::string const& name() const noexcept override { return name_; }
  Collective collective() const noexcept override { return collective_; }
  using Algorithm::refusal;
  std::string refusal(World const& world, CollectiveCall const& call) const override;
  void execute(Communicator const& communicator, Stream const& stream, CollectiveCall const& call) const override;

  // Of its work for a communicator: empty where nothing has failed.
  std::string fault(Communicator const& communicator) const;
  void abort(Communicator const& communicator) const noexcept;
  void forget(Communicator const& communicator) const noexcept;

 private:
  std::string name_;
  Collective collective_;
  MscclppNcclAlgorithm described_;
};

struct Registered {
  std::shared_ptr<Algorithm const> algorithm;
  std::string plan;  // its text; empty: it is none
};

// Those that were registered, and how often that has changed.
struct Registry {
  std::vector<Registered> all;
  std::uint64_t changes = 0;
};
Registry registry();

// Throws for one that is not right, and for a name that is taken; the same plan again is none.
void addRegistered(MscclppNcclAlgorithm const& described);
// False where there is none of that name.
bool removeRegistered(std::string const& collective, std::string const& name);

}  // namespace mscclpp::nccl
