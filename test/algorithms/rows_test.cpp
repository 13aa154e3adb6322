// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-reduce with an epilogue on whole rows: who holds a row, over which transport, of what shape and type.
#include "mscclpp/algorithms/rows/all_reduce_rows.hpp"

#include "support/rows.hpp"

using namespace mscclpp_test;

namespace {

template <class Schedule, class Tr, class G, class T = BFloat16>
void everyShape(std::size_t longest) {
  checkRows<Schedule, Tr, G, T>({.ranks = 3, .rows = 5, .columns = 120});
  checkRows<Schedule, Tr, G, T>({.ranks = 2, .rows = 1, .columns = 77, .stride = 90, .blocks = 2, .overlap = true});
  checkRows<Schedule, Tr, G, T>({.ranks = 4, .rows = 13, .columns = 200, .blocks = 2, .calls = 3, .overlap = true});
  checkRows<Schedule, Tr, G, T>({.ranks = 2, .rows = 3, .columns = longest, .blocks = 8});
}

template <class Tr, class G>
void bothSchedules(std::size_t longest) {
  everyShape<RowOneShot, Tr, G>(longest);
  everyShape<RowTwoShot, Tr, G>(longest);
}

}  // namespace

TEST_CASE_TEMPLATE("a row by a block, by some warps, by one", Tr, PacketTransport<LL8, 2>, PacketTransport<LL16, 2>,
                   PacketTransport<LL128, 2>, MemoryTransport<2>) {
  bothSchedules<Tr, BlockPerRow>(1031);
  bothSchedules<Tr, WarpsPerRow<2>>(240);
  bothSchedules<PacketTransport<LL128, 4>, WarpsPerRow<1>>(240);
}

TEST_CASE_TEMPLATE("a row by the blocks of a cluster", Tr, PacketTransport<LL16, 1>, PacketTransport<LL128, 1>,
                   MemoryTransport<1>) {
  bothSchedules<Tr, ClusterPerRow>(4100);
  bothSchedules<Tr, ClusterPerRow>(1152);  // the last block of a cluster has none of it
}

TEST_CASE_TEMPLATE("rows of other types", T, float, Half, Float8E4M3) {
  everyShape<RowOneShot, PacketTransport<LL128, 2>, BlockPerRow, T>(300);
  everyShape<RowTwoShot, PacketTransport<LL16, 2>, BlockPerRow, T>(300);
  everyShape<RowTwoShot, MemoryTransport<1>, WarpsPerRow<4>, T>(300);
}

TEST_CASE("one rank, more ranks than rows, more rows than blocks") {
  checkRows<RowOneShot, PacketTransport<LL128, 2>, BlockPerRow, BFloat16>({.ranks = 1, .rows = 4, .columns = 100});
  checkRows<RowTwoShot, PacketTransport<LL128, 2>, BlockPerRow, BFloat16>({.ranks = 1, .rows = 4, .columns = 100});
  checkRows<RowTwoShot, PacketTransport<LL16, 2>, BlockPerRow, BFloat16>({.ranks = 8, .rows = 3, .columns = 64});
  checkRows<RowTwoShot, MemoryTransport<2>, ClusterPerRow, BFloat16>({.ranks = 8, .rows = 9, .columns = 64});
  checkRows<RowOneShot, MemoryTransport<2>, WarpsPerRow<1>, BFloat16>(
      {.ranks = 2, .rows = 100, .columns = 128, .blocks = 2, .calls = 2});
}

namespace {

// What the host is told of one call, empty where there is nothing to tell. `outColumns`: of the matrix to be stored.
struct Attempt {
  std::size_t rows = 2;
  std::size_t columns = 64;
  std::size_t outColumns = 64;
  unsigned threads = 32;
  std::uint64_t packetBytes = 1 << 14;
};

template <class G>
struct StoreKernel {
  MSCCLPP_DEVICE void operator()(float const* x, float* y, Attempt const& attempt, DeviceTeam const& team) const {
    AllReduceRows<RowOneShot, PacketTransport<LL16, 2>, Sum, 0, G>{team}(
        thisGrid(), MatrixView{x, attempt.rows, attempt.columns}, [&](auto& row) {
          row.store(MatrixView{y, attempt.rows, attempt.outColumns});
        });
  }
};

template <class G = BlockPerRow>
std::string refusal(Attempt const& attempt) {
  std::string text;
  forEachRank(1, [&](Rank& rank) {
    Team const team(rank.communicator, {.blocks = 2, .packetBytes = attempt.packetBytes});
    GpuBuffer<float> const x(rank.device, 4096), y(rank.device, 4096);
    launch(rank.stream, {.blocks = 2, .threads = attempt.threads}, StoreKernel<G>{}, x.data(), y.data(), attempt,
           team.deviceHandle());
    try {
      rank.synchronize();
    } catch (Error const& error) {
      text = error.what();
    }
  });
  return text;
}

void checkRefusal(std::string const& text, std::string const& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
}

}  // namespace

namespace {

// Where all values are below 0, and a window that is too small; two calls share what their sums go through.
struct LargestKernel {
  MSCCLPP_DEVICE void operator()(float const* x, float* y, std::int32_t const* n, std::size_t rows,
                                 DeviceTeam const& team, layout::WindowHandle const& window) const {
    constexpr std::size_t columns = 20;
    AllReduceRows<RowOneShot, PacketTransport<LL128>, Sum>{team}(
        thisGrid(), MatrixView{x, rows, columns}, [&](auto& row) {
          auto const largest = row.max([](float v) { return v; });
          row.map([=](float) { return largest; });
          row.store(MatrixView{y, rows, columns});
        });
    AllReduceRows<RowOneShot, PacketTransport<LL128>, Sum>{team}(
        thisGrid(), MatrixView{n, rows, columns}, [&](auto& row) {
          auto const largest = row.max([](std::int32_t v) { return v; });
          row.map([=](std::int32_t) { return largest; });
          row.store(SymmetricMatrix<std::int32_t>(window, 0, rows, columns));
        });
  }
};

}  // namespace

TEST_CASE("the largest value may be below 0, and windows are no shorter than what is stored in them") {
  if (!canRun(1)) return;
  for (std::size_t const held : {std::size_t{60}, std::size_t{59}}) {
    std::string text;
    forEachRank(1, [&](Rank& rank) {
      Team const team(rank.communicator, {.blocks = 2, .lineBytes = 1 << 12});
      GpuBuffer<float> const x(rank.device, 60), y(rank.device, 60);
      GpuBuffer<std::int32_t> const n(rank.device, 60), m(rank.device, 60);
      std::vector<float> in(60);
      std::vector<std::int32_t> whole(60);
      for (std::size_t i = 0; i < 60; ++i)
        whole[i] = static_cast<std::int32_t>(in[i] = -100.0f - static_cast<float>(i));
      copyToDevice(x, std::span<float const>(in));
      copyToDevice(n, std::span<std::int32_t const>(whole));
      MemoryWindow const window(rank.communicator, m.data(), held * sizeof(std::int32_t));
      launch(rank.stream, {.blocks = 2, .threads = 32}, LargestKernel{}, x.data(), y.data(), n.data(), std::size_t{3},
             team.deviceHandle(), window.deviceHandle());
      try {
        rank.synchronize();
      } catch (Error const& error) {
        text = error.what();
        return;
      }
      auto const found = copyToHost(y);
      auto const foundWhole = copyToHost(m);
      for (std::size_t i = 0; i < 60; ++i) {
        CHECK(found[i] == in[i / 20 * 20]);
        CHECK(foundWhole[i] == whole[i / 20 * 20]);
      }
    });
    INFO(text);
    CHECK((held == 60 ? text.empty()
                      : text.find("a view up to byte 240 of a symmetric window of 236") != std::string::npos));
  }
}

TEST_CASE("a launch that cannot work is refused with its numbers") {
  if (!canRun(1)) return;
  CHECK(refusal({}).empty());
  CHECK(refusal({.rows = 0}).empty());
  CHECK(refusal({.columns = 0, .outColumns = 0}).empty());
  checkRefusal(refusal({.columns = 129, .outColumns = 129}),
               "a row of 129 elements: the threads that work on it hold 128");
  checkRefusal(refusal({.threads = 48}), "blocks of 48 threads: at least 64 are needed");
  checkRefusal(refusal<WarpsPerRow<2>>({.threads = 96}), "blocks of 96 threads: at least 128 are needed");
  checkRefusal(refusal<WarpsPerRow<2>>({.threads = 1024}),
               "blocks of 1024 threads with several warps a row: at most 960 can be");
  checkRefusal(refusal({.packetBytes = 128}), "a workspace region of 128 bytes: at least 512 are needed");
  checkRefusal(refusal({.columns = 66, .outColumns = 66, .packetBytes = 512}),
               "a workspace region of 512 bytes: at least 1024 are needed");
  checkRefusal(refusal({.outColumns = 60}), "an output of 60 elements for an input of 64");
}

namespace {

struct WideBlockKernel {
  MSCCLPP_DEVICE void operator()(float const* x, std::int8_t* q, float* scale, DeviceTeam const& team) const {
    AllReduceRows<RowOneShot, PacketTransport<LL128, 4>, Sum, 0, WarpsPerRow<1>>{team}(
        thisGrid(), MatrixView{x, std::size_t{1}, std::size_t{128}}, [&](auto& row) {
          row.template quantise<128>(MatrixView{q, std::size_t{1}, std::size_t{128}},
                                     MatrixView{scale, std::size_t{1}, std::size_t{1}});
        });
  }
};

}  // namespace

TEST_CASE("columns that are quantised together are no more than a stretch of lines") {
  if (!canRun(1)) return;
  forEachRank(1, [&](Rank& rank) {
    Team const team(rank.communicator, {.blocks = 1, .lineBytes = 1 << 14});
    GpuBuffer<float> const x(rank.device, 128), scale(rank.device, 1);
    GpuBuffer<std::int8_t> const q(rank.device, 128);
    launch(rank.stream, {.blocks = 1, .threads = 32}, WideBlockKernel{}, x.data(), q.data(), scale.data(),
           team.deviceHandle());
    std::string text;
    try {
      rank.synchronize();
    } catch (Error const& error) {
      text = error.what();
    }
    checkRefusal(text, "a row of 128 elements: the threads that work on it hold 64");
  });
}

#if !defined(__CUDACC__)
namespace {

struct Word {
  unsigned value;
};

struct EndsEarly {
  MSCCLPP_DEVICE void operator()(unsigned* out) const {
    auto& shared = arch::blockShared<Word, Word>();
    shared.value = arch::blockIndex();
    arch::syncCluster();
    if (arch::clusterRank() == 0) *out = arch::ofClusterBlock(shared, 1)->value;
  }
};
struct OutOfCluster {
  MSCCLPP_DEVICE void operator()(unsigned* out) const {
    auto& shared = arch::blockShared<Word, Word>();
    shared.value = 0;
    arch::syncCluster();
    *out = arch::ofClusterBlock(shared, 2)->value;
  }
};

template <class Kernel>
std::string clusterFailure() {
  std::string text;
  sim::install({.devices = 1, .seed = 3});
  forEachRank(1, [&](Rank& rank) {
    GpuBuffer<unsigned> const out(rank.device, 1);
    for (int turn = 0; turn < 50 && text.empty(); ++turn) {
      launch(rank.stream, {.blocks = 2, .threads = 32, .clusterBlocks = 2}, Kernel{}, out.data());
      try {
        rank.synchronize();
      } catch (Error const& error) {
        text = error.what();
      }
    }
  });
  sim::install({});
  return text;
}

}  // namespace

TEST_CASE("shared memory of a block that is not there") {
  checkRefusal(clusterFailure<OutOfCluster>(), "shared memory of block 2 of its cluster, which has 2 blocks");
  checkRefusal(clusterFailure<EndsEarly>(), "has ended: let the cluster meet before its blocks do");
}
#endif
