// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/transport/verbs/verbs_transport.hpp"

#include <utility>

#include "base/format.hpp"
#include "host/transport/verbs/verbs_connection.hpp"
#include "host/transport/verbs/verbs_device.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

using Devices = std::vector<std::shared_ptr<VerbsDevice>>;

class VerbsEndpoint final : public TransportEndpoint {
 public:
  VerbsEndpoint(Devices devices, std::shared_ptr<VerbsMemories> memories, VerbsOptions const& options)
      : devices_(std::move(devices)),
        atomics_(options.atomics && devices_.front()->atomics()),
        timeout_(options.timeout) {
    parts_.memories = std::move(memories);
    parts_.mailbox = std::make_unique<VerbsMailbox>();
    for (auto const& device : devices_) {
      auto region = std::make_unique<VerbsRegion>(device, parts_.mailbox.get(), sizeof(VerbsMailbox));
      if (parts_.queues.empty()) {
        parts_.mailboxRegion = std::move(region);
      } else {
        parts_.scratchRegions.push_back(std::move(region));
      }
      parts_.queues.push_back(std::make_unique<VerbsQueue>(device, !atomics_));
    }
    own_.rails = static_cast<std::uint32_t>(devices_.size());
    own_.atomics = atomics_ ? 1 : 0;
    own_.mailbox = reinterpret_cast<std::uint64_t>(parts_.mailbox.get());
    own_.mailboxKey = parts_.mailboxRegion->remoteKey();
    for (std::size_t rail = 0; rail < parts_.queues.size(); ++rail) own_.queues[rail] = parts_.queues[rail]->address();
  }

  std::vector<std::byte> address() const override { return serialize(own_); }

  std::shared_ptr<Connection> connect(int rank, int peer, std::span<std::byte const> peerAddress) override {
    auto const address = parseVerbsAddress(rank, peer, peerAddress);
    if (parts_.queues.empty()) {
      fail(ErrorCode::invalidUsage, "rank {}: connect over InfiniBand to rank {}: this endpoint is connected already",
           rank, peer);
    }
    // Those that only one side has stay unused.
    if (parts_.queues.size() > address.rails) {
      parts_.queues.resize(address.rails);
      parts_.scratchRegions.resize(address.rails - 1);
    }
    for (std::size_t rail = 0; rail < parts_.queues.size(); ++rail) {
      auto& queue = *parts_.queues[rail];
      queue.connect(fmt::format("rank {}: InfiniBand to rank {}", rank, peer), address.queues[rail], timeout_);
      if (rail > 0 || atomics_) continue;
      for (std::uint32_t i = 0; i < VerbsQueue::receives; ++i) queue.addReceive();
    }
    return std::make_shared<VerbsConnection>(rank, peer, std::move(parts_), address, atomics_, timeout_);
  }

 private:
  Devices devices_;
  bool atomics_;
  std::chrono::nanoseconds timeout_;
  VerbsParts parts_;
  VerbsAddress own_{};
};

class VerbsTransport final : public TransportContext {
 public:
  explicit VerbsTransport(VerbsOptions const& options)
      : options_(options),
        devices_(chooseVerbsDevices({.devices = options.devices,
                                     .gidIndex = options.gidIndex,
                                     .rails = options.rails,
                                     .nearBusId = options.nearBusId,
                                     .place = options.place})),
        memories_(std::make_shared<VerbsMemories>()) {
    if (devices_.size() > mostRails) {
      fail(ErrorCode::invalidUsage, "MSCCLPP_IB_HCA=\"{}\" names {} devices; a connection uses at most {}",
           options.devices, devices_.size(), mostRails);
    }
    for (auto const& device : devices_) {
      log(LogLevel::info, "InfiniBand: using {}, GID {}, {}", device->describe(), device->gidIndex(),
          device->atomics() ? "with atomics" : "without atomics");
    }
  }

  Transport transport() const noexcept override { return Transport::ib; }

  std::shared_ptr<Registration> registerMemory(int rank, Device device, void* data, std::size_t bytes) override {
    OpenMemory const memory{static_cast<std::byte*>(data), bytes, device, device.kind == DeviceKind::cuda};
    return std::make_shared<VerbsRegistration>(rank, devices_, memories_, memory);
  }

  std::unique_ptr<TransportEndpoint> createEndpoint(int, Device) override {
    return std::make_unique<VerbsEndpoint>(devices_, memories_, options_);
  }

 private:
  VerbsOptions options_;
  Devices devices_;
  std::shared_ptr<VerbsMemories> memories_;
};

}  // namespace

VerbsOptions VerbsOptions::fromEnvironment(Device device, TransportOptions const& options) {
  auto const& set = environment();
  VerbsOptions result;
  result.devices = set.ibDevices;
  result.rails = set.ibRails;
  result.gidIndex = set.ibGidIndex;
  result.atomics = set.ibAtomics;
  result.nearBusId = device.properties().busId;
  result.place = device.ordinal;
  result.timeout = options.timeout;
  return result;
}

std::string missingVerbs() { return verbsDevicesMissing(); }

std::shared_ptr<TransportContext> makeVerbsTransport(VerbsOptions const& options) {
  if (options.rails < 1 || options.rails > static_cast<int>(mostRails)) {
    fail(ErrorCode::invalidUsage, "InfiniBand with {} devices per connection: use 1 to {}", options.rails, mostRails);
  }
  return std::make_shared<VerbsTransport>(options);
}

}  // namespace mscclpp
