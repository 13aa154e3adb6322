// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps that ranks take together: who fails is told to all, and nobody waits twice for one that does not answer.
#include "host/shared/members.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "host/fake_runtime.hpp"
#include "host/ranks.hpp"
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/communicator.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

TEST_CASE("whose step has waited in vain tells all, and they throw with it rather than wait for the silent one") {
  constexpr auto limit = 1000ms;
  constexpr int ranks = 4;
  constexpr int silent = 3;
  auto bootstraps = LocalBootstrap::create(ranks, limit);
  std::atomic<int> done{0};
  auto const errors = runThreads(ranks, [&](int rank) {
    Communicator const communicator(std::move(bootstraps[static_cast<std::size_t>(rank)]), fake(rank));
    communicator.bootstrap()->barrier();
    auto const begin = std::chrono::steady_clock::now();
    if (rank != silent) {
      Members const members("Team", *CommunicatorImpl::of(communicator), {});
      auto const error = errorOf([&] {
        members.together([&]() -> std::vector<std::byte> {
          if (rank == 2) return {};
          std::this_thread::sleep_for(limit - 100ms);
          throw Error(ErrorCode::timeout, "memory of rank 3 did not come");
        });
      });
      CHECK_MESSAGE(mentions(error, "memory of rank 3 did not come"), textOf(error));
      CHECK(std::chrono::steady_clock::now() - begin < limit + 300ms);
    }
    for (++done; done < ranks;) std::this_thread::sleep_for(1ms);
  });
  CHECK(allErrors(errors) == "");
}
