// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The time of one call, per schedule. docs/cost_model.md has the formulas with the names that they have here.
#include "mscclpp/collectives/cost_model.hpp"

#include <algorithm>
#include <cmath>

#include "base/format.hpp"
#include "collectives/kernels/copy_chunks.hpp"
#include "mscclpp/algorithms/catalogue.hpp"
#include "mscclpp/algorithms/tuning.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp {
namespace {

constexpr double residentThreads = 2048;  // of a multiprocessor

// How data travels in an exchange through the workspace.
struct Carrier {
  std::string_view name;
  double perThread;  // bytes of data that a thread takes in a round
  double onWire;     // bytes stored for a byte of data
  bool packets;
};
constexpr std::array carriers{Carrier{"ll8", 4, 2, true}, Carrier{"ll16", 8, 2, true},
                              Carrier{"ll128", 15, 128.0 / 120, true}, Carrier{"memory", 64, 1, false},
                              Carrier{"memory_wide", 128, 1, false}};

std::optional<Carrier> carrierByName(std::string_view name) {
  for (auto const& carrier : carriers) {
    if (carrier.name == name) return carrier;
  }
  return std::nullopt;
}

// The carrier of "<prefix><carrier>".
std::optional<Carrier> carrierBehind(std::string_view prefix, std::string_view name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  return carrierByName(name.substr(prefix.size()));
}

// What goes where, in bytes: of the rank that has most to do.
struct Traffic {
  double part = 0;    // to one peer in one exchange
  double sent = 0;    // over the busiest link of a GPU, in one direction
  double stored = 0;  // to peers by the multiprocessors of one rank
  double local = 0;   // stored at home, and loaded once it has come
};

class Prediction {
 public:
  Prediction(MachineModel const& model, CostQuery const& query)
      : model_(model),
        query_(query),
        n_(query.ranks),
        peers_(query.ranks - 1),
        whole_(static_cast<double>(query.bytes)) {}

  std::optional<double> seconds() const {
    if (query_.collective == Collective::sendRecv || query_.collective == Collective::barrier) return std::nullopt;
    auto const name = query_.algorithm;
    if (name == "copy_engine") return copies();
    auto const kernel = model_.kernelTime + (query_.overlapped ? 0 : model_.launchGap);
    auto const rest = kernelWork(name);
    return rest ? std::optional(kernel + *rest) : std::nullopt;
  }

 private:
  std::optional<double> kernelWork(std::string_view name) const {
    if (query_.collective == Collective::allReduce) {
      if (auto carrier = carrierBehind("oneshot_", name)) {
        if (!carrier->packets) carrier->perThread = 32;
        return exchanges(*carrier, oneExchange(*carrier), 1);
      }
      if (auto const carrier = carrierBehind("twoshot_", name)) return exchanges(*carrier, twoExchanges(*carrier), 2);
      if (name == "twoshot_push" || name == "twoshot_push_wide") {
        auto const carrier = *carrierByName(name == "twoshot_push" ? "memory" : "memory_wide");
        return exchanges(carrier, twoShotPush(), 1) + model_.meetingTime;
      }
    } else if (auto const carrier = carrierByName(name)) {
      return exchanges(*carrier, oneExchange(*carrier), 1);
    }
    if (name == "push" && !reduces(query_.collective)) return direct(pushed());
    if (name == "push" && query_.collective == Collective::reduce) {
      return exchanges(*carrierByName("memory_wide"), sharesToRoot(), 1) + model_.meetingTime;
    }
    if (name == "chain" && query_.collective == Collective::broadcast) {
      return chained(BroadcastOnlyCompositions::At<0>::Transport::piece, 0);
    }
    if (name == "chain" && query_.collective == Collective::reduce) {
      // Loads the stage as well as the input, and all meet once more.
      return chained(ReduceOnlyCompositions::At<1>::Transport::piece, whole_) + model_.meetingTime;
    }
    if (name == "push_bulk" && !reduces(query_.collective)) return direct(pushed()) + model_.bulkTime;
    if ((name == "pull" || name == "pull_wide") && reduces(query_.collective)) return direct(pulled());
    return std::nullopt;
  }

  // Bytes that one rank has, or gets, of the whole.
  double part() const { return traitsOf(query_.collective).hasParts() ? whole_ / n_ : whole_; }

  Traffic oneExchange(Carrier const& carrier) const {
    auto const toOne = part();
    auto const toAll = toOne * peers_;
    Traffic traffic{.part = toOne, .sent = toAll * carrier.onWire};
    switch (query_.collective) {
      case Collective::broadcast:
      case Collective::scatter:  // the root only sends
        traffic.stored = traffic.sent;
        traffic.local = toOne;
        break;
      case Collective::reduce:
        traffic.local = traffic.sent + toOne;
        break;
      case Collective::gather:
        traffic.local = traffic.sent + whole_;
        break;
      default:
        traffic.stored = traffic.sent;
        traffic.local = traffic.sent + toOne + (reduces(query_.collective) ? 0 : toAll);
    }
    return traffic;
  }

  Traffic twoExchanges(Carrier const& carrier) const {
    auto const share = whole_ / n_;
    auto const sent = 2 * share * peers_ * carrier.onWire;
    return {.part = share, .sent = sent, .stored = sent, .local = sent + whole_};
  }

  Traffic twoShotPush() const {
    auto const share = whole_ / n_;
    auto const sent = 2 * share * peers_;
    return {.part = share, .sent = sent, .stored = sent, .local = whole_};
  }

  // To the other ranks that reduce, and the results to the root.
  Traffic sharesToRoot() const {
    return {.part = whole_ / std::max(1.0, peers_), .sent = whole_, .stored = whole_, .local = whole_};
  }

  // Stored straight into the peers' outputs.
  Traffic pushed() const {
    auto const toOne = part();
    if (query_.collective == Collective::broadcast) {
      // Each of the others loads its share from the root and stores it to all.
      return {.part = toOne, .sent = n_ > 1 ? toOne : 0, .stored = toOne, .local = toOne / std::max(1.0, peers_)};
    }
    return {.part = toOne, .sent = toOne * peers_, .stored = toOne * peers_, .local = toOne};
  }

  // Loaded straight from the peers' inputs. `sent` is what comes in: what is loaded, and what peers store.
  Traffic pulled() const {
    bool const rooted = query_.collective == Collective::reduce;  // by all ranks but the root
    auto const share = whole_ / (rooted ? std::max(1.0, peers_) : n_);
    auto const loaded = share * peers_;
    bool const gathers = query_.collective == Collective::allReduce;
    return {.part = share,
            .sent = gathers ? 2 * loaded : loaded,
            .stored = gathers  ? loaded
                      : rooted ? share
                               : 0,
            .local = loaded + share};
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
  double exchanges(Carrier const& carrier, Traffic const& traffic, int inARound) const {
    auto const grid = static_cast<double>(query_.blocks) * query_.threads;
    auto const rounds = std::max(1.0, std::ceil(traffic.part / (grid * carrier.perThread)));
    auto const latency = carrier.packets ? model_.packetTime : model_.meetingTime + model_.stageTime;
    auto const waiting = inARound * latency + multiprocessorTime(traffic.local) / rounds;
    auto const exposed = waiting * (1 + (rounds - 1) / (sharing() * sharing()));
    return exposed + std::max(traffic.sent / storeRate(), multiprocessorTime(traffic.stored));
  }

  // Straight between the buffers: two meetings and a stream of bytes.
  double direct(Traffic const& traffic) const {
    bool const loads = reduces(query_.collective) || query_.collective == Collective::broadcast;
    auto const links = traffic.sent / (loads ? model_.loadRate : storeRate());
    return 2 * model_.meetingTime +
           std::max({links, multiprocessorTime(traffic.stored + traffic.local), memoryTime(traffic)});
  }

  // A meeting, a hop to each further rank until the last has its first piece, and the stream of bytes, which ends so
  // many pieces later.
  double chained(std::uint32_t longest, double local) const {
    auto const ranks = static_cast<std::uint32_t>(query_.ranks);
    auto const blocks = static_cast<std::uint32_t>(query_.blocks);
    auto const piece = chainPiece(query_.bytes, blocks, ranks, longest);
    auto const pieces = std::max(1.0, std::ceil(whole_ / (static_cast<double>(piece) * query_.blocks)));
    Traffic const traffic{.part = whole_, .sent = whole_, .stored = whole_, .local = local};
    auto const stream = std::max({whole_ / storeRate(), multiprocessorTime(whole_ + local), memoryTime(traffic)});
    return (1 + peers_) * model_.meetingTime + (1 + std::max(0.0, peers_ - 1) / pieces) * stream;
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
