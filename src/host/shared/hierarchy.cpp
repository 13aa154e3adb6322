// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/hierarchy.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/format.hpp"
#include "host/core/communicator_impl.hpp"
#include "host/shared/node_steps.hpp"
#include "mscclpp/base/bits.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "mscclpp/host/team.hpp"

namespace mscclpp {
namespace {

// What a rank tells all others before anything is made.
struct HierarchyProposal {
  std::uint32_t blocks;
  bool allToAll;
  bool reductions;
  std::uint64_t bytes;
  std::uint64_t messageBytes;
  std::uint64_t transferBytes;
  std::int64_t schedule;  // -1: by size
};

constexpr std::size_t alignment = 128;

std::vector<HierarchyProposal> gather(Communicator const& communicator, HierarchyRequirement const& requirement) {
  std::vector<HierarchyProposal> all(static_cast<std::size_t>(communicator.size()));
  bool const tcp = communicator.transports().has(Transport::tcp);
  all[static_cast<std::size_t>(communicator.rank())] = {
      .blocks = requirement.blocks,
      .allToAll = requirement.allToAll,
      .reductions = requirement.reductions,
      .bytes = requirement.bytes,
      .messageBytes = requirement.messageBytes.value_or(tcp ? layout::tcpMessageBytes : layout::usualMessageBytes),
      .transferBytes = requirement.transferBytes.value_or(tcp ? layout::tcpTransferBytes : layout::usualTransferBytes),
      .schedule = requirement.schedule ? static_cast<int>(*requirement.schedule) : -1};
  communicator.setup()->allGather(all.data(), sizeof(HierarchyProposal));
  return all;
}

template <class T>
GpuBuffer<T> onDevice(Device device, std::vector<T> const& values) {
  GpuBuffer<T> buffer(device, std::max<std::size_t>(values.size(), 1));
  copyToDevice(buffer, std::span<T const>(values));
  return buffer;
}

}  // namespace

std::vector<int> hostsOf(Communicator const& communicator) { return CommunicatorImpl::of(communicator)->domains; }

std::vector<std::vector<int>> nodesOf(std::vector<int> const& hosts) {
  std::map<int, std::vector<int>> byHost;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) byHost[hosts[rank]].push_back(static_cast<int>(rank));
  std::size_t size = 0;
  for (auto const& [host, ranks] : byHost) size = std::gcd(size, ranks.size());
  std::vector<std::vector<int>> nodes;
  for (auto const& [host, ranks] : byHost) {
    for (auto first = ranks.begin(); first != ranks.end(); first += static_cast<std::ptrdiff_t>(size)) {
      nodes.emplace_back(first, first + static_cast<std::ptrdiff_t>(size));
    }
  }
  return nodes;
}

struct HierarchicalTeam::Impl {
  std::vector<std::vector<int>> nodes;
  std::size_t node = 0;
  std::size_t rail = 0;
  GpuBuffer<std::byte> data;
  GpuBuffer<std::byte> inbox;
  GpuBuffer<std::byte> outbox;
  std::unique_ptr<Team> team;
  std::unique_ptr<MemoryWindow> window;
  std::unique_ptr<MemoryWindow> outboxWindow;
  std::unique_ptr<ProxyService> service;
  GpuBuffer<std::int32_t> ranks;
  GpuBuffer<layout::PortChannelHandle> gatherChannels;
  GpuBuffer<layout::PortChannelHandle> exchangeChannels;
  GpuBuffer<layout::PortChannelHandle> dealChannels;
  std::vector<GpuBuffer<layout::NodeStep>> steps;  // by ring, doubling and halving
  std::vector<GpuBuffer<std::int32_t>> neighbours;
  GpuBuffer<layout::NodeStepsHandle> tables;
  layout::HierarchyHandle handle{};

  std::vector<int> const& ownNode() const { return nodes[node]; }

  void connect(Communicator const& communicator, int proxies) {
    auto const transports = communicator.transports();
    auto const mine = communicator.registerMemory(data.data(), data.bytes(), transports);
    bool const deals = outbox.bytes() != 0, reduces = inbox.bytes() != 0;
    auto const mineInbox =
        reduces ? communicator.registerMemory(inbox.data(), inbox.bytes(), transports) : RegisteredMemory();
    service = std::make_unique<ProxyService>(communicator, ProxyService::Options{.proxies = proxies});
    auto const source = service->addMemory(mine);
    auto const sourceInbox = reduces ? service->addMemory(mineInbox) : source;
    auto const sourceOutbox =
        deals ? service->addMemory(communicator.registerMemory(outbox.data(), outbox.bytes(), transports)) : source;
    std::vector<layout::PortChannelHandle> gather, exchange, deal;
    for (std::size_t other = 0; other < nodes.size(); ++other) {
      if (other == node) continue;
      int const peer = nodes[other][rail];
      communicator.sendMemory(mine, peer);
      if (reduces) communicator.sendMemory(mineInbox, peer);
      auto const target = service->addMemory(communicator.recvMemory(peer));
      auto const targetInbox = reduces ? service->addMemory(communicator.recvMemory(peer)) : target;
      auto const semaphore = service->buildAndAddSemaphore(communicator.connect(peer));
      gather.push_back(service->portChannel(semaphore, target, source).deviceHandle());
      if (reduces) exchange.push_back(service->portChannel(semaphore, targetInbox, sourceInbox).deviceHandle());
      if (deals) deal.push_back(service->portChannel(semaphore, target, sourceOutbox).deviceHandle());
    }
    gatherChannels = onDevice(communicator.device(), gather);
    exchangeChannels = onDevice(communicator.device(), exchange);
    dealChannels = onDevice(communicator.device(), deal);
  }

  void tabulate(Device device) {
    std::vector<layout::NodeStepsHandle> handles;
    for (auto const schedule : {NodeSchedule::ring, NodeSchedule::doubling, NodeSchedule::halving}) {
      auto const of = nodeSteps(schedule, static_cast<int>(nodes.size()), static_cast<int>(node));
      steps.push_back(onDevice(device, of.steps));
      neighbours.push_back(onDevice(device, of.neighbours));
      handles.push_back({steps.back().data(), neighbours.back().data(), static_cast<std::int32_t>(of.steps.size()),
                         static_cast<std::int32_t>(of.neighbours.size()), of.pieces, of.resultSlot});
    }
    tables = onDevice(device, handles);
  }
};

HierarchicalTeam::HierarchicalTeam(Communicator const& communicator, HierarchyRequirement const& requirement)
    : impl_(std::make_unique<Impl>()) {
  auto& impl = *impl_;
  auto const self = communicator.rank();
  auto const all = gather(communicator, requirement);
  auto const described = [](HierarchyProposal const& asked) {
    return fmt::format("{} blocks and {} bytes, {} all-to-all{}", asked.blocks, asked.bytes,
                       asked.allToAll ? "with" : "without", asked.reductions ? "" : ", without reductions");
  };
  auto const own = described(all[static_cast<std::size_t>(self)]);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (auto const theirs = described(all[rank]); theirs != own) {
      fail(ErrorCode::invalidUsage,
           "rank {}: a HierarchicalTeam for {}, but rank {} asks for {}; all ranks must ask for the same", self, own,
           rank, theirs);
    }
  }
  auto const wanted = [](std::int64_t schedule) {
    return schedule < 0 ? std::string_view("none") : nameOf(static_cast<NodeSchedule>(schedule));
  };
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    auto const schedule = all[static_cast<std::size_t>(self)].schedule;
    if (all[rank].schedule == schedule) continue;
    fail(ErrorCode::invalidUsage,
         "rank {}: a HierarchicalTeam with the schedule {} between nodes, but rank {} asks for {}; all ranks must ask "
         "for the same",
         self, wanted(schedule), rank, wanted(all[rank].schedule));
  }
  if (requirement.blocks == 0 || requirement.bytes == 0) {
    fail(ErrorCode::invalidUsage, "rank {}: a HierarchicalTeam for {} blocks and {} bytes; ask for at least 1 of each",
         self, requirement.blocks, requirement.bytes);
  }
  impl.nodes = nodesOf(hostsOf(communicator));
  while (std::find(impl.ownNode().begin(), impl.ownNode().end(), self) == impl.ownNode().end()) ++impl.node;
  impl.rail =
      static_cast<std::size_t>(std::find(impl.ownNode().begin(), impl.ownNode().end(), self) - impl.ownNode().begin());
  auto const rails = impl.ownNode().size();
  auto const device = communicator.device();
  auto const kind = communicator.mappedKind();
  auto const slot =
      requirement.reductions ? roundUp<std::size_t>(requirement.bytes / rails + 2 * alignment, alignment) : 0;
  impl.data = GpuBuffer<std::byte>(device, roundUp<std::size_t>(requirement.bytes, alignment), kind);
  if (slot != 0) impl.inbox = GpuBuffer<std::byte>(device, slot * impl.nodes.size());
  impl.team =
      std::make_unique<Team>(communicator, layout::WorkspaceRequirement{.blocks = requirement.blocks}, impl.ownNode());
  impl.window = std::make_unique<MemoryWindow>(communicator, impl.data.data(), impl.data.bytes(), impl.ownNode());
  // Behind the slots of an outbox lies how much each of them holds.
  auto const part = requirement.bytes / all.size() / sizeof(std::uint64_t) * sizeof(std::uint64_t);
  if (requirement.allToAll) {
    impl.outbox = GpuBuffer<std::byte>(device, all.size() * (part + sizeof(std::uint64_t)), kind);
    impl.outboxWindow =
        std::make_unique<MemoryWindow>(communicator, impl.outbox.data(), impl.outbox.bytes(), impl.ownNode());
  }
  impl.connect(communicator, requirement.proxies);
  impl.tabulate(device);
  std::vector<std::int32_t> ranks;
  for (auto const& node : impl.nodes) ranks.insert(ranks.end(), node.begin(), node.end());
  impl.ranks = onDevice(device, ranks);
  impl.handle = {.local = impl.team->deviceHandle(),
                 .data = impl.window->deviceHandle(),
                 .node = static_cast<std::int32_t>(impl.node),
                 .nodes = static_cast<std::int32_t>(impl.nodes.size()),
                 .ranks = impl.ranks.data(),
                 .gather = impl.gatherChannels.data(),
                 .exchange = impl.exchangeChannels.data(),
                 .inbox = impl.inbox.data(),
                 .slotBytes = slot,
                 .outbox = {},
                 .deal = impl.dealChannels.data(),
                 .partBytes = part,
                 .messageBytes = std::ranges::min(all, {}, &HierarchyProposal::messageBytes).messageBytes,
                 .transferBytes = std::ranges::min(all, {}, &HierarchyProposal::transferBytes).transferBytes,
                 .steps = impl.tables.data(),
                 .schedule = static_cast<std::int32_t>(all[0].schedule)};
  if (requirement.allToAll) impl.handle.outbox = impl.outboxWindow->deviceHandle();
  impl.service->startProxy();
}

HierarchicalTeam::~HierarchicalTeam() = default;

int HierarchicalTeam::node() const noexcept { return impl_->handle.node; }
int HierarchicalTeam::nodes() const noexcept { return impl_->handle.nodes; }
int HierarchicalTeam::rail() const noexcept { return impl_->handle.local.rank; }
int HierarchicalTeam::rails() const noexcept { return impl_->handle.local.size; }
std::byte* HierarchicalTeam::data() const noexcept { return impl_->data.data(); }
std::size_t HierarchicalTeam::bytes() const noexcept { return impl_->data.bytes(); }
layout::HierarchyHandle const& HierarchicalTeam::deviceHandle() const noexcept { return impl_->handle; }

}  // namespace mscclpp
