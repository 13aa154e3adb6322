// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-doctor: what is here, what will be used, and what is missing or slow and how to mend it, the dearest first.
//
//   mscclpp-doctor [--ranks=N] [--measure] [--topology=FILE] [--json]
//
// Runs without a GPU, too, and allocates nothing on one but to measure. Exit status: 0, 1 where something is broken, 2
// bad use.
#include <cstdio>
#include <exception>
#include <fstream>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "doctor/links.hpp"
#include "doctor/probes.hpp"
#include "doctor/topology.hpp"
#include "mscclpp/collectives/kernel_table.hpp"
#include "mscclpp/host/error.hpp"

namespace {

using namespace mscclpp::doctor;

// All GPUs that the library can use; where it can use none, so many simulated ones.
std::optional<Links> measureAll(Report& report, Gpus const& gpus, int ranks) {
  using mscclpp::DeviceKind;
  auto const& kernels = mscclpp::KernelTable::instance();
  auto const real = kernels.has(DeviceKind::cuda) ? mscclpp::Device::count(DeviceKind::cuda) : 0;
  if (real == 0 && !kernels.has(DeviceKind::sim)) {
    report.find(Weight::broken, "--measure: this build has no kernels for what is here",
                "configure it with -DMSCCLPP_USE_CUDA=ON and nvcc on the PATH");
    return std::nullopt;
  }
  auto const machine = real > 0 ? DeviceKind::cuda : DeviceKind::sim;
  auto const reaches = [&](int from, int to) {
    return machine == DeviceKind::sim ||
           gpus.all.at(static_cast<std::size_t>(from)).reaches.at(static_cast<std::size_t>(to));
  };
  auto links = measureLinks(machine, real > 0 ? real : ranks, reaches);
  addLinks(report, machine, links);
  return links;
}

int run(int argc, char** argv) {
  int ranks = 0;
  bool json = false, measure = false;
  std::string topology;
  CLI::App app{"Says what this machine has for mscclpp, what will be used, and what is wrong."};
  app.add_option("--ranks", ranks, "Ranks that choices are shown for; default: one for each GPU, or 4")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--measure", measure,
               "Also time copies and signals between all GPUs; without any, between simulated ones, by virtual time");
  app.add_option("--topology", topology,
                 "Also write what joins the GPUs and cards to this file, as a graph for Graphviz (dot -Tsvg FILE)");
  app.add_flag("--json", json, "As JSON");
  try {
    app.parse(argc, argv);
  } catch (CLI::ParseError const& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  auto const sources = thisMachine();
  auto const gpus = askDriver();
  if (ranks == 0) ranks = gpus.all.empty() ? 4 : static_cast<int>(gpus.all.size());
  Report report;
  addSoftware(report, sources, gpus);
  addGpus(report, sources, gpus);
  addNetwork(report, sources, gpus);
  addLauncher(report, sources, gpus);
  addSettings(report, sources);
  std::optional<Links> links;
  if (measure) links = measureAll(report, gpus, ranks);
  addChoices(report, gpus, ranks);
  if (!topology.empty()) {
    std::ofstream file(topology);
    file << topologyOf(report, gpus, links);
    if (!file.flush()) throw mscclpp::Error(mscclpp::ErrorCode::systemError, "--topology: cannot write " + topology);
  }
  std::fputs((json ? report.json() : report.text()).c_str(), stdout);
  return report.isBroken() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (std::exception const& error) {
    std::fprintf(stderr, "mscclpp-doctor: %s\n", error.what());
    return 1;
  }
}
