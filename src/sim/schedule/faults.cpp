// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/schedule/faults.hpp"

#include <algorithm>
#include <random>

#include <fmt/format.h>

namespace mscclpp::sim {
namespace {

// The next one to be late often comes when a wait or two have been given up, while others are about to.
constexpr std::uint32_t mostGivenUp = 3;

LaunchName launchOf(TaskKey key) {
  auto const name = nameOfThread(key);
  return {name.device, name.kernel};
}

TaskKey keyOfGrid(LaunchName const& launch) { return keyOfThread({launch.first, launch.second, wholeGrid, 0}); }

// Independent of the director's chance, which has the same seed.
std::uint64_t scrambled(std::uint64_t seed) {
  seed = (seed ^ 0xfa17u) * 0x9e3779b97f4a7c15u;
  return seed ^ seed >> 29;
}

}  // namespace

Faults::Faults(Schedule const& planned) {
  std::ranges::copy_if(planned, std::back_inserter(planned_),
                       [](Decision const& d) { return d.fault != FaultKind::none; });
}

void Faults::strike(Decision const& fault) {
  if (std::ranges::find(struck_, fault) == struck_.end()) struck_.push_back(fault);
}

bool Faults::fails(LaunchName const& launch, std::string const& kernel, unsigned blocks) {
  launches_[launch] = {kernel, blocks};
  auto const fault = std::ranges::find_if(
      planned_, [&](Decision const& d) { return d.fault == FaultKind::absent && launchOf(d.task) == launch; });
  if (fault == planned_.end()) return false;
  strike(*fault);
  return true;
}

Decision const* Faults::plannedLate(TaskKey thread) const {
  auto const name = nameOfThread(thread);
  auto const fault = std::ranges::find_if(planned_, [&](Decision const& d) {
    if (d.fault != FaultKind::late || launchOf(d.task) != LaunchName(name.device, name.kernel)) return false;
    auto const block = nameOfThread(d.task).block;
    return block == wholeGrid || block == name.block;
  });
  return fault == planned_.end() ? nullptr : &*fault;
}

bool Faults::holds(TaskKey thread) {
  auto const* const fault = plannedLate(thread);
  if (fault == nullptr || isDue(thread)) return false;
  strike(*fault);
  return true;
}

bool Faults::isDue(TaskKey thread) const {
  auto const* const fault = plannedLate(thread);
  return fault == nullptr || givenUp_ >= fault->choice;
}

bool Faults::aborts(LaunchName const& launch, bool heard) {
  auto const seen = launches_.find(launch);
  if (seen == launches_.end()) return false;  // a thread of the host
  auto const looks = ++seen->second.looks;
  if (!heard || planned_.empty()) return false;
  auto const fault = std::ranges::find_if(planned_, [&](Decision const& d) {
    return d.fault == FaultKind::abort && launchOf(d.task) == launch && looks >= d.choice &&
           std::ranges::find(struck_, d) == struck_.end();
  });
  if (fault == planned_.end()) return false;
  strike(*fault);
  return true;
}

std::vector<std::string> Faults::texts() const {
  std::vector<std::string> texts;
  for (auto const& fault : struck_) {
    auto const launch = launchOf(fault.task);
    auto const block = nameOfThread(fault.task).block;
    auto const seen = launches_.find(launch);
    auto const kernel =
        fmt::format("kernel {} (\"{}\")", launch.second, seen == launches_.end() ? std::string() : seen->second.kernel);
    switch (fault.fault) {
      case FaultKind::late:
        texts.push_back(
            fmt::format("rank {} was late: {}its {} began when {} wait{} had been given up, or nobody else "
                        "could go on",
                        launch.first, block == wholeGrid ? "" : fmt::format("block {} of ", block), kernel,
                        fault.choice, fault.choice == 1 ? "" : "s"));
        break;
      case FaultKind::absent:
        texts.push_back(fmt::format("rank {} was absent: the launch of its {} failed", launch.first, kernel));
        break;
      case FaultKind::abort:
        texts.push_back(
            fmt::format("rank {} was aborted: its watch's abort word was raised at look {} of the waits of "
                        "its {}",
                        launch.first, fault.choice, kernel));
        break;
      case FaultKind::none:
        break;
    }
  }
  return texts;
}

Schedule chooseFaults(std::map<LaunchName, LaunchSeen> const& launches, std::uint64_t seed, int most) {
  Schedule faults;
  if (launches.empty()) return faults;
  std::mt19937_64 random(scrambled(seed));
  auto const below = [&](std::uint64_t limit) { return ((random() >> 32) * limit) >> 32; };
  auto const count = 1 + below(static_cast<std::uint64_t>(most));
  while (faults.size() < count) {
    auto const at = std::next(launches.begin(), static_cast<std::ptrdiff_t>(below(launches.size())));
    auto const& [launch, seen] = *at;
    Decision fault{.task = keyOfGrid(launch)};
    switch (below(4)) {
      case 0:
        fault.fault = FaultKind::absent;
        break;
      case 1:
        fault.fault = FaultKind::abort;
        fault.choice = 1 + below(std::max(seen.looks, 1u));
        break;
      case 2:
        fault.task = keyOfThread({launch.first, launch.second, static_cast<unsigned>(below(seen.blocks)), 0});
        [[fallthrough]];
      default:
        fault.fault = FaultKind::late;
        fault.choice = 1 + below(mostGivenUp);
    }
    faults.push_back(fault);
  }
  return faults;
}

}  // namespace mscclpp::sim
