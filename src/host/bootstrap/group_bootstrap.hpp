// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Some ranks of a bootstrap as a bootstrap of their own. Its messages have a context of their own, so any number of
// groups and their parent work side by side, and what ranks that failed have left behind is never taken for another's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp {

class GroupBootstrap final : public Bootstrap {
 public:
  // `ranks`: of `parent`, in the same order on each, with the caller's own. `perNode`: of them on this host. `context`:
  // the same on each of them, and no other group's of the parent's job; not 0.
  GroupBootstrap(std::shared_ptr<Bootstrap> parent, std::vector<int> ranks, int perNode, std::uint64_t context);

  int getRank() const override { return place_; }
  int getNranks() const override { return static_cast<int>(ranks_.size()); }
  int getNranksPerNode() const override { return perNode_; }
  std::chrono::nanoseconds timeout() const override { return parent_->timeout(); }

 protected:
  void sendMessage(void const* data, std::size_t bytes, int peer, int tag) override;
  std::vector<std::byte> recvMessage(int peer, int tag) override;
  // A context other than 0 is the parent's as it is: a group within this one.
  void sendTo(MessageAddress const& to, MessageWait const& wait, void const* data, std::size_t bytes) override;
  std::vector<std::byte> recvFrom(MessageAddress const& from, MessageWait const& wait) override;
  // Of the members, as the group numbers them.
  std::shared_ptr<void> listen(Died died) override;
  void declareLost(std::string const& reason) override;

 private:
  int inParent(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  MessageAddress inParent(MessageAddress const& address) const;
  MessageWait inParent(MessageWait const& wait) const;

  std::shared_ptr<Bootstrap> parent_;
  std::vector<int> ranks_;
  int perNode_;
  std::uint64_t context_;
  int place_ = 0;
};

}  // namespace mscclpp
