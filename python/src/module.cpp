// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "bindings.hpp"

NB_MODULE(_mscclpp, module) {
  using namespace mscclpp::python;
  module.doc() = "The compiled part of the package mscclpp, which is the one to import.";
  bindErrors(module);
  bindDevices(module);
  bindCommunicators(module);
  bindChannels(module);
  bindProxies(module);
  bindPlans(module);
  bindAlgorithms(module);
  bindExperts(module);
  bindPrograms(module);
  bindGroups(module);
}
