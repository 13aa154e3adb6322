// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/collectives/algorithm_collection.hpp"

#include <algorithm>
#include <array>

#include "base/format.hpp"
#include "collectives/call/call_check.hpp"
#include "collectives/call/context_cache.hpp"
#include "collectives/call/library_algorithm.hpp"
#include "collectives/call/message_ring.hpp"
#include "collectives/call/two_level.hpp"
#include "mscclpp/collectives/kernel_table.hpp"
#include "mscclpp/collectives/selection.hpp"
#include "mscclpp/collectives/tuned_profile.hpp"

namespace mscclpp {
namespace {

// What MSCCL++ calls the algorithms that do the same: the same exchange over the same kind of packet or memory.
struct Alias {
  Collective collective;
  std::string_view alias;
  std::string_view name;
};
constexpr std::array mscclppNames{
    Alias{Collective::allReduce, "default_allreduce_allpair_packet", "oneshot_ll8"},
    Alias{Collective::allReduce, "default_allreduce_packet", "twoshot_ll16"},
    Alias{Collective::allReduce, "default_allreduce_rsag_pipeline", "twoshot_memory"},
    Alias{Collective::allReduce, "default_allreduce_rsag_zero_copy", "pull"},
    Alias{Collective::allReduce, "default_allreduce_nvls_packet", "nvls_packet"},
    Alias{Collective::allReduce, "default_allreduce_nvls_zero_copy", "nvls_zero_copy"},
    Alias{Collective::allReduce, "default_allreduce_nvls_warp_pipeline", "nvls_warp_pipeline"},
    Alias{Collective::allReduce, "default_allreduce_nvls_block_pipeline", "nvls_block_pipeline"},
    Alias{Collective::allGather, "default_allgather_fullmesh", "memory"},
    Alias{Collective::allGather, "default_allgather_fullmesh2", "push"},
};

SelectionRequest requestFor(Collective collective, World const& world, CollectiveCall const& call) {
  return {.collective = collective,
          .ranks = world.ranks,
          .bytes = collectives_impl::wholeBytes(collective, world.ranks, call),
          .type = call.type,
          .op = call.op,
          .symmetric = call.symmetric,
          .machine = world.machine,
          .device = world.device,
          .wholeLines = world.wholeLines};
}

constexpr std::size_t smallestPrepared = 64;

// As choices see a call of `part` bytes from each rank for each, of rank 0: with buffers that are nowhere.
CollectiveCall imagined(Collective collective, int ranks, DataType type, std::size_t part) {
  constexpr std::uintptr_t in = std::uintptr_t{1} << 44;
  constexpr std::uintptr_t out = std::uintptr_t{1} << 45;
  auto const& traits = traitsOf(collective);
  auto const parts = static_cast<std::size_t>(ranks);
  CollectiveCall call;
  call.type = type;
  call.op = reduces(collective) ? ReduceOp::sum : ReduceOp::none;
  call.in = reinterpret_cast<void const*>(in);
  call.inBytes = part * traits.in.partsOf(parts);
  call.out = reinterpret_cast<void*>(out);
  call.outBytes = part * traits.out.partsOf(parts);
  return call;
}

}  // namespace

AlgorithmCollection AlgorithmCollection::defaults() {
  AlgorithmCollection result;
  for (auto collective : collectives) {
    // Its kernels are those of message groups.
    if (collective == Collective::sendRecv) continue;
    for (auto& name : KernelTable::instance().algorithms(collective)) {
      result.add(std::make_shared<collectives_impl::LibraryAlgorithm>(collective, std::move(name)));
    }
  }
  result.add(collectives_impl::messageRing());
  for (auto const& algorithm : collectives_impl::twoLevelAlgorithms()) result.add(algorithm);
  for (auto const& entry : mscclppNames) {
    if (result.find(entry.collective, entry.name)) {
      result.addAlias(entry.collective, std::string(entry.alias), entry.name);
    }
  }
  result.setProfile(TunedProfile::installed());
  return result;
}

void AlgorithmCollection::add(std::shared_ptr<Algorithm const> algorithm) {
  if (algorithm == nullptr) fail(ErrorCode::invalidUsage, "AlgorithmCollection::add: there is no algorithm");
  std::pair const key(algorithm->collective(), algorithm->name());
  for (auto* const list : {&algorithms_, &preferred_}) {
    std::erase_if(*list, [&](auto const& old) { return std::pair(old->collective(), old->name()) == key; });
  }
  algorithms_.push_back(algorithm);
  byName_[key] = std::move(algorithm);
  changed();
}

void AlgorithmCollection::prefer(std::shared_ptr<Algorithm const> algorithm) {
  add(algorithm);
  preferred_.push_back(std::move(algorithm));
}

void AlgorithmCollection::addAlias(Collective collective, std::string alias, std::string_view name) {
  byName_[{collective, std::move(alias)}] = at(collective, name);
  changed();
}

void AlgorithmCollection::setSelector(Selector selector) {
  selector_ = std::move(selector);
  changed();
}

void AlgorithmCollection::setProfile(std::shared_ptr<TunedProfile const> profile) {
  profile_ = std::move(profile);
  changed();
}

void AlgorithmCollection::changed() { state_ = collectives_impl::nextChooser(); }

std::shared_ptr<Algorithm const> AlgorithmCollection::find(Collective collective, std::string_view name) const {
  auto const found = byName_.find(std::pair(collective, std::string(name)));
  return found == byName_.end() ? nullptr : found->second;
}

std::vector<std::string> AlgorithmCollection::names(Collective collective) const {
  std::vector<std::string> result;
  for (auto const& algorithm : algorithms_) {
    if (algorithm->collective() == collective) result.push_back(algorithm->name());
  }
  return result;
}

std::vector<std::pair<Collective, std::string>> AlgorithmCollection::aliases() const {
  std::vector<std::pair<Collective, std::string>> result;
  for (auto const& [key, algorithm] : byName_) {
    if (key.second != algorithm->name()) result.push_back(key);
  }
  return result;
}

std::shared_ptr<Algorithm const> AlgorithmCollection::at(Collective collective, std::string_view name) const {
  auto result = find(collective, name);
  if (result == nullptr) {
    auto const there = names(collective);
    fail(ErrorCode::invalidUsage, "there is no {} \"{}\"; {}", nameOf(collective), name,
         there.empty() ? std::string("this collection has no algorithm of that collective")
                       : fmt::format("choose one of {}", fmt::join(there, ", ")));
  }
  return result;
}

Resolution AlgorithmCollection::resolve(Collective collective, World const& world, CollectiveCall const& call) const {
  collectives_impl::checkCall(world, collective, call);
  auto const request = requestFor(collective, world, call);
  if (selector_) {
    if (auto const choice = selector_(request)) return resolved(collective, world, call, *choice);
  }
  for (auto const& algorithm : preferred_) {
    if (algorithm->collective() == collective && algorithm->refusal(world, call).empty()) {
      return resolved(collective, world, call, {algorithm->name()});
    }
  }
  auto const works = [&](std::string const& name) {
    auto const algorithm = find(collective, name);
    return algorithm != nullptr && algorithm->refusal(world, call).empty();
  };
  if (profile_ != nullptr) {
    if (auto const* const tuned = profile_->nearest(request); tuned != nullptr && works(tuned->algorithm)) {
      auto const blocks = std::min(tuned->blocks, static_cast<int>(world.maxBlocks));
      return resolved(collective, world, call, {tuned->algorithm, blocks, tuned->threads});
    }
  }
  for (auto const& name : preferredAlgorithms(request)) {
    if (works(name)) return resolved(collective, world, call, {name});
  }
  std::string reasons;
  for (auto const& algorithm : algorithms_) {
    if (algorithm->collective() != collective) continue;
    auto const why = algorithm->refusal(world, call);
    if (why.empty()) return resolved(collective, world, call, {algorithm->name()});
    reasons += fmt::format("\n{}: {}", algorithm->name(), why);
  }
  fail(ErrorCode::unsupported, "{}: no algorithm of this collection can do it{}",
       collectives_impl::titleOf(world.rank, collective, call),
       reasons.empty() ? std::string("; it has none of this collective") : reasons);
}

Resolution AlgorithmCollection::resolved(Collective collective, World const& world, CollectiveCall const& call,
                                         Selection const& choice) const {
  auto shaped = call;
  if (shaped.blocks == 0) shaped.blocks = choice.blocks;
  if (shaped.threads == 0) shaped.threads = choice.threads;
  auto const algorithm = at(collective, choice.algorithm);
  return {.algorithm = algorithm,
          .blocks = shaped.blocks,
          .threads = shaped.threads,
          .launch = algorithm->launchFor(world, shaped)};
}

Selection AlgorithmCollection::choose(Collective collective, Communicator const& communicator,
                                      CollectiveCall const& call) const {
  auto const result = resolve(collective, World::of(communicator), call);
  return {result.algorithm->name(), result.blocks, result.threads};
}

void AlgorithmCollection::prepare(Communicator const& communicator, Stream const& stream, std::size_t bytes) const {
  auto& cache = collectives_impl::ContextCache::of(communicator);
  auto world = cache.world();
  if (world.nodes != 1) return;
  world.planned = true;
  world.rank = 0;  // the root, on all ranks alike
  layout::WorkspaceRequirement need;
  for (auto const collective : collectives) {
    if (collective == Collective::barrier || collective == Collective::sendRecv) continue;
    for (auto const type : dataTypes) {
      for (std::size_t part = smallestPrepared; part <= bytes; part *= 2) {
        try {
          auto const launch = resolve(collective, world, imagined(collective, world.ranks, type, part)).launch;
          if (launch) need = merge(need, launch->requirement);
        } catch (Error const& error) {
          if (error.code() != ErrorCode::unsupported) throw;
        }
      }
      if (!reduces(collective)) break;  // whose types are all bytes
    }
  }
  cache.reserve(stream, need);
}

bool AlgorithmCollection::startsAtOnce(Collective collective, Communicator const& communicator, Stream const& stream,
                                       CollectiveCall const& call) const {
  auto& cache = collectives_impl::ContextCache::of(communicator);
  return cache.startsAtOnce(cache.keyOf(state_, collective, stream, call), stream, call);
}

void AlgorithmCollection::execute(Collective collective, Communicator const& communicator, Stream const& stream,
                                  CollectiveCall const& call) const {
  auto& cache = collectives_impl::ContextCache::of(communicator);
  auto const key = cache.keyOf(state_, collective, stream, call);
  if (cache.startAgain(key, stream, call)) return;
  cache.begin(key, stream, call);
  auto const resolution = resolve(collective, cache.world(), call);
  auto shaped = call;
  shaped.blocks = resolution.blocks;
  shaped.threads = resolution.threads;
  if (!resolution.launch) return cache.start(key, resolution, stream, shaped);
  collectives_impl::startFirst(*resolution.algorithm, resolution.launch, key, communicator, stream, shaped);
}

}  // namespace mscclpp
