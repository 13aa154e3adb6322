// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention of tokens that are dealt out to ranks, in one kernel behind a gate for each tile of keys: attention.hpp.
#include "attention.hpp"

#include <algorithm>
#include <cstdio>

#include "mscclpp/host/ranks.hpp"

using namespace mscclpp;

namespace {

void runRank(Communicator& communicator) {
  constexpr gated_attention::Case test{.tokens = 150};
  gated_attention::run<64>(communicator, test);
  if (communicator.rank() == 0) {
    std::printf("%u tokens on %d ranks, %u rounds of %u blocks, %u of which move: right\n", test.tokens,
                communicator.size(), test.rounds, test.blocks, test.movers);
  }
}

}  // namespace

int main() {
  try {
    runRanks(kernelDevice, std::min(4, Device::count(kernelDevice)), runRank);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
