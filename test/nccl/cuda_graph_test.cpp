// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Graphs of calls through libmscclpp_nccl.so on GPUs, a thread a rank: they alternate with other calls, each its own
// team, and their messages meet calls of ranks that capture nothing.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
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

// Rank 0 sends to rank 1 a message that needs memory of its own, which rank `captures` has in a graph.
void checkMessage(int rank, int captures, ncclUniqueId const& id) {
  constexpr std::size_t large = 1 << 20;
  isRight(cudaSetDevice(rank));
  cudaStream_t stream = nullptr;
  ncclComm_t comm = nullptr;
  void* data = nullptr;
  isRight(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK_NCCL(ncclCommInitRank(&comm, 2, id, rank));
  if (comm == nullptr || !isRight(cudaMalloc(&data, large * sizeof(float)))) return;
  auto const call = [&] {
    CHECK_NCCL(rank == 0 ? ncclSend(data, large, ncclFloat32, 1, comm, stream)
                         : ncclRecv(data, large, ncclFloat32, 0, comm, stream));
  };
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  if (rank == captures) {
    isRight(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    call();
    isRight(cudaStreamEndCapture(stream, &graph));
    isRight(cudaGraphInstantiateWithFlags(&executable, graph, 0));
  }
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<float> values(large, static_cast<float>(rank == 0 ? turn : -1));
    isRight(cudaMemcpy(data, values.data(), large * sizeof(float), cudaMemcpyHostToDevice));
    if (rank == captures && turn % 3 != 0) {
      isRight(cudaGraphLaunch(executable, stream));
    } else {
      call();
    }
    isRight(cudaStreamSynchronize(stream));
    isRight(cudaMemcpy(values.data(), data, large * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(std::ranges::count(values, static_cast<float>(turn)) == static_cast<std::ptrdiff_t>(large));
  }
  if (executable != nullptr) isRight(cudaGraphExecDestroy(executable));
  if (graph != nullptr) isRight(cudaGraphDestroy(graph));
  CHECK_NCCL(ncclCommDestroy(comm));
  isRight(cudaFree(data));
  isRight(cudaStreamDestroy(stream));
}

void onRanks(int ranks, std::function<void(int rank, ncclUniqueId const& id)> const& body) {
  ncclUniqueId id{};
  CHECK_NCCL(ncclGetUniqueId(&id));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { body(rank, id); });
  for (auto& thread : threads) thread.join();
}

int gpus() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

}  // namespace

TEST_CASE("a graph with a collective, a put and a wait alternates with other calls") {
  int const ranks = std::min(gpus(), 4);
  if (ranks == 0) {
    MESSAGE("left out: there is no GPU");
    return;
  }
  onRanks(ranks, [&](int rank, ncclUniqueId const& id) { checkRank(rank, ranks, id); });
}

TEST_CASE("the first large message is in a graph of one rank, and a call of the other") {
  if (gpus() < 2) {
    MESSAGE("left out: it takes two GPUs");
    return;
  }
  for (int const captures : {0, 1}) {
    onRanks(2, [&](int rank, ncclUniqueId const& id) { checkMessage(rank, captures, id); });
  }
}
