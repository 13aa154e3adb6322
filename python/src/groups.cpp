// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "torch/groups.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bindings.hpp"

namespace mscclpp::python {
namespace {

using torch::Groups;

DeviceKind machineOf(bool cuda) { return cuda ? DeviceKind::cuda : DeviceKind::sim; }

Groups::Resolver resolverOf(nb::callable function) {
  return [held = heldFunction(std::move(function))](std::string const& name, DeviceKind machine) {
    nb::gil_scoped_acquire const lock;
    return nb::cast<std::string>((*held)(name, machine == DeviceKind::cuda));
  };
}

}  // namespace

void bindGroups(nb::module_& module) {
  module.def(
      "register_group",
      [](std::string const& name, Communicator const& communicator) {
        Groups::keep(name, torch::Engine::of(communicator));
      },
      nb::arg("name"), nb::arg("communicator"), WithoutGil(), "For torch.ops.mscclpp. Collective.");
  module.def(
      "unregister_group", [](std::string const& name) { Groups::remove(name); }, nb::arg("name"), WithoutGil());
  module.def(
      "group_size",
      [](std::string const& name, bool cuda) { return Groups::find(name, machineOf(cuda)).engine->size(); },
      nb::arg("name"), nb::arg("cuda"), WithoutGil());
  module.def(
      "group_rank",
      [](std::string const& name, bool cuda) { return Groups::find(name, machineOf(cuda)).engine->rank(); },
      nb::arg("name"), nb::arg("cuda"), WithoutGil());
  module.def(
      "set_group_resolver",
      [](std::optional<nb::callable> resolver) {
        Groups::setResolver(resolver ? resolverOf(std::move(*resolver)) : Groups::Resolver{});
      },
      nb::arg("resolver").none(), "A function of (name, cuda) that adds the group, or says why there is none.");
}

}  // namespace mscclpp::python
