// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-bench-timing: the latencies of two GPUs, as a TimingModel for timed runs of the simulated machine. Rates are
// those of the H200; mscclpp-bench --limits measures rates.
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "figures.hpp"
#include "machine/machine.hpp"
#include "mscclpp/host/ranks.hpp"

int main(int argc, char** argv) {
  using namespace mscclpp;
  unsigned rounds = 20000;
  CLI::App app{"Measures latencies of two GPUs, in nanoseconds, and prints them as JSON."};
  app.add_option("--rounds", rounds, "Of each")->check(CLI::Range(100u, 10000000u));
  CLI11_PARSE(app, argc, argv);
  try {
    sim::TimingModel model;
    runRanks(DeviceKind::cuda, 2, [&](Communicator& communicator) {
      auto const found = timing_bench::measure(
          communicator, [](Stream const& stream) { return bench::machine(DeviceKind::cuda)->makeTimer(stream); },
          rounds, sim::TimingModel::h200());
      if (communicator.rank() == 0) model = found;
    });
    nlohmann::ordered_json figures;
    for (auto const& figure : sim::timingFigures) figures[std::string(figure.name)] = model.*figure.member;
    nlohmann::ordered_json const document{
        {"version", 1}, {"device", model.device}, {"multiprocessors", model.multiprocessors}, {"figures", figures}};
    std::printf("%s\n", document.dump(1).c_str());
    return 0;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
