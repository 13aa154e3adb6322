// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "doctor/topology.hpp"

#include <algorithm>
#include <cstddef>
#include <sstream>

#include <fmt/format.h>

namespace mscclpp::doctor {
namespace {

std::string devicesOf(Gpus const& gpus, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    auto const name = i < gpus.all.size() ? gpus.all[i].name : "simulated";
    text += fmt::format("  gpu{0} [label=\"GPU {0}\\n{1}\"];\n", i, name);
  }
  return text;
}

// Each pair once: with both directions' rates where they differ.
std::string pairsOf(Gpus const& gpus, std::optional<Links> const& links, std::size_t count) {
  std::string text;
  for (std::size_t from = 0; from < count; ++from) {
    for (std::size_t to = from + 1; to < count; ++to) {
      if (!links) {
        auto const& gpu = gpus.all[from];
        if (gpu.reaches[to])
          text += fmt::format("  gpu{} -- gpu{} [label=\"{}\"];\n", from, to, gpu.atomics[to] ? "NVLink" : "PCIe");
        continue;
      }
      auto const there = fmt::format("{:.0f}", links->copies[from][to]),
                 back = fmt::format("{:.0f}", links->copies[to][from]);
      if (there == "0" && back == "0") continue;
      text += fmt::format("  gpu{} -- gpu{} [label=\"{} GB/s\"];\n", from, to,
                          there == back ? there : there + " / " + back);
    }
  }
  return text;
}

// A card beside the GPUs of its node.
std::string cardsOf(Report const& report) {
  auto const network = std::ranges::find(report.sections(), "network", &Section::title);
  if (network == report.sections().end() || network->table.empty()) return "";
  std::string text;
  for (std::size_t i = 1; i < network->table.size(); ++i) {
    auto const& row = network->table[i];
    auto const& card = row.front();
    text += fmt::format("  \"{0} port {1}\" [shape=ellipse, label=\"{0} port {1}\\n{2}\"];\n", card, row[1], row[3]);
    std::istringstream near(row.back());
    for (std::size_t gpu = 0; near >> gpu;) {
      text += fmt::format("  \"{} port {}\" -- gpu{} [style=dotted];\n", card, row[1], gpu);
    }
  }
  return text;
}

}  // namespace

std::string topologyOf(Report const& report, Gpus const& gpus, std::optional<Links> const& links) {
  auto const count = links ? links->copies.size() : gpus.all.size();
  return "graph topology {\n  layout=circo; node [shape=box]; edge [fontsize=10];\n" + devicesOf(gpus, count) +
         pairsOf(gpus, links, count) + cardsOf(report) + "}\n";
}

}  // namespace mscclpp::doctor
