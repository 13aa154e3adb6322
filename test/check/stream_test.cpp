// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Planted faults between kernels, streams and the host.
#include "check/harness.hpp"

using namespace check_test;

namespace {

struct Add {
  MSCCLPP_DEVICE void operator()(Peers const& p) const {
    *p.data(p.rank, thisBlock().rank()) += 1;  // <- kernel adds
  }
};

// A kernel that begins while the one ahead of it in the stream still runs.
template <Fault F>
struct OverlapWithoutWait {
  void operator()(Rank& rank) const {
    SharedMemory const memory(rank);
    for (unsigned call = 0; call < 2; ++call) {
      launch(rank.stream, {.blocks = 1, .threads = 32, .overlapPrevious = true}, Kernel{}, memory.peers());
    }
    rank.synchronize();
  }
  struct Kernel {
    MSCCLPP_DEVICE void operator()(Peers const& p) const {
      allowNextKernel();
      if constexpr (!planted<F>) waitForPreviousKernel();
      *p.data(p.rank, thisBlock().rank()) += 1;  // <- overlapping kernel
    }
  };
};

template <Fault F>
struct TwoStreams {
  void operator()(Rank& rank) const {
    SharedMemory const memory(rank);
    Stream const other(rank.device);
    launch(rank.stream, {.blocks = 1, .threads = 32}, Add{}, memory.peers());
    launch(planted<F> ? other : rank.stream, {.blocks = 1, .threads = 32}, Add{}, memory.peers());
    other.synchronize();
    rank.synchronize();
  }
};

template <Fault F>
struct HostReadsTooEarly {
  void operator()(Rank& rank) const {
    SharedMemory const memory(rank);
    launch(rank.stream, {.blocks = 1, .threads = 32}, Kernel{}, memory.peers());
    if constexpr (!planted<F>) rank.communicator.synchronize(rank.stream);
    expectOnHost(copyToHost(memory.own())[0] == std::byte{1}, "read before it was written");  // <- host reads
    rank.synchronize();
  }
  struct Kernel {
    MSCCLPP_DEVICE void operator()(Peers const& p) const {
      *p.data(p.rank, thisBlock().rank()) = 1;  // <- kernel writes
    }
  };
};

template <Fault F>
struct HostWritesTooLate {
  void operator()(Rank& rank) const {
    SharedMemory const memory(rank);
    std::vector<std::byte> const ones(128, std::byte{1});
    if constexpr (!planted<F>) copyToDevice(memory.own(), std::span<std::byte const>(ones));
    launch(rank.stream, {.blocks = 1, .threads = 32}, Kernel{}, memory.peers());
    if constexpr (planted<F>) copyToDevice(memory.own(), std::span<std::byte const>(ones));  // <- host writes
    rank.synchronize();
  }
  struct Kernel {
    MSCCLPP_DEVICE void operator()(Peers const& p) const {
      expect(*p.data(p.rank, thisBlock().rank()) == 0x01010101, "no input yet");  // <- kernel reads
    }
  };
};

}  // namespace

TEST_CASE("an overlapped launch that does not wait for the kernel ahead") {
  checkProgram<OverlapWithoutWait>({FindingKind::race, {"overlapping kernel", "overlapping kernel"}}, {.ranks = 1});
}

TEST_CASE("two streams on the same data") {
  checkProgram<TwoStreams>({FindingKind::race, {"kernel adds", "kernel adds"}}, {.ranks = 1});
}

TEST_CASE("the host reads before it has synchronised") {
  checkProgram<HostReadsTooEarly>({FindingKind::race, {"kernel writes", "host reads"}}, {.ranks = 1});
}

TEST_CASE("the host writes the input after it has launched") {
  checkProgram<HostWritesTooLate>({FindingKind::race, {"host writes", "kernel reads"}}, {.ranks = 1});
}
