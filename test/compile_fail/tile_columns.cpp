// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// cuda
// expect: TileProduct: tiles of 128 or 256 columns
#include "mscclpp/device/tiles/tile_product.hpp"

using namespace mscclpp;

#if defined(MSCCLPP_EXPECT_FAILURE)
using Product = TileProduct<192>;
#else
using Product = TileProduct<128>;
#endif
static_assert(Product::dynamicShared > 0);
