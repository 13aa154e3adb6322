// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a CUDA graph is, on the simulated machine: what host code puts into a stream, kept to be run any number of times
// without that code.
//
//   sim::Graph const graph(stream, [&] { algorithms.execute(Collective::allReduce, communicator, stream, call); });
//   graph.launch(stream);
#pragma once

#include <functional>
#include <memory>

#include "mscclpp/host/stream.hpp"

namespace mscclpp::sim {

class Graph {
 public:
  // Runs `work`, of which nothing runs on the device now. A stream that it puts behind this one (Stream::runAfter)
  // takes part. Meanwhile these streams cannot be waited for, nor their device, and no stream outside be put behind or
  // ahead of them: invalidUsage, as on CUDA an error. Throws what `work` throws; then nothing is kept.
  Graph(mscclpp::Stream const& stream, std::function<void()> const& work);
  ~Graph();
  Graph(Graph const&) = delete;
  Graph& operator=(Graph const&) = delete;

  // Puts all of it into a stream of the same device. What `work` left in other streams is done before what follows.
  void launch(mscclpp::Stream const& stream) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mscclpp::sim
