// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "inputs.hpp"
#include "kernel_table.hpp"

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

bool isPacket(AllReduceAlgorithm algorithm) {
  return withAllReduce(algorithm, []<AllReduceAlgorithm A>() {
    return requires { typename TransportOf<A>::Format; };
  });
}

bool carries(AllReduceAlgorithm algorithm, ElementType type) {
  return withAllReduce(algorithm, [&]<AllReduceAlgorithm A>() { return canCarry<A>(bytesOf(type)); });
}

std::vector<AllReduceAlgorithm> algorithmsFor(Options const& options, WorldFacts const& facts, ElementType type,
                                              std::uint64_t bytes) {
  auto const possible = [&](AllReduceAlgorithm algorithm) {
    return carries(algorithm, type) && (facts.wholeLines || !needsWholeLines(algorithm));
  };
  std::vector<AllReduceAlgorithm> result;
  switch (options.algorithmChoice) {
    case AlgorithmChoice::automatic:
      return {chooseAllReduce(static_cast<std::uint32_t>(facts.ranks), bytes, bytesOf(type), facts.wholeLines,
                              facts.maxBlocks)
                  .algorithm};
    case AlgorithmChoice::all:
      for (std::size_t i = 0; i < allReduceNames.size(); ++i) {
        if (auto const algorithm = static_cast<AllReduceAlgorithm>(i); possible(algorithm)) result.push_back(algorithm);
      }
      return result;
    case AlgorithmChoice::named:
      break;
  }
  for (auto algorithm : options.algorithms) {
    if (!carries(algorithm, type)) {
      throw UsageError(
          fmt::format("--algorithm={} has packets that are too small for --dtype={}; choose one with ll16, "
                      "ll128 or memory",
                      name(algorithm), name(type)));
    }
    if (!possible(algorithm)) {
      throw UsageError(
          fmt::format("--algorithm={} needs links that deliver 128-byte lines whole, which these devices do "
                      "not have; choose one with ll8, ll16 or memory",
                      name(algorithm)));
    }
    result.push_back(algorithm);
  }
  return result;
}

Case makeCase(Options const& options, WorldFacts const& facts, ElementType type, Operation operation,
              std::uint64_t bytes) {
  Case item;
  item.type = type;
  item.operation = operation;
  item.count = bytes / bytesOf(type);
  item.replays = options.replays.value_or(defaultReplays(facts.machine, bytes));
  item.operations = std::min(options.operationsPerGraph.value_or(defaultOperations(facts.machine, bytes)),
                             maxOperations(type, operation, facts.ranks));
  return item;
}

}  // namespace

std::string Case::subject() const {
  return fmt::format("{}/{}/{}", bench::name(type), bench::name(operation), bytes());
}

std::string Case::name() const { return fmt::format("allreduce/{}/{}", algorithm(), subject()); }

std::vector<Case> planCases(Options const& options, WorldFacts const& facts) {
  auto const& table = KernelTable::instance();
  std::uint64_t const maxBytes =
      std::max(options.minBytes, options.maxBytes.value_or(facts.machine == DeviceKind::sim ? mebi : 1024 * mebi));
  std::vector<Case> cases;
  for (auto type : options.types) {
    if (options.minBytes < bytesOf(type)) {
      throw UsageError(fmt::format("--min-bytes={} is less than one element of --dtype={}, which has {} bytes",
                                   options.minBytes, name(type), bytesOf(type)));
    }
    for (auto operation : options.operations) {
      for (std::uint64_t bytes = options.minBytes; bytes <= maxBytes; bytes *= options.factor) {
        auto const blank = makeCase(options, facts, type, operation, bytes);
        if (options.nccl) {
          auto peer = blank;
          peer.nccl = true;
          cases.push_back(peer);
        }
        for (auto algorithm : algorithmsFor(options, facts, type, bytes)) {
          if (table.find(facts.machine, type, operation, algorithm, facts.ranks) == nullptr) {
            throw UsageError(
                fmt::format("--op={} is not built for --dtype={}; sum is built for all types, the others for "
                            "float32, bfloat16 and int32",
                            name(operation), name(type)));
          }
          auto item = blank;
          item.inPlace = options.inPlace;
          item.choice = shapeAllReduce(algorithm, static_cast<std::uint32_t>(facts.ranks), bytes, facts.maxBlocks);
          if (options.blocks) item.choice.blocks = *options.blocks;
          if (options.threads) item.choice.threads = *options.threads;
          if (needsWholeLines(algorithm) && item.choice.threads < 32) {
            throw UsageError(fmt::format("--threads={}: {} needs at least 32", item.choice.threads, name(algorithm)));
          }
          item.overlap = options.overlap.value_or(isPacket(algorithm));
          cases.push_back(item);
        }
      }
    }
  }
  return cases;
}

layout::WorkspaceRequirement requirementOf(std::vector<Case> const& cases, int ranks) {
  layout::WorkspaceRequirement total{.blocks = 1};
  for (auto const& item : cases) {
    if (item.nccl) continue;
    total = merge(total, withAllReduce(item.choice.algorithm, [&]<AllReduceAlgorithm A>() {
                    return AllReduceOf<A, Sum>::requirement(static_cast<std::uint32_t>(ranks), item.choice.blocks,
                                                            item.choice.threads);
                  }));
  }
  return total;
}

int maxOperations(ElementType type, Operation operation, int ranks) {
  int const growth = std::bit_width(static_cast<unsigned>(ranks - 1));  // bits per operation, rounded up
  auto const room = withElementType(type, []<class T>(std::type_identity<T>) { return timedGrowthBits<T>(); });
  if (operation != Operation::sum || growth == 0 || !room) return std::numeric_limits<int>::max();
  return std::max(1, *room / growth - leadOperations);
}

}  // namespace mscclpp::bench
