// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The port channels of a context: connections and semaphores, one proxy that serves them, and the memories it knows.
#pragma once

#include <vector>

#include "mscclpp/dsl/core/program.hpp"
#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/port_channel.hpp"

namespace mscclpp::dsl {

class PlanPorts {
 public:
  // Collective over the ranks; `shared`: what they share, by rank. Its proxy runs until this is destroyed.
  PlanPorts(Communicator const& communicator, Program const& program, std::vector<RegisteredMemory> const& shared);

  layout::BasePortChannelHandle const* handles() const noexcept {
    return static_cast<layout::BasePortChannelHandle const*>(handles_.data());
  }
  // Numbers of rank 0's memory; the other ranks' follow.
  MemoryId shared() const noexcept { return shared_; }
  void stop() noexcept { service_.stopProxy(); }
  MemoryId ofWindow(MemoryWindow const& window);

 private:
  MemoryId add(std::vector<RegisteredMemory> const& memories);

  struct KnownWindow {
    std::uint64_t id;
    layout::WindowHandle window;
    MemoryId first;
  };

  int rank_;
  int ranks_;
  DeviceMemory handles_;  // by channel of this rank
  ProxyService service_;
  MemoryId shared_;
  std::vector<KnownWindow> windows_;
};

bool usesPorts(Program const& program);

}  // namespace mscclpp::dsl
