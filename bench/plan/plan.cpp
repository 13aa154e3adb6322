// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "data/inputs.hpp"
#include "machine/timer.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::bench {
namespace {

constexpr std::uint64_t mebi = std::uint64_t{1} << 20;

int defaultOperations(Options const& options, DeviceKind machine, std::uint64_t bytes) {
  if (machine == DeviceKind::sim) return 2;
  if (options.launch == LaunchMode::host) return 100;
  return bytes <= mebi ? 100 : bytes <= 64 * mebi ? 20 : 5;
}

int defaultReplays(DeviceKind machine, std::uint64_t bytes) {
  if (machine == DeviceKind::sim) return 3;
  return bytes <= mebi ? 50 : bytes <= 64 * mebi ? 20 : 10;
}

// Why algorithms refuse a call, and which: "a, b: reason; c: another".
class Reasons {
 public:
  void add(std::string const& reason, std::string const& name) {
    auto found = std::find_if(entries_.begin(), entries_.end(), [&](auto const& one) { return one.first == reason; });
    if (found == entries_.end()) found = entries_.insert(entries_.end(), {reason, {}});
    auto& names = found->second;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string text() const {
    std::vector<std::string> parts;
    for (auto const& [reason, names] : entries_) parts.push_back(fmt::format("{}: {}", fmt::join(names, ", "), reason));
    return fmt::format("{}", fmt::join(parts, "; "));
  }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> entries_;
};

class Planner {
 public:
  Planner(Options const& options, World world, AlgorithmCollection const& algorithms)
      : options_(options), world_(std::move(world)), algorithms_(algorithms) {
    // One rank's view, so that all plan alike.
    world_.rank = 0;
    world_.planned = true;
  }

  Plan plan() {
    checkNames();
    for (auto collective : options_.collectives) {
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
    return {std::move(cases_), leftOut_.text()};
  }

 private:
  std::string joinedCollectives() const {
    std::vector<std::string_view> names;
    for (auto collective : options_.collectives) names.push_back(nameOf(collective));
    return fmt::format("{}", fmt::join(names, ","));
  }

  // A name that none of the collectives has is a mistake.
  void checkNames() const {
    auto const isKnown = [&](std::string const& wanted) {
      return std::any_of(options_.collectives.begin(), options_.collectives.end(),
                         [&](auto collective) { return algorithms_.find(collective, wanted) != nullptr; });
    };
    for (auto const& wanted : options_.algorithms) {
      if (isKnown(wanted)) continue;
      std::vector<std::string> known;
      for (auto collective : options_.collectives) {
        for (auto const& name : algorithms_.names(collective)) {
          if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
        }
      }
      throw UsageError(
          fmt::format("--algorithm={}: allowed is auto, all, or a list of {}", wanted, fmt::join(known, ", ")));
    }
  }

  Case blankCase(Collective collective, DataType type, ReduceOp operation, std::uint64_t bytes) const {
    Case item;
    item.collective = collective;
    item.type = type;
    item.operation = operation;
    item.slots = slotsOf(collective, world_.ranks);
    item.count = bytes / bytesOf(type) / static_cast<std::uint64_t>(item.slots);
    item.replays = options_.replays.value_or(defaultReplays(world_.machine, bytes));
    item.operations = std::min(options_.operationsPerGraph.value_or(defaultOperations(options_, world_.machine, bytes)),
                               maxOperations(collective, type, operation, world_.ranks));
    return item;
  }

  void planSizes(Collective collective, DataType type, ReduceOp operation) {
    auto const least = bytesOf(type) * static_cast<std::uint64_t>(slotsOf(collective, world_.ranks));
    if (options_.minBytes < least) {
      throw UsageError(
          traitsOf(collective).hasParts()
              ? fmt::format("--min-bytes={} is less than one element of --dtype={} for each of the {} ranks "
                            "of {}, which takes {} bytes",
                            options_.minBytes, nameOf(type), world_.ranks, nameOf(collective), least)
              : fmt::format("--min-bytes={} is less than one element of --dtype={}, which has {} bytes",
                            options_.minBytes, nameOf(type), least));
    }
    std::uint64_t const most =
        std::max(options_.minBytes, options_.maxBytes.value_or(world_.machine == DeviceKind::sim ? mebi : 1024 * mebi));
    for (std::uint64_t bytes = options_.minBytes; bytes <= most; bytes *= options_.factor) {
      auto const blank = blankCase(collective, type, operation, bytes);
      auto const own = ownCases(blank);
      if (own.empty()) continue;
      for (auto peer : options_.peers) {
        auto item = blank;
        item.contender = peer;
        cases_.push_back(item);
      }
      cases_.insert(cases_.end(), own.begin(), own.end());
    }
  }

  // Where nothing is yet: apart by more than any size, or one buffer.
  CollectiveCall callOf(Case const& item) const {
    constexpr std::uintptr_t apart = std::uintptr_t{1} << 44;
    auto* const in = reinterpret_cast<std::byte*>(apart);
    auto* const out = options_.inPlace ? in : in + apart;
    return item.call(world_.ranks, in, out, 0);
  }

  std::vector<Case> ownCases(Case item) {
    item.inPlace = options_.inPlace;
    item.blocks = static_cast<int>(options_.blocks.value_or(0));
    item.threads = static_cast<int>(options_.threads.value_or(0));
    auto const call = callOf(item);
    if (options_.algorithmChoice == AlgorithmChoice::automatic) return chosenCase(item, call);

    bool const all = options_.algorithmChoice == AlgorithmChoice::all;
    std::vector<Case> result;
    Reasons refusals;
    for (auto const& name : all ? algorithms_.names(item.collective) : options_.algorithms) {
      auto const algorithm = algorithms_.find(item.collective, name);
      if (algorithm == nullptr) continue;
      if (auto const why = refusal(*algorithm, call); !why.empty()) {
        if (!all) throw UsageError(fmt::format("{}: {}", flagsOf(item, name), why));
        refusals.add(why, name);
        leftOut_.add(why, name);
        continue;
      }
      item.by = algorithm;
      item.launch = algorithm->launchFor(world_, call);
      result.push_back(finished(item));
    }
    if (all && result.empty() && !options_.everyCollective) refuseAll(item, refusals);
    return result;
  }

  std::vector<Case> chosenCase(Case item, CollectiveCall const& call) {
    try {
      auto const resolution = algorithms_.resolve(item.collective, world_, call);
      item.by = resolution.algorithm;
      item.launch = resolution.launch;
      item.chosen = true;
      item.blocks = resolution.blocks;
      item.threads = resolution.threads;
    } catch (Error const& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      Reasons refusals;
      for (auto const& name : algorithms_.names(item.collective)) {
        refusals.add(refusal(*algorithms_.at(item.collective, name), call), name);
      }
      refuseAll(item, refusals);
    }
    if (auto const why = refusal(*item.by, call); !why.empty()) {
      if (options_.everyCollective) {
        leftOut_.add(why, item.by->name());
        return {};
      }
      throw UsageError(fmt::format("{}: {}: {}", flagsOf(item, "auto"), item.by->name(), why));
    }
    return {finished(item)};
  }

  std::string refusal(Algorithm const& algorithm, CollectiveCall const& call) const {
    auto const why = algorithm.refusal(world_, call);
    if (why.empty() && options_.overlap && !algorithm.launchFor(world_, call)) {
      return "it starts its kernel by itself, so that --overlap says nothing to it; leave the flag out";
    }
    return why;
  }

  [[noreturn]] void refuseAll(Case const& item, Reasons const& refusals) const {
    auto const choice = options_.algorithmChoice == AlgorithmChoice::all ? "all" : "auto";
    throw UsageError(fmt::format("{}: every algorithm refuses; {}", flagsOf(item, choice), refusals.text()));
  }

  Case finished(Case item) const {
    item.overlap = options_.overlap.value_or(item.launch && item.launch->shape.overlapPrevious);
    return item;
  }

  // What asks for the case.
  std::string flagsOf(Case const& item, std::string_view algorithm) const {
    auto text =
        fmt::format("--collective={} --algorithm={} --dtype={}", nameOf(item.collective), algorithm, nameOf(item.type));
    if (reduces(item.collective)) text += fmt::format(" --op={}", nameOf(item.operation));
    if (options_.inPlace) text += " --in-place";
    if (options_.blocks) text += fmt::format(" --blocks={}", *options_.blocks);
    if (options_.threads) text += fmt::format(" --threads={}", *options_.threads);
    return text;
  }

  Options const& options_;
  World world_;
  AlgorithmCollection const& algorithms_;
  std::vector<Case> cases_;
  Reasons leftOut_;
};

}  // namespace

std::string Case::subject() const {
  return fmt::format("{}/{}/{}/{}", nameOf(collective), nameOf(type), nameOf(operation), bytes());
}

std::string Case::name() const {
  return fmt::format("{}/{}/{}/{}/{}", nameOf(collective), algorithm(), nameOf(type), nameOf(operation), bytes());
}

CollectiveCall Case::call(int ranks, void const* in, void* out, int root) const {
  auto call = sizedCall(collective, ranks, slotBytes());
  call.in = in;
  call.out = out;
  call.type = type;
  call.op = operation;
  call.blocks = blocks;
  call.threads = threads;
  call.symmetric = true;
  call.root = root;
  return call;
}

Plan planCases(Options const& options, World world, AlgorithmCollection const& algorithms) {
  return Planner(options, std::move(world), algorithms).plan();
}

layout::WorkspaceRequirement requirementOf(std::vector<Case> const& cases) {
  layout::WorkspaceRequirement total{.blocks = 1};
  for (auto const& item : cases) {
    if (item.launch) total = merge(total, item.launch->requirement);
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
