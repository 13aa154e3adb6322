// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

#include "inputs.hpp"
#include "mscclpp/collectives/message_group.hpp"
#include "mscclpp/collectives/selection.hpp"
#include "mscclpp/collectives/tuned_profile.hpp"

namespace mscclpp::bench {
namespace {

constexpr std::uint64_t mebi = std::uint64_t{1} << 20;

int defaultOperations(DeviceKind machine, std::uint64_t bytes) {
  if (machine == DeviceKind::sim) return 2;
  return bytes <= mebi ? 100 : bytes <= 64 * mebi ? 20 : 5;
}

int defaultReplays(DeviceKind machine, std::uint64_t bytes) {
  if (machine == DeviceKind::sim) return 3;
  return bytes <= mebi ? 50 : bytes <= 64 * mebi ? 20 : 10;
}

// As the kernel table has it.
DataType tableType(Collective collective, DataType type) { return reduces(collective) ? type : DataType::uint8; }

// For any type, with the operation that every type has.
std::vector<std::string> everyAlgorithm(DeviceKind machine, Collective collective) {
  auto const& table = KernelTable::instance();
  if (!reduces(collective)) return table.algorithms(machine, collective, DataType::uint8, ReduceOp::none);
  std::vector<std::string> result;
  for (auto type : dataTypes) {
    auto const names = table.algorithms(machine, collective, type, ReduceOp::sum);
    // Types that fewer algorithms carry have a part of the others' list.
    if (names.size() > result.size()) result = names;
  }
  return result;
}

class Planner {
 public:
  Planner(Options const& options, WorldFacts const& facts) : options_(options), facts_(facts) {}

  std::vector<Case> plan() {
    checkNames();
    for (auto collective : options_.collectives) {
      if (everyAlgorithm(facts_.machine, collective).empty() && options_.everyCollective) continue;
      if (options_.inPlace && !traitsOf(collective).inPlace) {
        if (options_.everyCollective) continue;
        throw UsageError(fmt::format("--in-place: {} has no such form; leave the flag out", nameOf(collective)));
      }
      for (auto type : options_.types) {
        if (!reduces(collective)) {
          planSizes(collective, type, ReduceOp::none);
          continue;
        }
        for (auto operation : options_.operations) planSizes(collective, type, operation);
      }
    }
    if (std::none_of(cases_.begin(), cases_.end(), [](Case const& item) { return item.own(); })) {
      throw UsageError(fmt::format("--collective={}: this mscclpp-bench has no kernel of them for this machine",
                                   options_.everyCollective ? "all" : joinedCollectives()));
    }
    return std::move(cases_);
  }

 private:
  std::string joinedCollectives() const {
    std::vector<std::string_view> names;
    for (auto collective : options_.collectives) names.push_back(nameOf(collective));
    return fmt::format("{}", fmt::join(names, ","));
  }

  // A name that none of the collectives has is a mistake.
  void checkNames() const {
    std::vector<std::string> known;
    for (auto collective : options_.collectives) {
      for (auto const& name : everyAlgorithm(facts_.machine, collective)) {
        if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
      }
    }
    for (auto const& wanted : options_.algorithms) {
      if (std::find(known.begin(), known.end(), wanted) != known.end()) continue;
      throw UsageError(
          fmt::format("--algorithm={}: allowed is auto, all, or a list of {}", wanted, fmt::join(known, ", ")));
    }
  }

  Case blankCase(Collective collective, DataType type, ReduceOp operation, std::uint64_t bytes) const {
    Case item;
    item.collective = collective;
    item.type = type;
    item.operation = operation;
    item.slots = slotsOf(collective, facts_.ranks);
    item.count = bytes / bytesOf(type) / static_cast<std::uint64_t>(item.slots);
    item.replays = options_.replays.value_or(defaultReplays(facts_.machine, bytes));
    item.operations = std::min(options_.operationsPerGraph.value_or(defaultOperations(facts_.machine, bytes)),
                               maxOperations(collective, type, operation, facts_.ranks));
    return item;
  }

  void planSizes(Collective collective, DataType type, ReduceOp operation) {
    auto const least = bytesOf(type) * static_cast<std::uint64_t>(slotsOf(collective, facts_.ranks));
    if (options_.minBytes < least) {
      throw UsageError(
          traitsOf(collective).hasParts()
              ? fmt::format("--min-bytes={} is less than one element of --dtype={} for each of the {} ranks "
                            "of {}, which takes {} bytes",
                            options_.minBytes, nameOf(type), facts_.ranks, nameOf(collective), least)
              : fmt::format("--min-bytes={} is less than one element of --dtype={}, which has {} bytes",
                            options_.minBytes, nameOf(type), least));
    }
    std::uint64_t const most =
        std::max(options_.minBytes, options_.maxBytes.value_or(facts_.machine == DeviceKind::sim ? mebi : 1024 * mebi));
    for (std::uint64_t bytes = options_.minBytes; bytes <= most; bytes *= options_.factor) {
      auto const blank = blankCase(collective, type, operation, bytes);
      auto const names = algorithmsFor(blank);
      if (names.empty()) continue;
      for (auto peer : options_.peers) {
        auto item = blank;
        item.contender = peer;
        cases_.push_back(item);
      }
      for (auto const& name : names) cases_.push_back(ownCase(blank, name));
    }
  }

  bool possible(Case item, std::string const& algorithm) const {
    item.algorithmName = algorithm;
    auto const* const kernel = kernelOf(item, facts_);
    // Links of messages are made for one format of packets.
    bool const linked = kernel != nullptr && item.collective == Collective::sendRecv && kernel->packets;
    if (linked && kernel->needsWholeLines != facts_.wholeLines) return false;
    return kernel != nullptr && (facts_.wholeLines || !kernel->needsWholeLines) &&
           (facts_.noMulticast.empty() || !kernel->multicast) && (!options_.inPlace || kernel->inPlace);
  }

  // Where a number of threads was asked for.
  bool fits(Case item, std::string const& algorithm) const {
    item.algorithmName = algorithm;
    auto const& kernel = *kernelOf(item, facts_);
    return (!options_.threads || (*options_.threads >= kernel.minThreads && *options_.threads <= kernel.maxThreads)) &&
           (!options_.blocks || *options_.blocks >= kernel.minBlocks);
  }

  std::vector<std::string> algorithmsFor(Case const& blank) const {
    auto const there = KernelTable::instance().algorithms(facts_.machine, blank.collective,
                                                          tableType(blank.collective, blank.type), blank.operation);
    if (there.empty()) refuseOperation(blank);
    switch (options_.algorithmChoice) {
      case AlgorithmChoice::automatic:
        return {automatic(blank).algorithm};
      case AlgorithmChoice::all: {
        std::vector<std::string> result;
        std::copy_if(there.begin(), there.end(), std::back_inserter(result),
                     [&](auto const& name) { return possible(blank, name) && fits(blank, name); });
        return result;
      }
      case AlgorithmChoice::named:
        break;
    }
    std::vector<std::string> result;
    auto const every = everyAlgorithm(facts_.machine, blank.collective);
    for (auto const& name : options_.algorithms) {
      if (std::find(every.begin(), every.end(), name) == every.end()) continue;
      if (std::find(there.begin(), there.end(), name) == there.end()) {
        throw UsageError(
            fmt::format("--algorithm={} has packets that are too small for --dtype={}; choose one with ll16, ll128 or "
                        "memory",
                        name, nameOf(blank.type)));
      }
      if (auto item = blank; !facts_.noMulticast.empty()) {
        item.algorithmName = name;
        if (kernelOf(item, facts_)->multicast) {
          throw UsageError(
              fmt::format("--algorithm={} goes through the switch between the devices: {}", name, facts_.noMulticast));
        }
      }
      if (options_.inPlace && !possible(blank, name)) {
        throw UsageError(
            fmt::format("--algorithm={}: {} cannot run it --in-place here", name, nameOf(blank.collective)));
      }
      if (!possible(blank, name)) {
        throw UsageError(fmt::format(
            "--algorithm={} needs links that deliver 128-byte lines whole, which these devices do not have; "
            "choose one with ll8, ll16 or memory",
            name));
      }
      result.push_back(name);
    }
    return result;
  }

  [[noreturn]] void refuseOperation(Case const& blank) const {
    if (everyAlgorithm(facts_.machine, blank.collective).empty()) {
      throw UsageError(fmt::format("--collective={}: this mscclpp-bench has no kernel of it for this machine",
                                   nameOf(blank.collective)));
    }
    std::vector<std::string_view> types;
    for (auto type : dataTypes) {
      if (!KernelTable::instance().algorithms(facts_.machine, blank.collective, type, blank.operation).empty()) {
        types.push_back(nameOf(type));
      }
    }
    throw UsageError(fmt::format("--op={} is not built for --dtype={}; {} has it for {}", nameOf(blank.operation),
                                 nameOf(blank.type), nameOf(blank.collective),
                                 types.empty() ? "no type" : fmt::format("{}", fmt::join(types, ", "))));
  }

  // The library's choice: what was measured on such a machine, else its rule.
  Selection automatic(Case const& blank) const {
    SelectionRequest const request{.collective = blank.collective,
                                   .ranks = facts_.ranks,
                                   .bytes = blank.bytes(),
                                   .type = blank.type,
                                   .op = blank.operation,
                                   .symmetric = true,
                                   .machine = facts_.machine,
                                   .device = facts_.device,
                                   .wholeLines = facts_.wholeLines};
    if (auto const* const tuned = profile_ != nullptr ? profile_->nearest(request) : nullptr;
        tuned != nullptr && possible(blank, tuned->algorithm)) {
      return {tuned->algorithm, tuned->blocks, tuned->threads};
    }
    for (auto const& name : preferredAlgorithms(request)) {
      if (possible(blank, name)) return {name};
    }
    throw UsageError(fmt::format("--collective={}: no algorithm can run it{} on these devices",
                                 nameOf(blank.collective), options_.inPlace ? " --in-place" : ""));
  }

  Case ownCase(Case item, std::string const& algorithm) const {
    item.algorithmName = algorithm;
    item.inPlace = options_.inPlace;
    auto const& kernel = *kernelOf(item, facts_);
    auto const ranks = static_cast<std::uint32_t>(facts_.ranks);
    item.shape =
        item.collective == Collective::sendRecv
            ? messageLaunchShape(kernel, 1, layout::PointToPointRequirement{}.lanes, item.slotBytes(), facts_.maxBlocks)
            : kernel.shape(ranks, item.slotBytes(), facts_.maxBlocks);
    if (options_.algorithmChoice == AlgorithmChoice::automatic) {
      auto const choice = automatic(item);
      if (choice.blocks > 0) item.shape.blocks = static_cast<unsigned>(choice.blocks);
      if (choice.threads > 0) item.shape.threads = static_cast<unsigned>(choice.threads);
    }
    if (options_.blocks) item.shape.blocks = *options_.blocks;
    if (options_.threads) item.shape.threads = *options_.threads;
    if (item.shape.threads < kernel.minThreads) {
      throw UsageError(
          fmt::format("--threads={}: {} needs at least {}", item.shape.threads, algorithm, kernel.minThreads));
    }
    if (item.shape.blocks < kernel.minBlocks) {
      throw UsageError(
          fmt::format("--blocks={}: {} needs at least {}", item.shape.blocks, algorithm, kernel.minBlocks));
    }
    if (item.shape.threads > kernel.maxThreads) {
      throw UsageError(
          fmt::format("--threads={}: {} takes at most {}", item.shape.threads, algorithm, kernel.maxThreads));
    }
    item.overlap = options_.overlap.value_or(kernel.overlaps);
    item.rankOrder = kernel.rankOrder;
    return item;
  }

  Options const& options_;
  WorldFacts const& facts_;
  std::shared_ptr<TunedProfile const> profile_ = TunedProfile::installed();
  std::vector<Case> cases_;
};

}  // namespace

std::string Case::subject() const {
  return fmt::format("{}/{}/{}/{}", nameOf(collective), nameOf(type), nameOf(operation), bytes());
}

std::string Case::name() const {
  return fmt::format("{}/{}/{}/{}/{}", nameOf(collective), algorithm(), nameOf(type), nameOf(operation), bytes());
}

Kernel const* kernelOf(Case const& item, WorldFacts const& facts) {
  return KernelTable::instance().find({facts.machine, item.collective, item.algorithmName,
                                       tableType(item.collective, item.type), item.operation, facts.ranks});
}

std::vector<Case> planCases(Options const& options, WorldFacts const& facts) { return Planner(options, facts).plan(); }

std::string leftOutOf(Options const& options, WorldFacts const& facts) {
  if (facts.noMulticast.empty()) return {};
  std::vector<std::string> names;
  for (auto collective : options.collectives) {
    for (auto const& name : everyAlgorithm(facts.machine, collective)) {
      bool through = false;
      for (auto type : dataTypes) {
        auto const* const kernel =
            KernelTable::instance().find({facts.machine, collective, name, tableType(collective, type),
                                          reduces(collective) ? ReduceOp::sum : ReduceOp::none, facts.ranks});
        through = through || (kernel != nullptr && kernel->multicast);
      }
      if (through && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names.empty() ? std::string() : fmt::format("{}: {}", fmt::join(names, ", "), facts.noMulticast);
}

layout::WorkspaceRequirement requirementOf(std::vector<Case> const& cases, WorldFacts const& facts) {
  layout::WorkspaceRequirement total{.blocks = 1};
  for (auto const& item : cases) {
    if (!item.own()) continue;
    total =
        merge(total, kernelOf(item, facts)
                         ->requirement(static_cast<std::uint32_t>(facts.ranks), item.shape.blocks, item.shape.threads));
  }
  return total;
}

int maxOperations(Collective collective, DataType type, ReduceOp operation, int ranks) {
  auto const room = withDataType(type, []<class T>(std::type_identity<T>) { return timedGrowthBits<T>(); });
  if (operation != ReduceOp::sum || ranks == 1 || !room) return std::numeric_limits<int>::max();
  // In a chain of reduce-scatter a sum grows by the same amount every time: slower than any chain is long.
  if (collective == Collective::reduceScatter) return std::numeric_limits<int>::max();
  int const bits = std::bit_width(static_cast<unsigned>(ranks - 1));
  // In one of reduce the sum takes one rank's place among the addends, so that it doubles from the second on.
  if (collective == Collective::reduce) return std::max(1, *room - bits - leadOperations);
  return std::max(1, *room / bits - leadOperations);
}

}  // namespace mscclpp::bench
