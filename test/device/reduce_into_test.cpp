// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums that memory makes: all parts are in them, whatever the order, and nothing beside them is touched.
#include "mscclpp/device/tiles/reduce_into.hpp"

#include <cstdint>
#include <span>
#include <vector>

#include "mscclpp/device/group.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/layout/window_handle.hpp"
#include "support/fused.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

namespace {

constexpr unsigned most = 256;  // elements of a part

// Small whole numbers, whose sums are exact in every type and order.
template <class T>
MSCCLPP_HOST_DEVICE T partOf(unsigned block, unsigned i) {
  return convertNumber<T>(static_cast<float>((block * 3 + i) % 5));
}

template <class T>
struct alignas(16) Part {
  T values[most];
};

// Each block adds its part, in two copies of one group.
template <class T>
struct BulkKernel {
  MSCCLPP_DEVICE void operator()(T* dst, unsigned count) const {
    auto const block = thisBlock();
    auto& part = arch::blockShared<Part<T>, BulkKernel>();
    for (unsigned i = block.rank(); i < count; i += block.size()) part.values[i] = partOf<T>(thisGrid().blockRank(), i);
    bulkFence();
    block.sync();
    if (block.rank() == 0) {
      auto const first = static_cast<std::uint32_t>(16 / sizeof(T));
      bulkReduceAdd(dst, part.values, 16);
      if (count > first)
        bulkReduceAdd(dst + first, part.values + first, (count - first) * static_cast<std::uint32_t>(sizeof(T)));
      bulkCommit();
      bulkWait();
    }
  }
};

// Each block of each rank adds its part to every rank's memory, a vector a thread.
template <class T>
struct VectorKernel {
  MSCCLPP_DEVICE void operator()(layout::WindowHandle const& window, unsigned count) const {
    constexpr unsigned n = 16 / sizeof(T);
    auto const me = static_cast<unsigned>(window.rank) * thisGrid().blockCount() + thisGrid().blockRank();
    for (unsigned i = thisBlock().rank() * n; i < count; i += thisBlock().size() * n) {
      Vector<T, n> value;
      for (unsigned k = 0; k < n; ++k) value[k] = partOf<T>(me, i + k);
      for (int rank = 0; rank < window.size; ++rank) {
        reduceAdd<Scope::system>(reinterpret_cast<T*>(window.bases[rank]) + i, value);
      }
      reduceAdd<Scope::device>(reinterpret_cast<T*>(window.bases[window.rank]) + most + i, value);
    }
  }
};

template <class T>
std::vector<float> sumsOf(unsigned first, unsigned parts, unsigned count) {
  std::vector<float> sums(count, 1);  // what is there before
  for (unsigned part = first; part < first + parts; ++part) {
    for (unsigned i = 0; i < count; ++i) sums[i] += convertNumber<float>(partOf<T>(part, i));
  }
  return sums;
}

template <class T>
std::vector<float> asFloats(std::span<T const> values) {
  std::vector<float> result;
  for (auto const value : values) result.push_back(convertNumber<float>(value));
  return result;
}

}  // namespace

TEST_CASE_TEMPLATE("bulk additions of several blocks", T, float, Half, BFloat16, std::uint32_t, std::int32_t,
                   std::uint64_t) {
  if (!canRun(1)) return;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    forEachRank(1,
                [](Rank& rank) {
                  if (!canBulkCopy(rank)) return;
                  constexpr unsigned n = 16 / sizeof(T);
                  for (unsigned const count : {n, 4 * n, most}) {
                    CAPTURE(count);
                    GpuBuffer<T> const dst(rank.device, most + n);
                    std::vector<T> const ones(dst.size(), convertNumber<T>(1.0f));
                    copyToDevice(dst, std::span<T const>(ones));
                    launch(rank.stream, {.blocks = 4, .threads = 32}, BulkKernel<T>{}, dst.data(), count);
                    rank.synchronize();
                    auto expected = sumsOf<T>(0, 4, count);
                    expected.resize(dst.size(), 1);
                    auto const found = copyToHost(dst);
                    CHECK(asFloats<T>(found) == expected);
                  }
                },
                {.seed = seed});
  }
}

TEST_CASE_TEMPLATE("additions of vectors by several ranks", T, float, Half, BFloat16) {
  if (!canRun(3)) return;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    forEachRank(3,
                [](Rank& rank) {
                  if (!canBulkCopy(rank)) return;
                  GpuBuffer<T> const memory(rank.device, 2 * most);
                  std::vector<T> const ones(memory.size(), convertNumber<T>(1.0f));
                  copyToDevice(memory, std::span<T const>(ones));
                  MemoryWindow const window(rank.communicator, memory.data(), memory.bytes());
                  rank.meet();
                  launch(rank.stream, {.blocks = 2, .threads = 32}, VectorKernel<T>{}, window.deviceHandle(), most);
                  rank.synchronize();
                  auto expected = sumsOf<T>(0, 6, most);
                  auto const own = sumsOf<T>(static_cast<unsigned>(rank.rank) * 2, 2, most);
                  expected.insert(expected.end(), own.begin(), own.end());
                  auto const found = copyToHost(memory);
                  CHECK(asFloats<T>(found) == expected);
                },
                {.seed = seed});
  }
}
