// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "doctor/links.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "mscclpp/host/ranks.hpp"

#if defined(MSCCLPP_HAS_SIM)
#include "mscclpp/sim/run.hpp"
#include "mscclpp/sim/runtime.hpp"
#endif

namespace mscclpp::doctor {
namespace {

[[maybe_unused]] double wallClock() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Links measureLinks(DeviceKind machine, int devices, [[maybe_unused]] Reaches const& reaches) {
  std::vector const none(static_cast<std::size_t>(devices), std::vector<double>(static_cast<std::size_t>(devices)));
  Links links{none, none};
#if defined(MSCCLPP_HAS_SIM)
  if (machine == DeviceKind::sim) {
    if (Device::count(machine) < devices) sim::install({.devices = devices});
    sim::run({.ranks = devices, .timing = sim::TimingModel::h200()}, [&](sim::RankContext& rank) {
      Communicator const communicator(rank.bootstrap(), Device{machine, rank.device()});
      probeLinks<DeviceKind::sim>(
          communicator, [&] { return rank.nanoseconds(); }, reaches, links);
    });
  }
#endif
#if defined(MSCCLPP_DOCTOR_CUDA)
  if (machine == DeviceKind::cuda) {
    runRanks(machine, devices, [&](Communicator const& communicator) {
      probeLinks<DeviceKind::cuda>(communicator, wallClock, reaches, links);
    });
  }
#endif
  return links;
}

void addLinks(Report& report, DeviceKind machine, Links const& links) {
  auto const devices = links.copies.size();
  auto const tableOf = [&](std::string title, std::vector<std::vector<double>> const& figures, char const* format) {
    auto& section = report.section(std::move(title));
    if (machine == DeviceKind::sim) section.lines.emplace_back("simulated GPUs", "by virtual time, as of an H200");
    section.table.push_back({"from"});
    for (std::size_t to = 0; to < devices; ++to) section.table[0].push_back(fmt::format("to {}", to));
    for (std::size_t from = 0; from < devices; ++from) {
      auto& row = section.table.emplace_back(std::vector{fmt::format("{}", from)});
      for (auto const figure : figures[from]) {
        row.push_back(figure == 0 ? std::string("-") : fmt::format(fmt::runtime(format), figure));
      }
    }
  };
  tableOf("copies, GB/s", links.copies, "{:.0f}");
  tableOf("round trips of a signal, us", links.roundTrips, "{:.2f}");

  double best = 0;
  for (std::size_t from = 0; from < devices; ++from) {
    for (std::size_t to = 0; to < devices; ++to) {
      if (from != to) best = std::max(best, links.copies[from][to]);
    }
  }
  for (std::size_t from = 0; from < devices; ++from) {
    for (std::size_t to = 0; to < devices; ++to) {
      auto const rate = links.copies[from][to];
      if (from == to || rate == 0 || rate * 2 > best) continue;
      report.find(
          Weight::slow,
          fmt::format("copies from GPU {} to {} run at {:.0f} GB/s, between others at {:.0f}", from, to, rate, best),
          "nvidia-smi nvlink --status and nvidia-smi topo -m tell what joins them, and which links are down");
    }
  }
}

}  // namespace mscclpp::doctor
