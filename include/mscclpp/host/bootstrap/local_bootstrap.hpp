// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bootstrap among ranks that are threads of one process (or fibers of the simulated machine).
//
//   auto ranks = LocalBootstrap::create(4);            // hand ranks[r] to the thread of rank r
//
// A rank that drops its bootstrap has left: peers that wait for it, or for a collective that it has not done its part
// of, get remoteError at once. Where it left because of another rank, that one is named. Of no use after fork().
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp {

class LocalBootstrap final : public Bootstrap {
 public:
  // `timeout`: that of the environment where not given.
  static std::vector<std::shared_ptr<Bootstrap>> create(int ranks,
                                                        std::optional<std::chrono::nanoseconds> timeout = {});
  ~LocalBootstrap() override;

  // getNranksPerNode() is getNranks(): all are threads of this process.
  int getRank() const override { return rank_; }
  int getNranks() const override;
  int getNranksPerNode() const override { return getNranks(); }
  std::chrono::nanoseconds timeout() const override;

 protected:
  void sendMessage(void const* data, std::size_t bytes, int peer, int tag) override;
  std::vector<std::byte> recvMessage(int peer, int tag) override;
  void sendTo(MessageAddress const& to, MessageWait const& wait, void const* data, std::size_t bytes) override;
  std::vector<std::byte> recvFrom(MessageAddress const& from, MessageWait const& wait) override;
  void declareLost(std::string const& reason) override;

 private:
  struct World;
  LocalBootstrap(std::shared_ptr<World> world, int rank);

  std::shared_ptr<World> world_;
  int rank_;
};

}  // namespace mscclpp
