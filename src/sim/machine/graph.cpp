// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/sim/graph.hpp"

#include <utility>

#include <fmt/format.h>

#include "mscclpp/host/error.hpp"
#include "sim/machine/machine.hpp"

namespace mscclpp::sim {
namespace {

// One of the graph's own, in place of a stream that took part in the capture.
struct SideStream {
  explicit SideStream(int device) : stream(Machine::instance().createStream(device, false)) {}
  ~SideStream() { Machine::instance().destroyStream(stream); }
  SideStream(SideStream const&) = delete;
  SideStream& operator=(SideStream const&) = delete;

  Stream* stream;
};

Stream& streamOf(mscclpp::Stream const& stream, char const* operation) {
  if (stream.device().kind != DeviceKind::sim) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("{}: a stream of {} device {}; these graphs are for simulated devices", operation,
                            nameOf(stream.device().kind), stream.device().ordinal));
  }
  return Machine::instance().checkStream(stream.native(), operation);
}

}  // namespace

struct Graph::Impl {
  int device;
  std::vector<CapturedWork> work{};
  std::vector<std::unique_ptr<SideStream>> sides{};
};

Graph::Graph(mscclpp::Stream const& stream, std::function<void()> const& work) {
  auto& machine = Machine::instance();
  auto& captured = streamOf(stream, "Graph");
  machine.beginCapture(captured);
  try {
    work();
  } catch (...) {
    (void)machine.endCapture(captured);
    throw;
  }
  auto capture = machine.endCapture(captured);
  impl_ = std::make_unique<Impl>(Impl{captured.device(), std::move(capture.work)});
  for (std::size_t i = 1; i < capture.streams.size(); ++i) {
    impl_->sides.push_back(std::make_unique<SideStream>(captured.device()));
  }
}

Graph::~Graph() = default;

void Graph::launch(mscclpp::Stream const& stream) const {
  auto& machine = Machine::instance();
  auto& main = streamOf(stream, "Graph::launch");
  if (main.device() != impl_->device) {
    throw Error(ErrorCode::invalidUsage,
                fmt::format("Graph::launch: a graph of simulated device {} into a stream of device {}; launch it where "
                            "it was captured",
                            impl_->device, main.device()));
  }
  auto const streamAt = [&](std::size_t i) -> Stream& { return i == 0 ? main : *impl_->sides[i - 1]->stream; };
  for (auto const& [at, what] : impl_->work) {
    if (auto const* const kernel = std::get_if<KernelWork>(&what)) {
      machine.launch(streamAt(at), *kernel);
    } else if (auto const* const copy = std::get_if<CopyWork>(&what)) {
      machine.copy(streamAt(at), *copy);
    } else {
      machine.orderAfter(streamAt(at), streamAt(std::get<AfterStream>(what).earlier));
    }
  }
  for (auto const& side : impl_->sides) machine.orderAfter(main, *side->stream);
}

}  // namespace mscclpp::sim
