// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How accesses, calls and the last steps are told in a finding.
#include <iterator>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "sim/checker/checker.hpp"
#include "sim/machine/machine.hpp"

namespace mscclpp::sim {
namespace {

constexpr std::size_t stepsRemembered = 24;  // of each rank, for the time line
constexpr std::size_t maxFindings = 64;      // of one run

std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

}  // namespace

void Checker::enterCall(Agent& agent, void const* code) {
  auto const where = reinterpret_cast<std::uintptr_t>(code) & 0xffff'ffff'ffff;
  if (agent.lostCalls == 0) {
    auto const key = where | std::uint64_t{agent.calls} << 48;
    if (auto const it = callNodes_.find(key); it != callNodes_.end()) {
      agent.calls = it->second;
      return;
    }
    if (calls_.size() <= std::numeric_limits<std::uint16_t>::max()) {
      calls_.push_back({agent.calls, where});
      agent.calls = static_cast<std::uint16_t>(calls_.size() - 1);
      callNodes_.emplace(key, agent.calls);
      return;
    }
  }
  ++agent.lostCalls;
}

void Checker::leaveCall(Agent& agent) {
  if (agent.lostCalls != 0) {
    --agent.lostCalls;
  } else {
    agent.calls = calls_[agent.calls].parent;
  }
}

std::vector<std::uintptr_t> Checker::callsOf(Site site) const {
  std::vector<std::uintptr_t> result{codeOf(site)};
  for (auto node = static_cast<std::uint16_t>(site >> 48); node != 0; node = calls_[node].parent) {
    result.push_back(calls_[node].code);
  }
  return result;
}

std::string Checker::memoryOf(std::uintptr_t address) const { return machine_.placeOf(address); }

AccessRecord Checker::describe(Slot const& access, std::size_t bytes, std::uintptr_t address) const {
  auto const thread = access.thread();
  auto const traits = access.traits();
  AccessRecord record;
  auto const& info = chunks_[thread / threadsPerChunk];
  if (auto const* const occupant = occupantOf(thread, access.epoch())) {
    record.kernel = names_[occupant->name];
    record.host = info.single;
    record.rank = info.single ? static_cast<int>(occupant->blockIndex) : info.device;
    if (!info.single) {
      record.block = occupant->blockIndex;
      record.thread = occupant->firstThread + (occupant->only < 0 ? thread % threadsPerChunk : 0);
    }
  }
  char const* const verb = (traits & trait::freed) != 0   ? "release of the memory"
                           : (traits & trait::write) != 0 ? "write"
                                                          : "read";
  if ((traits & trait::freed) != 0) {
    record.what = verb;
  } else if ((traits & trait::bulk) != 0) {
    record.what = fmt::format("bulk copy's {} of {} bytes", (traits & trait::strong) != 0 ? "addition" : verb, bytes);
  } else if ((traits & trait::strong) != 0) {
    record.what =
        fmt::format("{} {} of {} bytes with scope {}", (traits & trait::multicast) != 0 ? "multicast" : "ordered", verb,
                    bytes, nameOf(trait::scopeOf(traits)));
  } else {
    record.what = fmt::format("plain {} of {} byte{}", verb, bytes, bytes == 1 ? "" : "s");
  }
  record.memory = memoryOf(address);
  if (codeOf(access.where) != 0) record.calls = callsOf(access.where);
  return record;
}

Finding* Checker::addFinding(FindingKind kind, std::uint64_t place) {
  auto const key = mix(static_cast<std::uint64_t>(kind) + 1, place);
  if (findings_.size() >= maxFindings || !findingKeys_.insert(key).second) return nullptr;
  auto& finding = findings_.emplace_back();
  finding.kind = kind;
  finding.key = key;
  finding.timeline = timeline();
  return &finding;
}

Checker::Step& Checker::addStep(Agent const& agent, Access const& access, std::uint64_t value, Site site) {
  bool const host = agent.device < 0;
  auto const rank = host ? static_cast<int>(agent.blockIndex) : agent.device;
  if (steps_.size() <= static_cast<std::size_t>(rank)) steps_.resize(static_cast<std::size_t>(rank) + 1);
  auto& steps = steps_[static_cast<std::size_t>(rank)];
  if (steps.size() >= stepsRemembered) steps.pop_front();
  steps.push_back({rank, host, agent.blockIndex, agent.thread, nullptr, access, value, site, 1});
  return steps.back();
}

void Checker::addStep(Agent const& agent, char const* what, unsigned count) {
  auto& step = addStep(agent, {}, 0, 0);
  step.what = what;
  step.count = count;
}

// Code addresses stand as "@0x..." and become source places together with those of the stacks.
std::vector<std::string> Checker::timeline() const {
  std::vector<std::string> lines;
  for (auto const& steps : steps_) {
    for (auto const& s : steps) {
      auto line = s.host ? fmt::format("rank {} host: ", s.rank)
                         : fmt::format("rank {} block {} thread {}: ", s.rank, s.block, s.thread);
      auto out = std::back_inserter(line);
      if (s.what != nullptr && s.access.address != 0) {
        fmt::format_to(out, "{} of {} bytes to {}", s.what, s.access.bytes, memoryOf(s.access.address));
      } else if (s.what != nullptr) {
        fmt::format_to(out, "{} of {} thread{}", s.what, s.count, s.count == 1 ? "" : "s");
      } else if (s.access.kind == AccessKind::fence) {
        fmt::format_to(out, "fence<{}, {}>", nameOf(s.access.order), nameOf(s.access.scope));
      } else {
        fmt::format_to(out, "{}<{}, {}> {} {}, {} bytes, {}", nameOf(s.access.kind), nameOf(s.access.order),
                       nameOf(s.access.scope), s.access.kind == AccessKind::store ? "of" : "found", s.value,
                       s.access.bytes, memoryOf(s.access.address));
      }
      if (codeOf(s.site) != 0) fmt::format_to(out, " @{:#x}", codeOf(s.site));
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

std::uint64_t Checker::mix(std::uint64_t a, std::uint64_t b) { return scramble(scramble(a + 0x9e3779b97f4a7c15u) ^ b); }

}  // namespace mscclpp::sim
