// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A bootstrap as a user writes one: only the functions that have to be written, over another one's messages.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "host/bootstrap/bootstrap_access.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::test {

class ForeignBootstrap : public Bootstrap {
 public:
  explicit ForeignBootstrap(std::shared_ptr<Bootstrap> inner)
      : inner_(std::move(inner)), rank_(inner_->getRank()), ranks_(inner_->getNranks()), timeout_(inner_->timeout()) {}

  int getRank() const override { return rank_; }
  int getNranks() const override { return ranks_; }
  int getNranksPerNode() const override { return ranks_; }
  std::chrono::nanoseconds timeout() const override { return timeout_; }

  // Called before each message is sent; may throw.
  std::function<void()> beforeSending = [] {};
  // The rank has ended, as the others see it.
  void end() { inner_.reset(); }

 protected:
  void sendMessage(void const* data, std::size_t bytes, int peer, int tag) override {
    beforeSending();
    BootstrapAccess::sendTo(*inner_, {0, peer, tag}, {timeout_, {}, false}, data, bytes);
  }
  std::vector<std::byte> recvMessage(int peer, int tag) override { return BootstrapAccess::recv(*inner_, peer, tag); }

 private:
  std::shared_ptr<Bootstrap> inner_;
  int const rank_;
  int const ranks_;
  std::chrono::nanoseconds const timeout_;
};

}  // namespace mscclpp::test
