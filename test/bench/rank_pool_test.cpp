// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session/rank_pool.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "mscclpp/host/error.hpp"

using namespace mscclpp;
using namespace mscclpp::bench;

namespace {

constexpr std::chrono::seconds limit{30};

}  // namespace

TEST_CASE("every rank runs, on a thread that it keeps") {
  RankPool pool(5, [] {});
  std::vector<std::thread::id> first(5);
  std::vector<std::thread::id> second(5);
  pool.run([&](int rank) { first[static_cast<std::size_t>(rank)] = std::this_thread::get_id(); });
  pool.run([&](int rank) { second[static_cast<std::size_t>(rank)] = std::this_thread::get_id(); });
  CHECK(first == second);
  CHECK(std::set<std::thread::id>(first.begin(), first.end()).size() == 5);
}

TEST_CASE("a barrier holds all ranks until the last has come") {
  constexpr int ranks = 4;
  RankPool pool(ranks, [] {});
  std::atomic<int> arrived{0};
  std::atomic<int> early{0};
  pool.run([&](int) {
    for (int round = 1; round <= 200; ++round) {
      ++arrived;
      pool.barrier(limit);
      if (arrived.load() < round * ranks) ++early;
      pool.barrier(limit);
    }
  });
  CHECK(early.load() == 0);
  CHECK(arrived.load() == 200 * ranks);
}

TEST_CASE("a rank that fails ends the others' waits, and its own error is the one that is seen") {
  std::atomic<int> told{0};
  RankPool pool(3, [&] { ++told; });
  std::atomic<int> aborted{0};
  auto const begin = std::chrono::steady_clock::now();
  CHECK_THROWS_WITH_AS(pool.run([&](int rank) {
    if (rank == 1) throw std::runtime_error("rank 1 is out of paper");
    try {
      pool.barrier(limit);
    } catch (Error const& error) {
      if (error.code() == ErrorCode::aborted) ++aborted;
      throw;
    }
  }),
                       "rank 1 is out of paper", std::runtime_error);
  CHECK(std::chrono::steady_clock::now() - begin < limit);
  CHECK(aborted.load() == 2);
  CHECK(told.load() == 1);
}

TEST_CASE("a pool can be used again after a failure") {
  RankPool pool(2, [] {});
  CHECK_THROWS(pool.run([&](int rank) {
    if (rank == 0) throw std::runtime_error("once");
    pool.barrier(limit);
  }));
  std::atomic<int> passed{0};
  pool.run([&](int) {
    pool.barrier(limit);
    ++passed;
  });
  CHECK(passed.load() == 2);
}

TEST_CASE("a rank that stays away is named by a time limit") {
  RankPool pool(2, [] {});
  CHECK_THROWS_WITH_AS(pool.run([&](int rank) {
    if (rank == 0) pool.barrier(std::chrono::seconds(1));
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  }),
                       "waited 1 s for the other ranks of this process: 1 of 2 have arrived", Error);
}
