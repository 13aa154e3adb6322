// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "machine/machine.hpp"

#include <cstdlib>
#include <map>
#include <utility>

namespace mscclpp::bench {
namespace {

std::map<DeviceKind, std::unique_ptr<Machine>>& machines() {
  static std::map<DeviceKind, std::unique_ptr<Machine>> all;
  return all;
}

}  // namespace

void shareDevices() {
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

Machine* machine(DeviceKind kind) {
  auto const found = machines().find(kind);
  return found == machines().end() ? nullptr : found->second.get();
}

bool registerMachine(std::unique_ptr<Machine> machine) {
  auto const kind = machine->kind();
  machines()[kind] = std::move(machine);
  return true;
}

}  // namespace mscclpp::bench
