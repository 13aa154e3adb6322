// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks of an NCCL communicator as threads, each with a simulated device.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/stream.hpp"
#include "nccl/functions.hpp"
#include "nccl/machine_sim.hpp"

namespace mscclpp_test {

using namespace mscclpp;

// What the calling thread was told last.
inline std::string lastError() { return ncclGetLastError(nullptr); }

#define CHECK_NCCL(call) CHECK_MESSAGE((call) == ncclSuccess, lastError())

struct NcclRank {
  int rank;
  int size;
  ncclComm_t comm;
  Device device;
  Stream& stream;

  ncclStream native() const { return stream.native(); }
};

inline Device simDevice(int ordinal) { return {DeviceKind::sim, ordinal}; }

inline void onThreads(int count, std::function<void(int)> const& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&body, i] {
      mscclppNcclSimSetDevice(i);
      body(i);
    });
  }
  for (auto& thread : threads) thread.join();
}

inline void forEachNcclRank(int ranks, std::function<void(NcclRank&)> const& body) {
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  onThreads(ranks, [&](int rank) {
    Stream stream(simDevice(rank));
    ncclComm_t comm = nullptr;
    CHECK_NCCL(ncclCommInitRank(&comm, ranks, id, rank));
    if (comm == nullptr) return;
    NcclRank self{rank, ranks, comm, simDevice(rank), stream};
    body(self);
    stream.synchronize();
    CHECK_NCCL(ncclCommDestroy(comm));
  });
}

// Elements of device memory, with their values on the host.
template <class T>
class Data {
 public:
  Data(Device device, std::size_t count, T value) : buffer_(device, count) { set(std::vector<T>(count, value)); }
  Data(Device device, std::vector<T> const& values) : buffer_(device, values.size()) { set(values); }

  T* data() const { return buffer_.data(); }
  void set(std::vector<T> const& values) { copyToDevice(buffer_, std::span<T const>(values)); }
  std::vector<T> values() const { return copyToHost(buffer_); }
  bool are(T value) const {
    auto const all = values();
    return std::ranges::all_of(all, [&](T one) { return one == value; });
  }

 private:
  GpuBuffer<T> buffer_;
};

// 1 + 2 + ... for ranks that give their number plus one.
inline float sumTo(int ranks) { return static_cast<float>(ranks * (ranks + 1) / 2); }

}  // namespace mscclpp_test
