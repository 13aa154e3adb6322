// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/call/context_cache.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/format.hpp"
#include "mscclpp/algorithms/catalogue.hpp"
#include "mscclpp/base/bits.hpp"
#include "mscclpp/host/hierarchy.hpp"

namespace mscclpp {
namespace collectives_impl {
namespace {

std::uint32_t gridLimitOf(Device device, unsigned ranksPerDevice) {
  // On simulated GPUs threads are the cost: as few as leave room for several blocks to get into each other's way.
  if (device.kind == DeviceKind::sim) return 4;
  return World::mostBlocks(static_cast<unsigned>(device.properties().multiprocessors), ranksPerDevice);
}

template <class Message>
std::vector<Message> gather(Bootstrap& bootstrap, Message const& mine) {
  std::vector<Message> all(static_cast<std::size_t>(bootstrap.getNranks()), mine);
  bootstrap.allGather(all.data(), sizeof(Message));
  return all;
}

// Sizes at which workspaces grow, so that they are replaced a few times at most.
layout::WorkspaceRequirement rounded(layout::WorkspaceRequirement const& need, std::uint32_t blocks) {
  auto const up = [](std::uint64_t bytes) { return bytes == 0 ? 0 : std::bit_ceil(bytes); };
  return {std::max(need.blocks, blocks), up(need.packetBytes), up(need.lineBytes), up(need.stageBytes), need.multicast};
}

// What a rank knows of it by itself.
World ownWorld(Communicator const& communicator) {
  World world;
  world.machine = communicator.device().kind;
  world.rank = communicator.rank();
  world.ranks = communicator.size();
  world.noMulticast = whyNoMulticast(communicator.device());
  return world;
}

}  // namespace

ContextCache::ContextCache(Communicator const& communicator)
    : communicator_(communicator),
      machine_(communicator.device().runtime()),
      world_(ownWorld(communicator)),
      failures_(communicator.failures()),
      comparesCalls_(environment().checkCalls) {}

World const& ContextCache::world() {
  auto const held = lock();
  if (!knowsWorld_) learnWorld();
  return world_;
}

// Collective. Not part of making a cache: a failure of it is one of a call, which the cache has to count.
void ContextCache::learnWorld() {
  struct Own {
    std::uint64_t wholeLines;
    std::uint64_t maxBlocks;
    std::uint64_t multicast;
    std::int32_t ranksPerDevice;
    char device[112];
  };
  auto const device = communicator_.device();
  Own own{};
  own.wholeLines = communicator_.linesArriveWhole() ? 1 : 0;
  int const sharing = communicator_.ranksPerDevice();
  own.maxBlocks = gridLimitOf(device, static_cast<unsigned>(sharing));
  if (limits_.blocks != 0) own.maxBlocks = std::min<std::uint64_t>(own.maxBlocks, limits_.blocks);
  device.properties().name.copy(own.device, sizeof own.device - 1);
  auto world = ownWorld(communicator_);
  world.maxBlocks = static_cast<std::uint32_t>(own.maxBlocks);
  world.device = own.device;
  own.multicast = world.noMulticast.empty() ? 1 : 0;
  own.ranksPerDevice = sharing;
  world.hosts = hostsOf(communicator_);
  world.nodes = static_cast<int>(nodesOf(world.hosts).size());
  if (communicator_.bootstrap()->getNranksPerNode() < communicator_.size() && world.noMulticast.empty()) {
    world.noMulticast = "its ranks are on several hosts, and memory behind the switch is of one";
  }
  if (sharing > 1) {
    if (world.noMulticast.empty()) world.noMulticast = "ranks share a GPU, which takes part once only";
    world.device.clear();  // no profile was tuned for that
  }
  bool const wasBroken = std::exchange(brokenOff_, true);
  for (auto const& other : gather(*communicator_.setup(), own)) {
    world.wholeLines = world.wholeLines && other.wholeLines != 0;
    world.maxBlocks = std::min(world.maxBlocks, static_cast<std::uint32_t>(other.maxBlocks));
    if (other.multicast == 0 && world.noMulticast.empty()) {
      world.noMulticast = "not every rank's device can take part; see isNvlsSupported() on each";
    }
    world.ranksPerDevice = std::max(world.ranksPerDevice, static_cast<int>(other.ranksPerDevice));
    if (std::strncmp(own.device, other.device, sizeof own.device) != 0) world.device.clear();
  }
  brokenOff_ = wasBroken;
  world_ = std::move(world);
  knowsWorld_ = true;
}

bool ContextCache::agree(bool mine) const {
  auto const all = gather(*communicator_.setup(), static_cast<std::uint8_t>(mine ? 1 : 0));
  return std::all_of(all.begin(), all.end(), [](std::uint8_t one) { return one != 0; });
}

// Collective. True when no kernel of any rank can use what is kept; false where a rank cannot tell now.
bool ContextCache::quiesce(bool capturing) {
  return agree(!capturing && machine_.synchronizeDevice(communicator_.device().ordinal));
}

// Collective. True when no kernel of any rank can use what this stream alone has; false where it cannot be told now.
bool ContextCache::quiesceStream(Stream const& stream, bool capturing) {
  if (!capturing) machine_.synchronize(stream.native(), std::chrono::hours(24 * 365));
  return agree(!capturing);
}

// Before an entry is added. The ranks make the same calls, so they choose the same entry to go.
template <class Map, class MayGo>
void ContextCache::makeRoom(Map& map, std::size_t limit, bool capturing, MayGo&& mayGo) {
  if (map.size() < limit || map.oldest(mayGo) == nullptr || !quiesce(capturing)) return;
  while (map.size() >= limit) {
    auto const* const oldest = map.oldest(mayGo);
    if (oldest == nullptr) return;
    map.erase(*oldest);
    ++generation_;
  }
}

StreamContext& ContextCache::contextOf(Stream const& stream) {
  if (auto* const entry = streams_.find(stream.id())) return *entry;
  makeRoom(streams_, limits_.teams, stream.capturing(),
           [](StreamContext const& old) { return !old.inGraph && old.retired.empty(); });
  return streams_.insert(stream.id(), {.number = nextStream_++});
}

StreamContext& ContextCache::team(Stream const& stream, layout::WorkspaceRequirement const& requirement) {
  bool const capturing = stream.capturing();
  auto& entry = contextOf(stream);
  if (entry.team != nullptr && merge(entry.requirement, requirement) == entry.requirement) {
    entry.inGraph = entry.inGraph || capturing;
    return entry;
  }
  auto const need = rounded(merge(entry.requirement, requirement), world_.maxBlocks);
  auto made = std::make_unique<Team>(communicator_, need);
  if (entry.team != nullptr && (entry.inGraph || !quiesceStream(stream, capturing))) {
    entry.retired.push_back(std::move(entry.team));
  }
  entry.team = std::move(made);
  entry.requirement = need;
  entry.inGraph = capturing;
  return entry;
}

void ContextCache::reserve(Stream const& stream, layout::WorkspaceRequirement const& requirement) {
  auto const held = lock();
  (void)team(stream, requirement);
}

void ContextCache::dropDeadWindows() {
  std::vector<std::byte*> dead;
  windows_.forEach([&](std::byte* base, Window const& window) {
    try {
      if (machine_.allocationOf(base).id != window.allocation) dead.push_back(base);
    } catch (Error const&) {
      dead.push_back(base);
    }
  });
  for (auto* base : dead) windows_.erase(base);
}

WindowPlace ContextCache::window(Stream const& stream, void const* pointer, std::size_t bytes, bool multicast) {
  auto const allocation = machine_.allocationOf(pointer);
  auto* const base = static_cast<std::byte*>(allocation.base);
  auto const offset = static_cast<std::uint64_t>(static_cast<std::byte const*>(pointer) - base);
  int const rank = communicator_.rank();
  if (auto const end = rangeEnd(offset, bytes); end > allocation.bytes) {
    fail(ErrorCode::invalidUsage,
         "rank {}: a buffer of {} bytes at {} ends {} bytes behind its allocation of {} bytes; pass the size that the "
         "buffer has",
         rank, bytes, fmt::ptr(pointer), end - allocation.bytes, allocation.bytes);
  }
  bool const capturing = stream.capturing();
  auto* found = windows_.find(base);
  if (found != nullptr && found->allocation == allocation.id) {
    found->inGraph = found->inGraph || capturing;
    if (!multicast || found->memory->deviceHandle().multicast != nullptr)
      return {&found->memory->deviceHandle(), offset};
    if (found->multicast == nullptr) {
      found->multicast = std::make_unique<MemoryWindow>(communicator_, base, found->memory->size(), std::vector<int>{},
                                                        WindowUse::multicast);
    }
    return {&found->multicast->deviceHandle(), offset};
  }
  dropDeadWindows();
  makeRoom(windows_, limits_.windows, capturing, [](Window const& old) { return !old.inGraph; });

  struct Own {
    std::uint64_t offset;
    std::uint64_t bytes;
  };
  auto const all = gather(*communicator_.setup(), Own{offset, allocation.bytes});
  auto common = allocation.bytes;
  // Compared with one rank by all, so that all refuse.
  for (std::size_t other = 0; other < all.size(); ++other) {
    common = std::min(common, static_cast<std::size_t>(all[other].bytes));
    if (all[other].offset == all[0].offset) continue;
    fail(ErrorCode::invalidUsage,
         "rank {}: `symmetric` buffers must lie equally far into their allocations, but rank 0's is {} bytes from the "
         "start and rank {}'s {} bytes; allocate them alike on all ranks, or leave `symmetric` out",
         rank, all[0].offset, other, all[other].offset);
  }
  auto& made =
      windows_.insert(base, {allocation.id,
                             std::make_unique<MemoryWindow>(communicator_, base, common, std::vector<int>{},
                                                            multicast ? WindowUse::multicast : WindowUse::threads),
                             nullptr, capturing, 0});
  return {&made.memory->deviceHandle(), offset};
}

std::shared_ptr<void> ContextCache::native(Stream const& stream, std::uint64_t algorithm, ContextKey const& key,
                                           std::function<void()> const& initialize,
                                           std::function<std::shared_ptr<void>()> const& make) {
  if (!initialized_.contains(algorithm)) {
    if (initialize) initialize();
    initialized_.insert(algorithm);
  }
  if (!make) return nullptr;
  bool const capturing = stream.capturing();
  NativeKey const fullKey{algorithm, stream.id(), key};
  if (auto* const found = natives_.find(fullKey)) {
    found->inGraph = found->inGraph || capturing;
    return found->context;
  }
  makeRoom(natives_, limits_.native, capturing, [](Native const& old) { return !old.inGraph; });
  return natives_.insert(fullKey, {make(), capturing, 0}).context;
}

void ContextCache::setLimits(ContextLimits const& limits) {
  // A call may need a window for its input and one for its output.
  if (limits.teams == 0 || limits.windows < 2 || limits.native == 0) {
    fail(
        ErrorCode::invalidUsage,
        "rank {}: setContextLimits with {} teams, {} windows and {} native contexts; there must be at least 1, 2 and 1",
        communicator_.rank(), limits.teams, limits.windows, limits.native);
  }
  if (knowsWorld_ && limits.blocks != limits_.blocks) {
    fail(ErrorCode::invalidUsage, "rank {}: setContextLimits with {} blocks, {} before; set them before the first use",
         communicator_.rank(), limits.blocks, limits_.blocks);
  }
  limits_ = limits;
}

ContextCounts ContextCache::counts() const {
  ContextCounts result;
  result.windows = windows_.size();
  result.native = natives_.size();
  streams_.forEach([&](std::uint64_t, StreamContext const& entry) {
    result.retiredTeams += entry.retired.size();
    if (entry.team != nullptr) {
      ++result.teams;
      result.workspaceBytes += entry.team->deviceHandle().layout.total;
    }
    for (auto const& old : entry.retired) result.workspaceBytes += old->deviceHandle().layout.total;
  });
  return result;
}

void ContextCache::release() {
  auto const title = fmt::format("rank {}: releaseContexts", world_.rank);
  requireReportsTaken(title);
  for (bool together = false; !together;) {
    together = true;
    for (auto const& one : meet(true, {})) {
      if (!one.idle) {
        fail(ErrorCode::invalidUsage, "{} while a stream is captured, here or on another rank; end the capture first",
             title);
      }
      together = together && one.anew;  // else it is in a call, which tells it to come here
    }
  }
  streams_.clear();
  windows_.clear();
  natives_.clear();
  calls_.clear();
  retired_.clear();
  nextStream_ = 0;
  settled();
  // Nobody goes on, perhaps to free its buffers, before everybody has let go of them.
  communicator_.setup()->barrier();
}

}  // namespace collectives_impl

using collectives_impl::ContextCache;

std::uint32_t World::mostBlocks(unsigned multiprocessors, unsigned ranksPerDevice) {
  // Multiprocessors of the GPU that the largest default grid was chosen for.
  constexpr std::uint64_t tunedMultiprocessors = 132;
  // The grids of all ranks must be there at once: a block for each multiprocessor fits, whatever the kernel.
  if (ranksPerDevice > 1) return std::clamp(multiprocessors / ranksPerDevice, 1u, largestGrid);
  auto const blocks = std::uint64_t{largestGrid} * multiprocessors / tunedMultiprocessors;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(blocks, 1, largestGrid));
}

World const& World::of(Communicator const& communicator) { return ContextCache::of(communicator).world(); }

void setContextLimits(Communicator const& communicator, ContextLimits const& limits) {
  auto& cache = ContextCache::of(communicator);
  auto const lock = cache.lock();
  cache.setLimits(limits);
}

ContextCounts contextCounts(Communicator const& communicator) {
  auto& cache = ContextCache::of(communicator);
  auto const lock = cache.lock();
  return cache.counts();
}

void releaseContexts(Communicator const& communicator) {
  auto& cache = ContextCache::of(communicator);
  auto const lock = cache.lock();
  cache.release();
}

}  // namespace mscclpp
