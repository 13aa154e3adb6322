// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/point_to_point.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "host/memory/late_memory.hpp"
#include "host/shared/members.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/port_channel.hpp"

namespace mscclpp {
namespace {

// What the members compare before anything is allocated.
struct MessagesProposal {
  std::uint64_t lanes;
  std::uint64_t slots;
  std::uint64_t stageBytes;
  std::uint64_t packetBytes;
  std::uint64_t packetLimit;
  std::uint64_t stagesLater;
  std::uint64_t farLanes;
  std::uint64_t farBytes;
  std::uint64_t wholeLines;  // of the sender's own links; what all use follows from that of all
  std::uint64_t leader;      // the first member of its node, by place
};

void check(int self, layout::PointToPointRequirement const& need) {
  auto const refuse = [&](char const* what, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
    if (value >= least && value <= most) return;
    fail(ErrorCode::invalidUsage, "rank {}: PointToPoint with {} = {}; {} to {} are possible", self, what, value, least,
         most);
  };
  refuse("lanes", need.lanes, 1, 1024);
  refuse("slots", need.slots, 1, 1024);
  if (!std::has_single_bit(need.slots)) {
    fail(ErrorCode::invalidUsage, "rank {}: PointToPoint with slots = {}; a power of two is possible", self,
         need.slots);
  }
  refuse("stageBytes", need.stageBytes, 1, layout::maxSliceBytes);
  refuse("packetBytes", need.packetBytes, 1, layout::maxSliceBytes / 4);
  refuse("farLanes", need.farLanes, 1, 1024);
  refuse("farBytes", need.farBytes, 1, layout::maxSliceBytes);
}

void compare(int self, int peer, MessagesProposal const& mine, MessagesProposal const& theirs) {
  auto const differ = [&](char const* what, std::uint64_t a, std::uint64_t b) {
    if (a == b) return;
    fail(ErrorCode::invalidUsage, "PointToPoint: rank {} asks for {} = {}, rank {} for {}; all must ask for the same",
         self, what, a, peer, b);
  };
  differ("lanes", mine.lanes, theirs.lanes);
  differ("slots", mine.slots, theirs.slots);
  differ("stageBytes", mine.stageBytes, theirs.stageBytes);
  differ("packetBytes", mine.packetBytes, theirs.packetBytes);
  differ("packetLimit", mine.packetLimit, theirs.packetLimit);
  differ("stagesLater", mine.stagesLater, theirs.stagesLater);
  differ("farLanes", mine.farLanes, theirs.farLanes);
  differ("farBytes", mine.farBytes, theirs.farBytes);
}

// How many of the first `count` members are on another node than `member`.
std::size_t farAmong(std::vector<std::uint64_t> const& leaders, std::size_t count, std::size_t member) {
  return static_cast<std::size_t>(std::count_if(leaders.begin(), leaders.begin() + static_cast<std::ptrdiff_t>(count),
                                                [&](std::uint64_t leader) { return leader != leaders[member]; }));
}

}  // namespace

struct PointToPoint::LateStages {
  struct Place {
    Key128 process;
    Key128 key;
    int rank;  // of the communicator
  };
  LateMemory own;
  Device device;
  std::vector<Place> places{};             // by rank here
  std::vector<RegisteredMemory> mapped{};  // likewise; empty as long as it was not needed
};

struct PointToPoint::Far {
  GpuBuffer<std::byte> outbox;
  GpuBuffer<std::byte> inbox;
  RegisteredMemory registeredInbox;  // for as long as peers write there
  GpuBuffer<layout::FarLane> lanes;
  std::unique_ptr<ProxyService> service;  // works in all of them

  // `ranks` of the communicator; those with another leader than this one's are far. Waits for each of them.
  Far(Communicator const& communicator, std::vector<int> const& ranks, std::vector<std::uint64_t> const& leaders,
      std::size_t self, layout::PointToPointLayout const& layout) {
    auto const farCount = farAmong(leaders, leaders.size(), self);
    auto const device = communicator.device();
    auto const laneBytes = layout.slots * layout.farSlotBytes();
    auto const peerBytes = layout.farLanes * laneBytes;
    if (farCount * peerBytes > layout::maxTriggerBytes) {
      fail(
          ErrorCode::invalidUsage,
          "rank {}: PointToPoint with {} ranks of other nodes, {} lanes for each of {} slots of {} bytes: {} bytes, of "
          "which {} are possible; give less farBytes, farLanes or slots",
          communicator.rank(), farCount, layout.farLanes, layout.slots, layout.farSlotBytes(), farCount * peerBytes,
          layout::maxTriggerBytes);
    }
    outbox = GpuBuffer<std::byte>(device, farCount * peerBytes);
    inbox = GpuBuffer<std::byte>(device, farCount * peerBytes);
    auto const transports = communicator.transports();
    registeredInbox = communicator.registerMemory(inbox.data(), inbox.bytes(), transports);
    service = std::make_unique<ProxyService>(communicator);
    auto const source = service->addMemory(communicator.registerMemory(outbox.data(), outbox.bytes(), transports));
    std::vector<layout::FarLane> made;
    for (std::size_t place = 0; place < ranks.size(); ++place) {
      if (leaders[place] == leaders[self]) continue;
      int const peer = ranks[place];
      communicator.sendMemory(registeredInbox, peer);
      auto const target = service->addMemory(communicator.recvMemory(peer));
      auto const connection = communicator.connect(peer);
      auto const here = farAmong(leaders, place, self) * peerBytes;
      auto const there = farAmong(leaders, self, place) * peerBytes;
      for (std::uint32_t lane = 0; lane < layout.farLanes; ++lane) {
        auto const data = service->buildAndAddSemaphore(connection);
        auto const taken = service->buildAndAddSemaphore(connection);
        made.push_back({.data = service->portChannel(data, target, source).deviceHandle(),
                        .taken = service->basePortChannel(taken).deviceHandle(),
                        .outbox = outbox.data() + here + lane * laneBytes,
                        .inbox = inbox.data() + here + lane * laneBytes,
                        .outboxOffset = here + lane * laneBytes,
                        .inboxOffset = there + lane * laneBytes});
      }
    }
    lanes = GpuBuffer<layout::FarLane>(device, made.size());
    copyToDevice(lanes, std::span<layout::FarLane const>(made));
    service->startProxy();
  }
};

PointToPoint::PointToPoint(Communicator const& communicator, layout::PointToPointRequirement const& requirement,
                           std::vector<int> ranks)
    : ranksPerDevice_(communicator.ranksPerDevice()) {
  auto const& shared = *CommunicatorImpl::of(communicator);
  int const self = communicator.rank();
  Members const members("PointToPoint", shared, std::move(ranks));
  auto const proposals = members.propose([&] {
    check(self, requirement);
    return MessagesProposal{
        .lanes = requirement.lanes,
        .slots = requirement.slots,
        .stageBytes = requirement.stageBytes,
        .packetBytes = requirement.packetBytes,
        .packetLimit = requirement.packetLimit,
        .stagesLater = requirement.stagesLater ? 1u : 0u,
        .farLanes = requirement.farLanes,
        .farBytes = requirement.farBytes,
        .wholeLines = std::ranges::all_of(
            members.ranks(),
            [&](int one) { return one == self || !communicator.reaches(one) || communicator.linesArriveWhole(one); }),
        .leader = static_cast<std::uint64_t>(
            std::ranges::find_if(members.ranks(), [&](int one) { return communicator.reaches(one); }) -
            members.ranks().begin()),
    };
  });
  auto const& mine = proposals[static_cast<std::size_t>(members.place())];
  bool wholeLines = true;
  std::vector<std::uint64_t> leaders;
  for (std::size_t i = 0; i < proposals.size(); ++i) {
    auto const& theirs = proposals[i];
    compare(self, members.ranks()[i], mine, theirs);
    wholeLines = wholeLines && theirs.wholeLines != 0;
    leaders.push_back(theirs.leader);
  }
  std::vector<int> near;
  std::vector<std::size_t> nearPlaces;
  for (std::size_t place = 0; place < leaders.size(); ++place) {
    bool const isNear = leaders[place] == mine.leader;
    auto const before = farAmong(leaders, place, static_cast<std::size_t>(members.place()));
    handle_.places[place] = static_cast<std::uint8_t>(isNear ? near.size() : before);
    if (!isNear) continue;
    near.push_back(members.ranks()[place]);
    nearPlaces.push_back(place);
  }

  handle_.rank = members.place();
  handle_.size = members.size();
  handle_.watch = shared.watch;
  handle_.layout = layout::PointToPointLayout::make(static_cast<std::uint32_t>(members.size()),
                                                    static_cast<std::uint32_t>(near.size()), requirement);
  handle_.layout.lines = wholeLines ? 1 : 0;
  auto const& layout = handle_.layout;
  // By a later request, which the owner's process answers, only its host gets to them.
  bool const oneHost = std::ranges::all_of(near, [&](int member) { return shared.sameHost(member); });
  bool const later = requirement.stagesLater && layout.stages != 0 && oneHost;
  auto const keys = members.together([&] {
    memory_ = std::make_unique<DeviceMemory>(communicator.device(), layout.total + (later ? 0 : layout.stages),
                                             communicator.mappedKind());
    std::vector<std::byte> key;
    if (later) {
      late_.reset(new LateStages{{self, communicator.device(), layout.stages, members.alone()}, communicator.device()});
      auto const bytes = std::as_bytes(std::span(late_->own.key()));
      key.assign(bytes.begin(), bytes.end());
    }
    return key;
  });
  window_.emplace(communicator, memory_->data(), memory_->bytes(), near);
  if (later) {
    late_->places.resize(keys.size());
    late_->mapped.resize(keys.size());
  }
  for (std::size_t n = 0; n < near.size(); ++n) {
    auto const i = nearPlaces[n];
    handle_.bases[i] = window_->deviceHandle().bases[n];
    if (!later) {
      handle_.stages[i] = handle_.bases[i] + layout.total;
      continue;
    }
    int const member = near[n];
    auto& place = late_->places[i];
    place = {shared.peer(member).process, {}, member};
    if (keys[i].size() != place.key.size()) {
      fail(ErrorCode::remoteError, "rank {}: rank {} tells no key of its memory for messages", self, member);
    }
    std::memcpy(place.key.data(), keys[i].data(), place.key.size());
  }
  // Where one rank has far ones, all have.
  if (near.size() != leaders.size()) {
    members.together([&] {
      far_ = std::make_shared<Far>(communicator, members.ranks(), leaders, static_cast<std::size_t>(members.place()),
                                   layout);
      return std::vector<std::byte>();
    });
    handle_.far = far_->lanes.data();
  }
  std::vector<layout::RoundCounters> counters;
  for (auto const i : nearPlaces) {
    for (auto const array : {handle_.layout.sent, handle_.layout.taken}) {
      counters.push_back({reinterpret_cast<layout::RoundCounter*>(handle_.bases[i] + array),
                          static_cast<unsigned>(handle_.size) * handle_.layout.lanes, static_cast<unsigned>(i)});
    }
  }
  guard_ = communicator.leadAstray(counters);
}

layout::PointToPointHandle const& PointToPoint::handleFor(layout::Messages const& messages) const {
  if (!late_) return handle_;
  auto const limit = handle_.layout.packetLimit;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank() || handle_.isFar(peer)) continue;
    if (messages.hasRecv(peer) && messages.recv[peer].bytes > limit) handle_.stages[rank()] = late_->own.data();
    if (messages.hasSend(peer) && messages.send[peer].bytes > limit && handle_.stages[peer] == nullptr) {
      auto const& place = late_->places[static_cast<std::size_t>(peer)];
      auto& mapped = late_->mapped[static_cast<std::size_t>(peer)];
      mapped = LateMemory::map(place.process, place.key, late_->device,
                               fmt::format("memory of rank {} for messages of more than {} bytes", place.rank, limit));
      handle_.stages[peer] = mapped.data();
    }
  }
  return handle_;
}

std::size_t PointToPoint::bytes() const { return memory_->bytes() + (late_ ? late_->own.bytes() : 0); }

std::uint64_t PointToPoint::undelivered(int peer) const {
  if (peer < 0 || peer >= size()) {
    fail(ErrorCode::invalidUsage, "rank {}: PointToPoint::undelivered of rank {}; there are ranks 0 to {}", rank(),
         peer, size() - 1);
  }
  auto const& layout = handle_.layout;
  std::vector<layout::RoundCounter> sent(layout.lanes);
  std::vector<std::uint64_t> freed(layout.lanes);
  auto& machine = runtime(memory_->device().kind);
  auto const read = [&](auto& counters, std::uint64_t array) {
    auto const size = sizeof counters[0];
    machine.copy(counters.data(), handle_.bases[handle_.rank] + array + size * layout.index(peer, 0),
                 size * counters.size());
  };
  read(sent, layout.sent);
  if (handle_.isFar(peer)) {
    auto const lanes = copyToHost(far_->lanes);
    for (std::uint32_t lane = 0; lane < layout.farLanes; ++lane) {
      auto const& taken = lanes[std::size_t{handle_.places[peer]} * layout.farLanes + lane].taken;
      machine.copy(&freed[lane], taken.inbound, sizeof freed[lane]);
    }
  } else {
    read(freed, layout.freed);
  }
  std::uint64_t open = 0;
  for (std::size_t lane = 0; lane < sent.size(); ++lane) open += sent[lane].rounds - freed[lane];
  return open;
}

PointToPoint::~PointToPoint() {
  if (memory_ == nullptr || !window_) return;
  try {
    for (int peer = 0; peer < size(); ++peer) {
      if (auto const chunks = undelivered(peer); chunks != 0) {
        log(LogLevel::warn, "rank {}: {} chunks of messages to rank {} were never received", rank(), chunks, peer);
      }
    }
  } catch (Error const&) {
    // The machine is going down, and has told so.
  }
}

}  // namespace mscclpp
