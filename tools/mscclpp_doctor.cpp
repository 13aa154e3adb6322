// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-doctor: what is here, what will be used, and what is missing or slow and how to mend it, the dearest first.
//
//   mscclpp-doctor [--ranks=N] [--json]
//
// Runs without a GPU, too, and allocates nothing on one. Exit status: 0, 1 where something is broken, 2 bad use.
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>

#include "doctor/probes.hpp"

namespace {

using namespace mscclpp::doctor;

int run(int argc, char** argv) {
  int ranks = 0;
  bool json = false;
  CLI::App app{"Says what this machine has for mscclpp, what will be used, and what is wrong."};
  app.add_option("--ranks", ranks, "Ranks that choices are shown for; default: one for each GPU, or 4")
      ->check(CLI::Range(1, 1024));
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
  addChoices(report, gpus, ranks);
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
