// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "machine/bare_launch.hpp"
#include "machine/machine.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::bench {
namespace {

void check(cudaError_t code, char const* operation) {
  if (code == cudaSuccess) return;
  (void)cudaGetLastError();
  throw Error(ErrorCode::deviceError,
              fmt::format("benchmark: {}: {} ({})", operation, cudaGetErrorString(code), cudaGetErrorName(code)));
}

constexpr int repetitionsAhead = 2;

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "make an event"); }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(Event const&) = delete;
  Event& operator=(Event const&) = delete;

  // Inside of a captured graph: taken at that point of every replay.
  void record(cudaStream_t stream) const {
    check(cudaEventRecordWithFlags(event_, stream, cudaEventRecordExternal), "record an event in a graph");
  }
  double secondsSince(Event const& earlier) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "read the time between two events");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class Graph {
 public:
  template <class Work>
  Graph(cudaStream_t stream, Work&& work) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "begin to capture a graph");
    try {
      std::forward<Work>(work)();
    } catch (...) {
      cudaGraph_t unfinished = nullptr;
      (void)cudaStreamEndCapture(stream, &unfinished);
      if (unfinished != nullptr) (void)cudaGraphDestroy(unfinished);
      throw;
    }
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "end the capture of a graph");
    auto const code = cudaGraphInstantiateWithFlags(&executable_, graph, 0);
    (void)cudaGraphDestroy(graph);
    check(code, "instantiate a graph");
  }
  ~Graph() { (void)cudaGraphExecDestroy(executable_); }
  Graph(Graph const&) = delete;
  Graph& operator=(Graph const&) = delete;

  void upload(cudaStream_t stream) const { check(cudaGraphUpload(executable_, stream), "upload a graph"); }
  void launch(cudaStream_t stream) const { check(cudaGraphLaunch(executable_, stream), "launch a graph"); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

// The events lie inside the graph, behind operations that bring all ranks to the same point, so neither the host's
// launch time nor its uneven start on the ranks is measured.
class GraphTimer final : public Timer {
 public:
  GraphTimer(cudaStream_t stream, int leads) : stream_(stream), leads_(leads) {}

  int leads() const override { return leads_; }

  std::vector<double> measure(Repetition const& repetition, int replays) override {
    Event const begin;
    Event const end;
    Graph const graph(stream_, [&] {
      for (int i = 0; i < leads_; ++i) repetition.operate(i, i > 0);
      begin.record(stream_);
      for (int i = 0; i < repetition.operations; ++i) repetition.operate(leads_ + i, i > 0);
      end.record(stream_);
    });
    graph.upload(stream_);
    std::vector<double> seconds;
    for (int replay = -repetitionsAhead; replay < replays; ++replay) {
      repetition.restore();
      repetition.synchronize();
      repetition.together();
      graph.launch(stream_);
      repetition.synchronize();
      if (replay >= 0) seconds.push_back(end.secondsSince(begin) / repetition.operations);
    }
    // What follows may stop the device, which must not happen to a rank that others still wait for.
    repetition.together();
    return seconds;
  }

 private:
  cudaStream_t stream_;
  int leads_;
};

class CudaMachine final : public Machine {
 public:
  DeviceKind kind() const override { return DeviceKind::cuda; }
  void prepare(int) override {}
  int defaultRanks() const override { return Device::count(DeviceKind::cuda); }
  void use(Device device) override { check(cudaSetDevice(device.ordinal), "select a device"); }
  std::unique_ptr<Timer> makeTimer(Stream const& stream, int leads) const override {
    return std::make_unique<GraphTimer>(static_cast<cudaStream_t>(stream.native()), leads);
  }
  bool makesGraphs() const override { return true; }
  int warmUps() const override { return repetitionsAhead; }
  std::function<void()> bareLaunch(Stream const& stream, LaunchShape const& shape) const override {
    return makeBareLaunch(stream, shape);
  }
  void start(Stream const& stream, PortProbe const& probe) const override {
    startPortProbe<DeviceKind::cuda>(stream, probe);
  }
  std::chrono::seconds kernelLimit() const override { return std::chrono::seconds(20); }
  std::string note() const override { return {}; }
};

bool const registered = registerMachine(std::make_unique<CudaMachine>());

}  // namespace
}  // namespace mscclpp::bench
