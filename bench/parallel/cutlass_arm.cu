// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "parallel/cutlass_arm.hpp"

#include <memory>

#include <examples/cutlass/products.hpp>

namespace parallel_bench {
namespace {

using namespace mscclpp;

// What the kernels need as long as they run.
struct Held {
  Held(CutlassOperands const& operands, TileGrid const& tiles)
      : operands(operands),
        window(operands.communicator, operands.between.data(), operands.between.bytes()),
        flags(operands.communicator, {.tiles = tiles.count(), .blocks = 264}) {}

  CutlassOperands operands;
  MemoryWindow window;
  TileFlags flags;
};

}  // namespace

std::function<void()> cutlassArm(Shape const& shape, CutlassOperands const& operands) {
  int const ranks = operands.communicator.size(), sharing = operands.communicator.ranksPerDevice();
  bool const known = ranks == 2 || ranks == 4;
  if (!known || shape.rows % (static_cast<std::uint32_t>(ranks) * cutlass_products::clusterRows) != 0) return {};
  auto const m = static_cast<int>(shape.rows), n = static_cast<int>(shape.columns), k = static_cast<int>(shape.inner);
  cutlass_products::Problem const problem{m, n, k, 1};
  auto const held = std::make_shared<Held>(operands, cutlass_products::tileGrid(m, n, ranks));
  if (shape.way == Way::gatherProduct) {
    return [=] {
      auto const& with = held->operands;
      cutlass_products::gatherProduct(sharing, with.x, with.w, with.y, problem, held->window, held->flags,
                                      with.between.data(), with.stream, with.side);
    };
  }
  auto const scatter = ranks == 2 ? &cutlass_products::productScatter<2> : &cutlass_products::productScatter<4>;
  return [=] {
    auto const& with = held->operands;
    scatter(sharing, with.x, with.w, with.y, problem, held->window, held->flags, with.stream);
  };
}

}  // namespace parallel_bench
