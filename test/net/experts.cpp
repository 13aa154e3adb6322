// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank of a job over several hosts, with a simulated GPU: tokens to their experts and home by calls from the host,
// every element of what arrives and of the sums against the same on the host. Started by any launcher; ends with 0
// where all was well, else prints what was not and ends with 1.
//
//   mscclpp_test_net_experts            of every type, in each order of rows
//   mscclpp_test_net_experts forever    the same again and again, until one fails
#define DOCTEST_CONFIG_DISABLE
#include "support/experts_from_host.hpp"

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "mscclpp/host/hierarchy.hpp"
#include "mscclpp/host/launcher.hpp"

namespace {

using namespace mscclpp_test;

template <class T, class W = T>
void run(Rank& rank, ExpertsCase const& test, int& calls) {
  runExperts<T, W, FromHost<T, W>>(rank, test);
  calls += 2 * static_cast<int>(test.layers);
}

int runAll(Rank& rank, int nodes) {
  ExpertsCase test{.ranks = rank.size, .nodes = nodes, .alignment = 4};
  test.limits = {.experts = 13, .topK = 4, .tokens = 40, .hidden = 300, .elementBytes = 4, .blocks = 3};
  int calls = 0;
  run<float>(rank, test, calls);
  run<BFloat16, Float8E4M3>(rank, test, calls);
  test.crowd = Crowd::skewed;
  run<Half, std::int8_t>(rank, test, calls);
  test.limits.transport = layout::ExpertTransport::memory;
  test.byToken = true;
  run<BFloat16>(rank, test, calls);
  test.byToken = false;
  test.rowsOfExpert = 8;
  test.limits.partOfEach = true;
  run<float>(rank, test, calls);
  return calls;
}

}  // namespace

int main(int count, char** values) {
  try {
    Communicator communicator(bootstrapFromEnvironment(), Device{DeviceKind::sim, launchFromEnvironment().localRank});
    auto const nodes = static_cast<int>(nodesOf(hostsOf(communicator)).size());
    Stream stream(communicator.device());
    Rank rank{communicator, stream, communicator.rank(), communicator.size(), communicator.device()};
    bool const forever = count == 2 && std::string_view(values[1]) == "forever";
    if (forever) std::printf("begins\n"), std::fflush(stdout);
    int calls = 0;
    do calls += runAll(rank, nodes);
    while (forever);
    std::printf("rank %d of %d nodes: %d calls, 0 wrong\n", rank.rank, nodes, calls);
    communicator.bootstrap()->barrier();
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
