// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Graphs of calls through libmscclpp_nccl.so on GPUs, a thread a rank: they alternate with other calls, each its own
// team.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "nccl/functions.hpp"

namespace {

constexpr std::size_t count = 1000;

#define CHECK_NCCL(call) CHECK_MESSAGE((call) == ncclSuccess, ncclGetLastError(nullptr))

bool isRight(cudaError_t code) {
  CHECK_MESSAGE(code == cudaSuccess, cudaGetErrorString(code));
  return code == cudaSuccess;
}

// `of` floats of NCCL's memory, in a symmetric window.
struct Shared {
  Shared(ncclComm_t owner, std::size_t of) : comm(owner), floats(of) {
    CHECK_NCCL(ncclMemAlloc(&memory, floats * sizeof(float)));
    CHECK_NCCL(ncclCommWindowRegister(comm, memory, floats * sizeof(float), &window, 1));
  }
  ~Shared() {
    CHECK_NCCL(ncclCommWindowDeregister(comm, window));
    CHECK_NCCL(ncclMemFree(memory));
  }
  void set(float value) const {
    std::vector<float> const all(floats, value);
    isRight(cudaMemcpy(memory, all.data(), floats * sizeof(float), cudaMemcpyHostToDevice));
  }
  bool are(float value) const {
    std::vector<float> all(floats);
    isRight(cudaMemcpy(all.data(), memory, floats * sizeof(float), cudaMemcpyDeviceToHost));
    return std::ranges::count(all, value) == static_cast<std::ptrdiff_t>(floats);
  }

  ncclComm_t comm;
  std::size_t floats;
  void* memory = nullptr;
  ncclWindow_t window = nullptr;
};

void checkRank(int rank, int ranks, ncclUniqueId const& id) {
  isRight(cudaSetDevice(rank));
  cudaStream_t stream = nullptr;
  ncclComm_t comm = nullptr;
  isRight(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK_NCCL(ncclCommInitRank(&comm, ranks, id, rank));
  if (comm == nullptr) return;
  {
    Shared const sums(comm, count), puts(comm, count), own(comm, count);
    int const next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    own.set(static_cast<float>(rank));
    auto const reduce = [&](Shared const& what) {
      CHECK_NCCL(ncclAllReduce(what.memory, what.memory, count, ncclFloat32, ncclMax, comm, stream));
    };
    reduce(sums);  // what a communicator makes once
    isRight(cudaStreamSynchronize(stream));

    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    isRight(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    reduce(sums);
    ncclWindow_t late = nullptr;  // some programs register only now
    CHECK_NCCL(ncclCommWindowRegister(comm, own.memory, sizeof(float), &late, 1));
    CHECK_NCCL(ncclCommWindowDeregister(comm, late));
    ncclWaitSignalDesc_t wait{1, last, 0, 0};
    CHECK_NCCL(ncclPutSignal(own.memory, count, ncclFloat32, next, puts.window, 0, 0, 0, 0, comm, stream));
    CHECK_NCCL(ncclWaitSignal(1, &wait, comm, stream));
    isRight(cudaStreamEndCapture(stream, &graph));
    isRight(cudaGraphInstantiateWithFlags(&executable, graph, 0));
    for (int turn = 1; turn <= 50; ++turn) {
      sums.set(static_cast<float>(turn + rank));
      puts.set(-1);
      reduce(own);  // everybody has set theirs; and a call between replays
      isRight(cudaStreamSynchronize(stream));
      own.set(static_cast<float>(rank));
      isRight(cudaGraphLaunch(executable, stream));
      isRight(cudaStreamSynchronize(stream));
      CHECK(sums.are(static_cast<float>(turn + ranks - 1)));
      CHECK(puts.are(static_cast<float>(last)));
      reduce(sums);  // nobody begins the next turn before all have looked
      isRight(cudaStreamSynchronize(stream));
    }
    isRight(cudaGraphExecDestroy(executable));
    isRight(cudaGraphDestroy(graph));
  }
  CHECK_NCCL(ncclCommDestroy(comm));
  isRight(cudaStreamDestroy(stream));
}

}  // namespace

TEST_CASE("a graph with a collective, a put and a wait alternates with other calls") {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    MESSAGE("left out: there is no GPU");
    return;
  }
  int const ranks = std::min(devices, 4);
  ncclUniqueId id{};
  CHECK_NCCL(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([=] { checkRank(rank, ranks, id); });
  for (auto& thread : threads) thread.join();
}
