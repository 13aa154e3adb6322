// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-bench-parallel: the products of a tensor-parallel layer with their collectives, in one kernel and one behind
// the other, on GPUs of compute capability 9.0. Fails where a result is wrong.
#include <algorithm>
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>

#include "parallel/parallel_bench.hpp"

namespace {

using namespace parallel_bench;

std::size_t print(ShapeResult const& result) {
  auto const& shape = result.shape;
  auto const bound = std::max(result.product, result.collective);
  double unfused = 0;  // the fastest
  for (auto const& line : result.arms) {
    if (line.arm.starts_with("cuBLAS") && (unfused == 0 || line.microseconds < unfused)) unfused = line.microseconds;
  }
  std::size_t wrong = 0;
  for (auto const& line : result.arms) {
    std::printf("| %s | %u x %u x %u | %.1f | %.1f | %s | %.1f | %.1f | %.2f | %.2f | %zu |\n", shape.layer.c_str(),
                shape.rows, shape.columns, shape.inner, result.product, result.collective, line.arm.c_str(),
                line.microseconds, line.p99, line.microseconds / bound, unfused / line.microseconds, line.wrong);
    wrong += line.wrong;
  }
  return wrong;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{"Measures products of a tensor-parallel layer with their collectives."};
  app.add_option("--ranks", options.ranks, "Ranks; 0: one for each device")->check(CLI::Range(0, 72));
  app.add_option("--rows", options.rows, "Rows of all ranks; each number in turn")
      ->check(CLI::Range(1u, 1u << 20))
      ->delimiter(',');
  app.add_option("--layers", options.layers, "Only products in whose name this is found, such as 70B or down");
  app.add_flag("!--no-nccl", options.beside, "Without NCCL beside");
  app.add_option("--operations", options.operations, "Operations of a graph")->check(CLI::Range(1, 10000));
  app.add_option("--replays", options.replays, "Replays of each graph")->check(CLI::Range(1, 100000));
  CLI11_PARSE(app, argc, argv);
  try {
    auto const result = measure(options);
    std::printf("%d ranks on %d devices; us per operation in a graph of %d, median and p99 of %d.\n", result.ranks,
                result.devices, options.operations, options.replays);
    if (!result.note.empty()) std::printf("%s\n", result.note.c_str());
    std::printf(
        "\nThe bound is the larger of the product by cuBLAS and the collective, each by itself.\n\n"
        "| product | rows x columns x inner | product | collective | arm | us | p99 | of the bound | times faster "
        "than the best pair | wrong |\n|---|---|---|---|---|---|---|---|---|---|\n");
    std::size_t wrong = 0;
    for (auto const& shape : result.shapes) wrong += print(shape);
    return wrong == 0 ? 0 : 1;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
