// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The groups of ranks that torch.ops.mscclpp knows by name, in this process: process groups of the backend, which are
// found when they are first named, and those that a program registers. From any threads.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine.hpp"

namespace mscclpp::torch {

struct Group {
  std::shared_ptr<Engine> engine;
  void* stream = nullptr;  // of calls with tensors of the CPU, for the simulated machine
};

class Groups {
 public:
  // Until whoever holds the engine lets it go, or remove(). Takes the place of one of that name and machine.
  static void add(std::string const& name, std::shared_ptr<Engine> const& engine);
  // Until remove(). Throws invalidUsage where there is one of that name and machine.
  static void keep(std::string const& name, std::shared_ptr<Engine> engine);
  static void remove(Engine const& engine);
  // Throws invalidUsage where none was kept by that name.
  static void remove(std::string const& name);

  // Throws invalidUsage where there is none.
  static Group find(std::string const& name, DeviceKind machine);

  // Asked about names that are not there: adds the group, or says why there is none.
  using Resolver = std::function<std::string(std::string const& name, DeviceKind machine)>;
  static void setResolver(Resolver resolver);
};

}  // namespace mscclpp::torch
