// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every Bootstrap must do, as one rank runs it; used by the tests of each kind. Returns what is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::test {

inline std::string exerciseBootstrap(Bootstrap& bootstrap) {
  int const rank = bootstrap.getRank();
  int const ranks = bootstrap.getNranks();
  auto const value = [](int of, int round) {
    return static_cast<std::uint64_t>(of) * 1000 + static_cast<unsigned>(round);
  };

  for (int round = 0; round < 3; ++round) {
    std::vector<std::uint64_t> all(static_cast<std::size_t>(ranks), ~0ull);
    all[static_cast<std::size_t>(rank)] = value(rank, round);
    bootstrap.allGather(all.data(), sizeof(std::uint64_t));
    for (int other = 0; other < ranks; ++other) {
      if (all[static_cast<std::size_t>(other)] != value(other, round)) return "allGather: wrong part of another rank";
    }
    bootstrap.barrier();
  }

  // To every rank, oneself included; the tags are received in the other order than sent.
  for (int other = 0; other < ranks; ++other) {
    for (int tag : {0, 1, 2}) {
      auto const message = value(rank * ranks + other, tag);
      bootstrap.send(&message, sizeof message, other, tag);
    }
  }
  for (int other = 0; other < ranks; ++other) {
    for (int tag : {2, 0, 1}) {
      std::uint64_t message = 0;
      bootstrap.recv(&message, sizeof message, other, tag);
      if (message != value(other * ranks + rank, tag)) return "recv: another message than this tag's";
    }
  }

  // Order within one tag, empty and large messages.
  int const next = (rank + 1) % ranks;
  int const previous = (rank + ranks - 1) % ranks;
  for (std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{3} << 20}) {
    bootstrap.send(std::vector<char>(size, static_cast<char>('a' + rank % 26)), next, 7);
  }
  for (std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{3} << 20}) {
    std::vector<char> message(5, '?');
    bootstrap.recv(message, previous, 7);
    if (message != std::vector<char>(size, static_cast<char>('a' + previous % 26))) return "recv: wrong vector";
  }

  // A message that is sent after a barrier may not be there before it, and one sent before must be.
  if (ranks > 1) {
    std::vector<int> even;
    std::vector<int> odd;
    for (int other = ranks - 1; other >= 0; --other) (other % 2 == 0 ? even : odd).push_back(other);
    for (int round = 0; round < 5; ++round) bootstrap.groupBarrier(rank % 2 == 0 ? even : odd);
  }
  bootstrap.barrier();
  return "";
}

}  // namespace mscclpp::test
