// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The time of one call, per schedule. docs/cost_model.md has the formulas with the names that they have here.
#include "mscclpp/collectives/cost_model.hpp"

#include <algorithm>
#include <cmath>

#include "base/format.hpp"
#include "collectives/kernels/copy_chunks.hpp"
#include "mscclpp/algorithms/catalogue.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp {
namespace {

constexpr double residentThreads = 2048;  // of a multiprocessor

// What a composition of the catalogue states of itself.
struct Known {
  Movement movement;
  double perThread;  // bytes of data that a thread takes in a round
  bool packets;
  bool bulk;
  std::uint32_t piece;  // the longest, of schedules that go in pieces
};

std::optional<Known> knownOf(CostQuery const& query) {
  std::optional<Known> result;
  auto const look = [&]<class C>() {
    using S = typename C::Schedule;
    using Tr = typename C::Transport;
    if (!C::isFor(query.collective) || C::name != query.algorithm) return;
    if constexpr (!throughSwitch<Tr>) {
      Volume volume{.collective = query.collective,
                    .ranks = static_cast<double>(query.ranks),
                    .bytes = static_cast<double>(query.bytes)};
      if constexpr (requires { Tr::onWire; }) volume.onWire = Tr::onWire;
      auto const movement = movementOf<S, Tr>(volume);
      if (!movement) return;
      constexpr bool packets = requires { typename Tr::Format; };
      result = Known{.movement = *movement,
                     .perThread = static_cast<double>(Tr::launch.perThread),
                     .packets = packets,
                     .bulk = impl::isBulkMemory<Tr>,
                     .piece = longestPiece<Tr>};
    }
  };
  Catalogue::forEach(look);
  return result;
}

class Prediction {
 public:
  Prediction(MachineModel const& model, CostQuery const& query)
      : model_(model),
        query_(query),
        n_(query.ranks),
        peers_(query.ranks - 1),
        whole_(static_cast<double>(query.bytes)) {}

  std::optional<double> seconds() const {
    if (query_.algorithm == "copy_engine") return copies();
    auto const kernel = model_.kernelTime + (query_.overlapped ? 0 : model_.launchGap);
    auto const rest = kernelWork();
    return rest ? std::optional(kernel + *rest) : std::nullopt;
  }

 private:
  std::optional<double> kernelWork() const {
    auto const known = knownOf(query_);
    if (!known) return std::nullopt;
    auto const barriers = known->movement.barriers * model_.barrierTime;
    switch (known->movement.pace) {
      case Pace::rounds:
        return rounds(*known) + barriers;
      case Pace::stream:
        return stream(known->movement) + barriers + (known->bulk ? model_.bulkTime : 0);
      case Pace::chain:
        return chained(known->movement.traffic, known->piece) + barriers;
    }
    return std::nullopt;
  }

  // Bandwidth into the links of a grid that is large enough for its multiprocessors not to be the limit.
  double storeRate() const { return model_.storeRate * query_.blocks / (query_.blocks + model_.storeRamp); }

  // For what their multiprocessors store, and load once it has come.
  double multiprocessorTime(double bytes) const {
    return bytes / (std::min<double>(query_.blocks, model_.multiprocessors) * model_.blockRate);
  }
  double memoryTime(Traffic const& traffic) const { return 2 * (traffic.stored + traffic.local) / model_.memoryRate; }

  // Blocks that share a multiprocessor: while one waits, the others use the links.
  double sharing() const {
    auto const resident = std::floor(residentThreads / query_.threads);
    return std::clamp(query_.blocks / model_.multiprocessors, 1.0, std::max(1.0, resident));
  }

  // Through the workspace, in rounds of one payload a thread. A round does not send the next one's bytes while it
  // waits, so waiting adds to the time of the bytes.
  double rounds(Known const& known) const {
    auto const& traffic = known.movement.traffic;
    auto const grid = static_cast<double>(query_.blocks) * query_.threads;
    auto const rounds = std::max(1.0, std::ceil(traffic.part / (grid * known.perThread)));
    auto const latency = known.packets ? model_.packetTime : model_.barrierTime + model_.stageTime;
    auto const waiting = known.movement.exchanges * latency + multiprocessorTime(traffic.local) / rounds;
    auto const exposed = waiting * (1 + (rounds - 1) / (sharing() * sharing()));
    return exposed + std::max(traffic.sent / storeRate(), multiprocessorTime(traffic.stored));
  }

  // Straight between the buffers: two barriers and a stream of bytes.
  double stream(Movement const& movement) const {
    auto const& traffic = movement.traffic;
    auto const links = traffic.sent / (movement.loads ? model_.loadRate : storeRate());
    return 2 * model_.barrierTime +
           std::max({links, multiprocessorTime(traffic.stored + traffic.local), memoryTime(traffic)});
  }

  // A barrier, a hop to each further rank until the last has its first piece, and the stream of bytes, which ends so
  // many pieces later.
  double chained(Traffic const& traffic, std::uint32_t longest) const {
    auto const ranks = static_cast<std::uint32_t>(query_.ranks);
    auto const blocks = static_cast<std::uint32_t>(query_.blocks);
    auto const piece = chainPiece(query_.bytes, blocks, ranks, longest);
    auto const pieces = std::max(1.0, std::ceil(whole_ / (static_cast<double>(piece) * query_.blocks)));
    auto const stream =
        std::max({whole_ / storeRate(), multiprocessorTime(whole_ + traffic.local), memoryTime(traffic)});
    return (1 + peers_) * model_.barrierTime + (1 + std::max(0.0, peers_ - 1) / pieces) * stream;
  }

  std::optional<double> copies() const {
    auto const share = whole_ / n_;
    auto const moved = share * peers_;
    switch (query_.collective) {
      case Collective::allGather:
      case Collective::allToAll:
        return model_.copyCallTime + peers_ * model_.copyTime +
               std::max(moved / model_.copyRate, 2 * share / model_.memoryRate);
      case Collective::gather:
        return model_.copyCallTime + model_.copyTime + moved / model_.copyRate;
      case Collective::scatter:
        return model_.copyCallTime + peers_ * model_.copyTime + moved / model_.copyRate;
      case Collective::broadcast: {
        auto const chunk =
            static_cast<double>(collectives_impl::relayedChunk(query_.bytes, static_cast<std::size_t>(query_.ranks)));
        auto const steps = std::max(1.0, std::ceil(whole_ / std::max(1.0, chunk))) + 2 * std::max(0.0, peers_ - 1);
        return model_.copyCallTime + steps * (model_.copyTime + std::min(chunk, whole_) / model_.copyRate);
      }
      case Collective::reduce:
        return model_.copyCallTime + peers_ * (model_.copyTime + whole_ / model_.copyRate) +
               chunksOf(whole_) * model_.copyChunkTime;
      case Collective::reduceScatter:
      case Collective::allReduce: {
        auto const times = query_.collective == Collective::allReduce ? 2 : 1;
        return model_.copyCallTime + times * peers_ * model_.copyTime + chunksOf(share) * model_.copyChunkTime +
               times * moved / model_.copyRate;
      }
      default:
        return std::nullopt;
    }
  }

  // As the kernels cut a share.
  static double chunksOf(double share) {
    auto const chunk = collectives_impl::reducedChunk(static_cast<std::size_t>(share));
    return std::max(1.0, std::ceil(share / static_cast<double>(chunk)));
  }

  MachineModel const& model_;
  CostQuery const& query_;
  double n_;
  double peers_;
  double whole_;
};

}  // namespace

std::optional<double> predict(MachineModel const& model, CostQuery const& query) {
  auto const refuse = [&](std::string_view what, auto value, std::string_view allowed) {
    fail(ErrorCode::invalidUsage, "cost model of {}: {} by {}: {} {}; allowed is {}", model.device,
         nameOf(query.collective), query.algorithm, value, what, allowed);
  };
  if (query.ranks < 1) refuse("ranks", query.ranks, "1 or more");
  if (query.blocks < 1) refuse("blocks", query.blocks, "1 or more");
  if (query.threads < 1 || query.threads > 1024) refuse("threads", query.threads, "1 to 1024");
  return Prediction(model, query).seconds();
}

}  // namespace mscclpp
