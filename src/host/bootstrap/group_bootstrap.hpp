// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Some ranks of a bootstrap as a bootstrap of their own. Its messages carry a key, and those that carry another are
// thrown away: what ranks that failed, or calls that were broken off, have left behind is never taken for its own.
#pragma once

#include <memory>
#include <vector>

#include "base/random.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp {

class GroupBootstrap final : public Bootstrap {
 public:
  // `ranks`: of `parent`, in the same order on each, with the caller's own. `perNode`: of them on this host.
  GroupBootstrap(std::shared_ptr<Bootstrap> parent, std::vector<int> ranks, int perNode, Key128 const& key);

  int getRank() const override { return place_; }
  int getNranks() const override { return static_cast<int>(ranks_.size()); }
  int getNranksPerNode() const override { return perNode_; }
  std::chrono::nanoseconds timeout() const override { return parent_->timeout(); }

 protected:
  void sendMessage(void const* data, std::size_t bytes, int peer, int tag) override;
  std::vector<std::byte> recvMessage(int peer, int tag) override;

 private:
  std::shared_ptr<Bootstrap> parent_;
  std::vector<int> ranks_;
  int perNode_;
  Key128 key_;
  int place_ = 0;
};

}  // namespace mscclpp
