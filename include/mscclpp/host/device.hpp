// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names one device of one kind of machine.
#pragma once

#include <string_view>

#include "mscclpp/host/runtime.hpp"

namespace mscclpp {

// For messages: "CUDA", "simulated".
std::string_view nameOf(DeviceKind kind) noexcept;

struct Device {
  DeviceKind kind = DeviceKind::cuda;
  int ordinal = 0;

  // 0 where this program or this machine has none of that kind.
  static int count(DeviceKind kind);
  // All throw unsupported or invalidUsage where there is no such device.
  DeviceProperties properties() const;
  Runtime& runtime() const;

  friend bool operator==(Device const&, Device const&) = default;
};

}  // namespace mscclpp
