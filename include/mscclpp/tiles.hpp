// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels need that compute and communicate tile by tile: flags that tell of tiles, their order, who does what,
// matrices and slots in memory. Beside mscclpp.hpp; a product of tiles is device/tiles/tile_product.hpp.
#pragma once

#include "mscclpp/device/tiles/matrix_view.hpp"
#include "mscclpp/device/tiles/reduce_into.hpp"
#include "mscclpp/device/tiles/roles.hpp"
#include "mscclpp/device/tiles/slots.hpp"
#include "mscclpp/device/tiles/tickets.hpp"
#include "mscclpp/device/tiles/tile_flags.hpp"
#include "mscclpp/device/tiles/tile_order.hpp"
