// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Port channels between all ranks of a communicator, by which each sends a part to each other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mscclpp/device/device_handle.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "mscclpp/launch/launch.hpp"

namespace faults {

class Ports {
 public:
  static constexpr std::uint32_t part = 64;  // words to each rank

  Ports(mscclpp::Communicator const& communicator, mscclpp::Transport transport)
      : rank_(communicator.rank()),
        source_(communicator.device(), words(communicator)),
        inbox_(communicator.device(), words(communicator)),
        service_(communicator, {.proxies = 1, .fifoSize = 16}) {
    mscclpp::TransportSet const transports(transport);
    registered_ = communicator.registerMemory(inbox_.data(), inbox_.bytes(), transports);
    auto const all = communicator.exchangeMemory(registered_);
    auto const source = service_.addMemory(communicator.registerMemory(source_.data(), source_.bytes(), transports));
    std::vector<mscclpp::PortChannelDeviceHandle> handles;
    for (int peer = 0; peer < communicator.size(); ++peer) {
      if (peer == rank_) continue;
      auto const semaphore = service_.buildAndAddSemaphore(communicator.connect(peer, {.transport = transport}));
      auto const target = service_.addMemory(all[static_cast<std::size_t>(peer)]);
      handles.emplace_back(service_.portChannel(semaphore, target, source).deviceHandle());
    }
    channels_ = mscclpp::GpuBuffer<mscclpp::PortChannelDeviceHandle>(communicator.device(), handles.size());
    mscclpp::copyToDevice(channels_, std::span<mscclpp::PortChannelDeviceHandle const>(handles));
    service_.startProxy();
  }

  // `words`: a part for each rank. Part r of `out` is what rank r sent.
  void start(mscclpp::Stream const& stream, std::vector<std::uint32_t> const& words, std::uint32_t* out) const {
    mscclpp::copyToDevice(source_, std::span<std::uint32_t const>(words));
    mscclpp::launch(stream, {.blocks = 1, .threads = 32}, Exchange{}, channels_.data(),
                    static_cast<int>(channels_.size()), rank_, source_.data(), inbox_.data(), out);
  }

 private:
  struct Exchange {
    MSCCLPP_DEVICE void operator()(mscclpp::PortChannelDeviceHandle const* channels, int peers, int rank,
                                   std::uint32_t const* source, std::uint32_t const* inbox, std::uint32_t* out) const {
      constexpr std::uint64_t bytes = part * sizeof(std::uint32_t);
      auto const block = mscclpp::thisBlock();
      for (int c = 0; c < peers; ++c) {
        auto const peer = static_cast<std::uint64_t>(c < rank ? c : c + 1);
        channels[c].putWithSignal(block, static_cast<std::uint64_t>(rank) * bytes, peer * bytes, bytes);
      }
      for (int c = 0; c < peers; ++c) channels[c].wait(block);
      for (std::uint32_t i = block.rank(); i < part * static_cast<std::uint32_t>(peers + 1); i += block.size()) {
        out[i] = i / part == static_cast<std::uint32_t>(rank) ? source[i] : inbox[i];
      }
      // Sources and inboxes are used again by the next step.
      for (int c = 0; c < peers; ++c) channels[c].flush(block);
      for (int c = 0; c < peers; ++c) channels[c].signal(block);
      for (int c = 0; c < peers; ++c) channels[c].wait(block);
    }
  };

  static std::size_t words(mscclpp::Communicator const& communicator) {
    return part * static_cast<std::size_t>(communicator.size());
  }

  int rank_;
  mscclpp::GpuBuffer<std::uint32_t> source_;
  mscclpp::GpuBuffer<std::uint32_t> inbox_;
  mscclpp::RegisteredMemory registered_;  // while peers write to it
  mscclpp::ProxyService service_;
  mscclpp::GpuBuffer<mscclpp::PortChannelDeviceHandle> channels_;
};

}  // namespace faults
