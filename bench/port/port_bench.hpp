// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Measures of port channels. Single source: the measuring half is compiled for each machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace port_bench {

struct Options {
  unsigned rounds = 2000;                                                       // of latencies
  unsigned triggers = 20000;                                                    // of each thread that pushes
  unsigned threads = 64;                                                        // that push
  int proxies = 1;                                                              // that take, for the rate of triggers
  std::vector<std::size_t> sizes{std::size_t{64} << 20, std::size_t{1} << 30};  // of transfers
  unsigned transfers = 32;                                                      // of each size
  unsigned matrix = 4096;  // side of the product that a transfer runs beside
};

struct Transfer {
  std::size_t bytes = 0;
  double gigabytesPerSecond = 0;
};

struct Result {
  double bareRoundTripUs = 0;    // one store to host memory and one word back, with no queue: what the machine allows
  double roundTripUs = 0;        // push, until the kernel sees that the proxy has taken it
  double flushUs = 0;            // flush of an idle channel
  double triggersPerSecond = 0;  // from one device
  double putWithSignalUs = 0;    // 1 KiB, until the peer's kernel sees it: half of a ping-pong
  std::vector<Transfer> transfers;
  double matrixMs = 0;  // the product alone, and beside transfers of the largest size
  double matrixBesideMs = 0;
  bool right = false;  // what was transferred
};

// Of this program's machine, with two of its devices. Throws Error.
Result measure(Options const& options);

}  // namespace port_bench
