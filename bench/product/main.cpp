// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mscclpp-bench-product: products of bfloat16 matrices by TileProduct, beside cuBLAS's, on a GPU of compute capability
// 9.0. Fails where they differ.
#include <cstdio>
#include <exception>

#include <CLI/CLI.hpp>

#include "product/product_bench.hpp"

int main(int argc, char** argv) {
  product_bench::Options options;
  std::vector<std::uint32_t> rows{512, 2048, 4096, 8192};
  CLI::App app{"Measures products of matrices in tiles."};
  app.add_option("--rows", rows, "Rows of x and y; each number in turn")->delimiter(',');
  app.add_option("--columns", options.columns, "Rows of the weights, columns of y")->check(CLI::Range(1, 1 << 20));
  app.add_option("--inner", options.inner, "Columns of x and of the weights")->check(CLI::Range(1, 1 << 20));
  app.add_option("--calls", options.calls, "Products between two events")->check(CLI::Range(1, 10000));
  app.add_option("--samples", options.samples, "Of which the median counts")->check(CLI::Range(1, 10000));
  CLI11_PARSE(app, argc, argv);
  try {
    std::uint64_t wrong = 0;
    std::printf(
        "| rows | columns | inner | form | us | TFLOP/s | of cuBLAS | wrong |\n|---|---|---|---|---|---|---|---|\n");
    for (auto const count : rows) {
      options.rows = count;
      auto const lines = product_bench::measure(options);
      for (auto const& line : lines) {
        std::printf("| %u | %u | %u | %s | %.1f | %.0f | %.2f | %llu |\n", options.rows, options.columns, options.inner,
                    line.form.c_str(), line.microseconds, line.teraflops, lines[0].microseconds / line.microseconds,
                    static_cast<unsigned long long>(line.wrong));
        wrong += line.wrong;
      }
    }
    return wrong == 0 ? 0 : 1;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
