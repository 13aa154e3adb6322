// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "report/network_limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "machine/over_ranks.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/hierarchy.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "plan/options.hpp"
#include "report/report.hpp"

namespace mscclpp::bench {
namespace {

constexpr int tries = 5;
constexpr std::uint64_t smallBytes = 1024;  // of a message that is nearly all latency

struct Effort {
  unsigned messages;
  unsigned transfers;
  std::uint64_t largeBytes;  // of a put that is nearly all bandwidth
  unsigned largePuts;
};
constexpr Effort effortOf(DeviceKind kind) {
  return kind == DeviceKind::sim ? Effort{50, 200, 1 << 20, 8} : Effort{500, 5000, 64 << 20, 16};
}

// What one rank has found, for all others.
struct Found {
  int peer = -1;  // in no pair
  int transport = 0;
  double message = 0;
  double transfer = 0;
  double rate = 0;
  bool right = true;
};

// One end of a pair.
class End {
 public:
  End(Machine const& machine, Communicator& communicator, int peer)
      : machine_(machine),
        communicator_(communicator),
        peer_(peer),
        effort_(effortOf(machine.kind())),
        stream_(communicator.device()),
        outbox_(communicator.device(), effort_.largeBytes),
        inbox_(communicator.device(), effort_.largeBytes),
        ns_(communicator.device(), 1),
        service_(communicator) {
    auto const transport = communicator.transportTo(peer);
    registered_ = communicator.registerMemory(inbox_.data(), inbox_.bytes(), transport);
    communicator.sendMemory(registered_, peer);
    auto const target = service_.addMemory(communicator.recvMemory(peer));
    auto const source = service_.addMemory(communicator.registerMemory(outbox_.data(), outbox_.bytes(), transport));
    channel_ = service_.portChannel(service_.buildAndAddSemaphore(communicator.connect(peer)), target, source);
    outbox_.fill(mark(communicator.rank()));
    inbox_.fill(0);
    service_.startProxy();
  }

  double message() { return seconds(PortProbe::Kind::pingPong, smallBytes, effort_.messages) / 2; }
  double transfer() { return seconds(PortProbe::Kind::puts, smallBytes, effort_.transfers); }
  double rate() {
    return static_cast<double>(effort_.largeBytes) /
           seconds(PortProbe::Kind::puts, effort_.largeBytes, effort_.largePuts);
  }
  // Behind a barrier after the puts.
  bool arrived() const {
    std::byte last{};
    copyToHost(std::span<std::byte>(&last, 1), inbox_, inbox_.bytes() - 1);
    return last == std::byte{mark(peer_)};
  }

 private:
  static unsigned char mark(int rank) { return static_cast<unsigned char>(rank % 255 + 1); }

  // Of one of `count`.
  double seconds(PortProbe::Kind kind, std::uint64_t bytes, unsigned count) {
    machine_.start(stream_, {.kind = kind,
                             .channel = channel_.deviceHandle(),
                             .bytes = bytes,
                             .count = count,
                             .first = communicator_.rank() < peer_,
                             .ns = ns_.data()});
    communicator_.synchronize(stream_, 2 * machine_.kernelLimit());
    return static_cast<double>(std::max<std::uint64_t>(copyToHost(ns_)[0], 1)) * 1e-9 / count;
  }

  Machine const& machine_;
  Communicator& communicator_;
  int peer_;
  Effort effort_;
  Stream stream_;
  GpuBuffer<std::byte> outbox_;
  GpuBuffer<std::byte> inbox_;
  RegisteredMemory registered_;  // the inbox, as long as the peer puts there
  GpuBuffer<std::uint64_t> ns_;
  ProxyService service_;
  PortChannel channel_;
};

int partnerOf(int rank, std::vector<std::pair<int, int>> const& pairs) {
  for (auto const& [one, other] : pairs) {
    if (rank == one) return other;
    if (rank == other) return one;
  }
  return -1;
}

// Each try of all pairs begins when all have come as far.
template <class Measure>
double medianOf(Communicator& communicator, Measure const& measure) {
  std::vector<double> found;
  for (int i = 0; i < tries; ++i) {
    communicator.bootstrap()->barrier();
    found.push_back(measure());
  }
  return quantile(found, 0.5);
}

}  // namespace

std::vector<std::pair<int, int>> networkPairs(std::vector<int> const& hosts) {
  std::map<int, std::vector<int>> ranks;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) ranks[hosts[rank]].push_back(static_cast<int>(rank));
  std::vector<std::pair<int, int>> pairs;
  for (auto one = ranks.begin(); one != ranks.end() && std::next(one) != ranks.end(); std::advance(one, 2)) {
    auto const& other = std::next(one)->second;
    for (std::size_t i = 0; i < std::min(one->second.size(), other.size()); ++i) {
      pairs.emplace_back(one->second[i], other[i]);
    }
    if (std::next(one, 2) == ranks.end()) break;
  }
  return pairs;
}

NetworkModel measureNetwork(Machine const& machine, Communicator& communicator) {
  auto const pairs = networkPairs(hostsOf(communicator));
  if (pairs.empty()) {
    throw UsageError(
        fmt::format("--limits: all {} ranks are on one host; there is no network between them", communicator.size()));
  }
  Found own{.peer = partnerOf(communicator.rank(), pairs)};
  std::optional<End> end;
  if (own.peer >= 0) {
    own.transport = static_cast<int>(communicator.transportTo(own.peer));
    end.emplace(machine, communicator, own.peer);
  }
  // Who is in no pair meets the others all the same.
  own.message = medianOf(communicator, [&] { return end ? end->message() : 0; });
  own.transfer = medianOf(communicator, [&] { return end ? end->transfer() : 0; });
  own.rate = medianOf(communicator, [&] { return end ? end->rate() : 0; });
  communicator.bootstrap()->barrier();
  if (end) own.right = end->arrived();
  auto const all = gather(*communicator.bootstrap(), own);
  NetworkModel model{.railRate = all[static_cast<std::size_t>(pairs[0].first)].rate};
  auto const transport = all[static_cast<std::size_t>(pairs[0].first)].transport;
  model.transport = nameOf(static_cast<Transport>(transport));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    auto const& each = all[rank];
    if (each.peer < 0) continue;
    if (each.transport != transport) {
      throw UsageError(fmt::format(
          "--limits: ranks {} and {} use {}, but ranks {} and {} {}; set MSCCLPP_TRANSPORT, and measure each by itself",
          pairs[0].first, pairs[0].second, model.transport, rank, each.peer,
          nameOf(static_cast<Transport>(each.transport))));
    }
    if (!each.right) {
      throw Error(
          ErrorCode::internalError,
          fmt::format("--limits: what rank {} has put to rank {} is not there; nothing is written", each.peer, rank));
    }
    model.messageTime = std::max(model.messageTime, each.message);
    model.transferTime = std::max(model.transferTime, each.transfer);
    model.railRate = std::min(model.railRate, each.rate);
  }
  return model;
}

}  // namespace mscclpp::bench
