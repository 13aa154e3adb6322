// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "collectives/every_collective.hpp"

using namespace mscclpp_test;

TEST_CASE("every collective by every algorithm, in place and apart, symmetric or not") {
  checkEveryCollective(DeviceKind::sim, 3, {1, 333});
  checkEveryCollective(DeviceKind::sim, 4, {64});
  checkEveryCollective(DeviceKind::sim, 2, {7});
  checkEveryCollective(DeviceKind::sim, 1, {5});
}
