// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls captured into CUDA graphs.
#include "collectives/captured/captured_calls.hpp"

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
    // CUDA invalidates a capture beside which it is asked whether the device is idle.
    checkCapturedCalls<Graph>(communicator, [](Stream const& stream, auto&& work) {
      auto* const native = static_cast<cudaStream_t>(stream.native());
      check(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal));
      work();
      cudaGraph_t graph = nullptr;
      CHECK(cudaStreamEndCapture(native, &graph) == cudaErrorStreamCaptureInvalidated);
      (void)cudaGetLastError();
    });
  });
}
#else
TEST_CASE("a captured call makes what it needs and keeps it for replays") {
  MESSAGE("left out: this build has no CUDA");
  CHECK(!hasRuntime(DeviceKind::cuda));
}
#endif
