// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of ContextCache that goes on after a failure, and that finds calls which differ between ranks.
//
// A rank whose kernel has given up, or that could not set something up, tells the others at its next call how far it is
// in each stream, and they tell it. A rank that has not noticed the failure does so at the latest when its own kernel
// waits in vain for a rank that is here. Then calls go on with the first one that no rank has given up: ranks that are
// not so far throw until they are. All that kernels had in common before is made anew.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/format.hpp"
#include "collectives/call/call_check.hpp"
#include "collectives/call/context_cache.hpp"
#include "mscclpp/host/wait_report.hpp"

namespace mscclpp::collectives_impl {
namespace {

// Ahead of a standing: what programs hand to rejoin() of their own begins with something else.
struct StandingHead {
  std::uint64_t mark = 0x676e69646e617473;
  std::uint32_t idle = 0;
  std::uint32_t anew = 0;
};

std::vector<std::byte> pack(Standing const& standing) {
  StandingHead const head{.idle = standing.idle, .anew = standing.anew};
  std::vector<std::byte> message;
  for (auto const part : {std::as_bytes(std::span(&head, 1)), std::as_bytes(std::span(standing.progress))}) {
    message.insert(message.end(), part.begin(), part.end());
  }
  return message;
}

std::optional<Standing> unpack(std::vector<std::byte> const& message) {
  StandingHead head;
  if (message.size() < sizeof head) return {};
  std::memcpy(&head, message.data(), sizeof head);
  if (head.mark != StandingHead{}.mark) return {};
  Standing standing{.idle = head.idle != 0, .anew = head.anew != 0, .progress = {}};
  standing.progress.resize((message.size() - sizeof head) / sizeof(Progress));
  if (!standing.progress.empty()) {
    std::memcpy(standing.progress.data(), message.data() + sizeof head, standing.progress.size() * sizeof(Progress));
  }
  return standing;
}

}  // namespace

ContextCache::WithinCall::WithinCall(ContextCache& cache) : cache_(cache) {
  auto const held = cache_.lock();
  cache_.withinCalls_.push_back(std::this_thread::get_id());
}

ContextCache::WithinCall::~WithinCall() {
  auto const held = cache_.lock();
  auto& within = cache_.withinCalls_;
  within.erase(std::find(within.begin(), within.end(), std::this_thread::get_id()));
}

bool ContextCache::isWithinCall() const {
  return std::find(withinCalls_.begin(), withinCalls_.end(), std::this_thread::get_id()) != withinCalls_.end();
}

bool ContextCache::hasFailed() const {
  return brokenOff_ || communicator_.failures() != failures_ ||
         std::atomic_ref(communicator_.watch()->abort).load(std::memory_order_relaxed) != 0;
}

void ContextCache::begin(CallKey const& key, Stream const& stream, CollectiveCall const& call) {
  auto const held = lock();
  if (isWithinCall()) return;
  auto* known = streams_.find(stream.id());
  if (known != nullptr) ++known->calls;
  if (hasFailed()) recover(stream, titleOf(world_.rank, key.collective, call));
  auto& context = contextOf(stream);
  if (known == nullptr) ++context.calls;
  if (context.calls <= context.resume) {
    fail(ErrorCode::remoteError,
         "{}: another rank has given up this call, number {} of its stream; all go on with number {}. Or start anew "
         "with releaseContexts() on all ranks",
         titleOf(world_.rank, key.collective, call), context.calls - 1, context.resume);
  }
  if (!knowsWorld_) learnWorld();
  if (comparesCalls_) compareCalls(key, context, call);
}

void ContextCache::requireReportsTaken(std::string const& title) const {
  auto const& watch = *communicator_.watch();
  if (std::atomic_ref(const_cast<std::uint32_t&>(watch.abort)).load(std::memory_order_relaxed) == 0) return;
  auto const reports = explain(watch);
  auto const lines = reports.empty() ? reports : "\n" + reports;
  if (auto const fault = communicator_.fault()) fail(fault->code(), "{}: {}{}", title, fault->what(), lines);
  fail(ErrorCode::aborted,
       "{}: kernels of this rank have given up before. When they have ended, checkReports() or synchronize() tells "
       "what they waited for; then call again. After abort() make another communicator (shrink){}",
       title, lines);
}

// Collective. Each rank's standing; `anew` and `progress` are this rank's.
std::vector<Standing> ContextCache::meet(bool anew, std::vector<Progress> progress) {
  bool const idle = machine_.synchronizeDevice(communicator_.device().ordinal);
  brokenOff_ = true;  // until settled()
  std::vector<Standing> all;
  for (auto const& message : communicator_.rejoin(pack({idle, anew, std::move(progress)}))) {
    auto const standing = unpack(message);
    if (!standing) {
      fail(ErrorCode::remoteError,
           "rank {}: after a failure rank {} calls Communicator::rejoin() where this rank makes a collective call or "
           "releases contexts, which meets the others by itself; do the same on all ranks",
           world_.rank, all.size());
    }
    all.push_back(*standing);
  }
  return all;
}

void ContextCache::settled() {
  ++generation_;
  ++renewals_;
  failures_ = communicator_.failures();
  brokenOff_ = false;
  knowsWorld_ = false;  // some ranks may not have got so far
}

void ContextCache::recover(Stream const& stream, std::string const& title) {
  requireReportsTaken(title);
  if (stream.capturing()) {
    fail(ErrorCode::invalidUsage,
         "{}: the first call after a failure, while its stream is captured; ranks find together again outside of "
         "captures only, so make one call before",
         title);
  }
  std::vector<Progress> mine;
  streams_.forEach([&](std::uint64_t id, StreamContext const& context) {
    mine.push_back({context.number, context.calls - (id == stream.id() ? 1 : 0)});
  });
  auto const all = meet(false, mine);
  bool const idle = std::all_of(all.begin(), all.end(), [](auto const& one) { return one.idle; });
  std::map<std::uint64_t, std::uint64_t> furthest;
  for (auto const& one : mine) furthest.emplace(one.stream, one.next);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].anew) {
      fail(ErrorCode::remoteError,
           "{}: after a failure rank {} starts anew (releaseContexts); do so on all ranks, or on none", title, rank);
    }
    auto const& theirs = all[rank].progress;
    bool const same = theirs.size() == mine.size() && std::all_of(theirs.begin(), theirs.end(), [&](auto const& one) {
                        return furthest.contains(one.stream);
                      });
    if (!same) {
      fail(ErrorCode::remoteError,
           "{}: after a failure rank {} knows other streams than this rank; start anew with releaseContexts() on all "
           "ranks",
           title, rank);
    }
    for (auto const& one : theirs) furthest[one.stream] = std::max(furthest[one.stream], one.next);
  }
  // What no graph may use goes, unless a kernel of any rank may still run.
  auto const retire = [&](bool inGraph, auto& object) {
    if (object != nullptr && (inGraph || !idle)) retired_.push_back(std::move(object));
  };
  streams_.forEach([&](std::uint64_t, StreamContext& context) {
    context.resume = furthest[context.number];
    if (context.team != nullptr && (context.inGraph || !idle)) context.retired.push_back(std::move(context.team));
    context.team = nullptr;
    context.inGraph = false;
  });
  windows_.forEach([&](std::byte*, Window& window) {
    retire(window.inGraph, window.memory);
    retire(window.inGraph, window.multicast);
  });
  natives_.forEach([&](NativeKey const&, Native& native) { retire(native.inGraph, native.context); });
  windows_.clear();
  natives_.clear();
  calls_.clear();
  settled();
}

void ContextCache::compareCalls(CallKey const& key, StreamContext const& context, CollectiveCall const& call) const {
  struct Call {
    std::uint64_t stream, number, bytes;
    std::int32_t collective, type, op, root, blocks, threads;
    std::uint32_t symmetric, rankOrder;
    char title[160];
  };
  Call mine{.stream = context.number,
            .number = context.calls - 1,
            .bytes = key.collective <= collectives.back() ? wholeBytes(key.collective, world_.ranks, call) : 0,
            .collective = static_cast<std::int32_t>(key.collective),
            .type = static_cast<std::int32_t>(call.type),
            .op = static_cast<std::int32_t>(call.op),
            .root = call.root,
            .blocks = call.blocks,
            .threads = call.threads,
            .symmetric = call.symmetric,
            .rankOrder = call.rankOrder,
            .title = {}};
  titleOf(world_.rank, key.collective, call).copy(mine.title, sizeof mine.title - 1);
  std::vector<Call> all(static_cast<std::size_t>(world_.ranks), mine);
  communicator_.setup()->allGather(all.data(), sizeof(Call));
  // Each with the first, so that all ranks throw the same.
  for (auto const& other : all) {
    if (std::memcmp(&other, all.data(), offsetof(Call, title)) == 0) continue;
    fail(ErrorCode::invalidUsage,
         "the ranks' calls differ: {} (call {} of stream {}, root {}), but {} (call {} of stream {}, root {}); make "
         "the same calls in the same order on all ranks, with the same sizes, types, operations, roots, shapes and "
         "`symmetric`",
         all[0].title, all[0].number, all[0].stream, all[0].root, other.title, other.number, other.stream, other.root);
  }
}

}  // namespace mscclpp::collectives_impl
