// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls captured into CUDA graphs: contexts made while capturing, and kept for replays while later calls need larger
// ones.
#include "collectives/allreduce.hpp"

#if MSCCLPP_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

using namespace mscclpp_test;

#if MSCCLPP_HAS_CUDA
namespace {

void check(cudaError_t code) { REQUIRE_MESSAGE(code == cudaSuccess, cudaGetErrorString(code)); }

class Graph {
 public:
  template <class Work>
  Graph(Stream const& stream, Work&& work) {
    auto* const native = static_cast<cudaStream_t>(stream.native());
    check(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal));
    work();
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(native, &graph));
    check(cudaGraphInstantiateWithFlags(&executable_, graph, 0));
    check(cudaGraphDestroy(graph));
  }
  ~Graph() { (void)cudaGraphExecDestroy(executable_); }
  Graph(Graph const&) = delete;
  Graph& operator=(Graph const&) = delete;

  void launch(Stream const& stream) const {
    check(cudaGraphLaunch(executable_, static_cast<cudaStream_t>(stream.native())));
  }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace

TEST_CASE("a captured call makes what it needs and keeps it for replays") {
  if (Device::count(DeviceKind::cuda) < 2 || !KernelTable::instance().has(DeviceKind::cuda)) {
    MESSAGE("left out: needs 2 GPUs and kernels for them");
    return;
  }
  forEachRankOn(DeviceKind::cuda, std::min(4, Device::count(DeviceKind::cuda)), [](Communicator& communicator) {
    check(cudaSetDevice(communicator.device().ordinal));
    auto const algorithms = AlgorithmCollection::defaults();
    Stream stream(communicator.device());
    auto const replay = [&](Graph const& graph, Sums<float, Sum> const& sums) {
      for (int i = 0; i < 3; ++i) {
        sums.out.fill(0);
        communicator.bootstrap()->barrier();
        graph.launch(stream);
        communicator.synchronize(stream);
        CHECK(sums.wrong() == 0);
        communicator.bootstrap()->barrier();
      }
    };
    Sums<float, Sum> const small(communicator, 1000, 1);
    auto const named = algorithms.at(Collective::allReduce, "oneshot_ll16");
    Graph const first(stream, [&] {
      for (int i = 0; i < 5; ++i) named->execute(communicator, stream, small.call());
    });
    CHECK(contextCounts(communicator).teams == 1);
    replay(first, small);

    // A larger call replaces the workspace, but not for the graph.
    Sums<float, Sum> const large(communicator, 5'000'000, 2);
    algorithms.at(Collective::allReduce, "twoshot_memory")->execute(communicator, stream, large.call());
    communicator.synchronize(stream);
    CHECK(large.wrong() == 0);
    CHECK(contextCounts(communicator).retiredTeams == 1);
    replay(first, small);

    // Algorithms that use the peers' buffers, their windows made while capturing.
    auto symmetric = small.call();
    symmetric.symmetric = true;
    auto const direct = algorithms.at(Collective::allReduce, "pull");
    Graph const second(stream, [&] { direct->execute(communicator, stream, symmetric); });
    CHECK(contextCounts(communicator).windows == 2);
    replay(second, small);
    replay(first, small);
    releaseContexts(communicator);
    CHECK(contextCounts(communicator) == ContextCounts{});
  });
}
#else
TEST_CASE("a captured call makes what it needs and keeps it for replays") {
  MESSAGE("left out: this build has no CUDA");
  CHECK(!hasRuntime(DeviceKind::cuda));
}
#endif
