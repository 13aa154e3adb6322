// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bulk copies: who they are, and what they see of the writes of threads.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "sim/checker/checker.hpp"

namespace mscclpp::sim {
namespace {

constexpr std::size_t fencesRemembered = 128;

}  // namespace

void Checker::forgetCopies() {
  copies_.clear();
  copyChunks_.clear();
  endedCopies_.clear();
  proxyFences_.clear();
  proxyFenced_ = {};
  aliasFences_.clear();
  aliasFenced_ = {};
}

// Two copies that nobody has waited for are unordered, so each needs a number of its own. A thread uses one again when
// it knows the copy before to have ended.
Agent& Checker::beginBulkCopy(Agent& issuer, BulkCopy const& copy, Site site) {
  constexpr std::size_t tries = 16;
  auto& ended = endedCopies_[issuer.id];
  Agent* agent = nullptr;
  for (std::size_t i = std::min(tries, ended.size()); i > 0 && agent == nullptr; --i) {
    auto* const oldest = ended.front();
    ended.pop_front();
    if (issuer.known.knows(oldest->id, oldest->epoch - 1)) {
      agent = oldest;
    } else {
      ended.push_back(oldest);
    }
  }
  if (agent == nullptr) {
    auto& chunk = copyChunks_[issuer.device];
    if (chunk.used == threadsPerChunk) chunk = {addChunk(issuer.device), 0};
    agent = &copies_.emplace_back();
    agent->id = chunk.number * threadsPerChunk + chunk.used++;
    agent->device = issuer.device;
  }
  if (agent->block != issuer.block || agent->thread != issuer.thread) {
    agent->block = issuer.block;
    agent->blockIndex = issuer.blockIndex;
    agent->thread = issuer.thread;
    auto const* const thread = occupantOf(issuer.id, issuer.epoch);
    chunks_[agent->id / threadsPerChunk].occupants.push_back({agent->epoch, issuer.block, issuer.blockIndex,
                                                              issuer.thread, thread == nullptr ? 0 : thread->name,
                                                              static_cast<int>(agent->id % threadsPerChunk)});
  }
  addStep(issuer, unorderedAccess(copy.target, copy.bytes, true, AccessWay::bulk), 0, site).what = copy.what;
  agent->known = release(issuer);
  agent->fenced = proxyFenced_;
  for (auto const& fence : proxyFences_) {
    if (agent->known.knows(fence.thread, fence.epoch)) agent->fenced.join(fence.clock);
  }
  return *agent;
}

void Checker::endBulkCopy(Agent const& issuer, Agent& copy) { endedCopies_[issuer.id].push_back(&copy); }

// Copies see what a fence knew if they know of the fence. Of fences long ago, all copies are taken to know.
void Checker::proxyFence(Agent& agent) {
  auto const epoch = agent.epoch;
  proxyFences_.push_back({agent.id, epoch, release(agent)});
  addStep(agent, "bulkFence", 1);
  if (proxyFences_.size() <= fencesRemembered) return;
  proxyFenced_.join(proxyFences_.front().clock);
  proxyFences_.pop_front();
}

void Checker::aliasFence(Agent& agent) {
  auto const epoch = agent.epoch;
  aliasFences_.push_back({agent.id, epoch, release(agent)});
  addStep(agent, "multimemFence", 1);
  if (aliasFences_.size() <= fencesRemembered) return;
  aliasFenced_.join(aliasFences_.front().clock);
  aliasFences_.pop_front();
}

bool Checker::aliasFenced(Agent const& agent, Slot const& earlier) const {
  if (aliasFenced_.knows(earlier.thread(), earlier.epoch())) return true;
  return std::ranges::any_of(aliasFences_, [&](ProxyFence const& fence) {
    return (fence.thread == agent.id || agent.known.knows(fence.thread, fence.epoch)) &&
           fence.clock.knows(earlier.thread(), earlier.epoch());
  });
}

void Checker::bytesInFlight(Agent const& issuer, BulkCopy const& copy, Site site) {
  auto* const finding = addFinding(FindingKind::bytesInFlight, codeOf(site));
  if (finding == nullptr) return;
  auto const access = unorderedAccess(copy.target, copy.bytes, true, AccessWay::bulk);
  finding->accesses.push_back(describe(issuer, access, site));
  auto const& by = finding->accesses.front();
  finding->summary = fmt::format("{} of rank {} block {} ended with a bulk {} of {} bytes on its way",
                                 copy.load ? "the kernel" : fmt::format("thread {}", by.thread), by.rank, by.block,
                                 copy.load ? "load" : "store", copy.bytes);
  finding->explanation =
      copy.load
          ? "The bytes come into shared memory that is another block's by then: wait at the load's barrier before the "
            "block ends."
          : "The copy still reads shared memory that is another block's once this one has ended: bulkCommit() the "
            "store and call bulkWaitRead(), or bulkWait(), before the thread ends.";
}

}  // namespace mscclpp::sim
