// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/every_operation.hpp"

using namespace mscclpp_test;

TEST_CASE("every operation over every type") {
  checkEveryOperation(DeviceKind::sim, 1, {5});
  checkEveryOperation(DeviceKind::sim, 3, {67});
}
