// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unordered_map.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "host_buffers.hpp"
#include "mscclpp/algorithm.hpp"
#include "mscclpp/collectives/algorithm_collection.hpp"
#include "mscclpp/dsl/execution_plan.hpp"
#include "mscclpp/dsl/plan_json.hpp"
#include "mscclpp/jit/plan_algorithm.hpp"
#include "mscclpp/nccl/registration.hpp"

namespace mscclpp::python {
namespace {

// What `execute` returns.
constexpr int done = 0;
constexpr int refused = 1;

// An algorithm under one of its names.
struct NamedAlgorithm {
  std::shared_ptr<Algorithm const> algorithm;
  std::string name;
  std::shared_ptr<dsl::ExecutionPlan const> plan{};  // that it is made of
  bool users = false;                                // of a user's module

  // Whether it keeps what it makes for a buffer, by its address.
  bool keepsBuffers() const { return users || (plan != nullptr && plan->needsWindows()); }

  std::string collective() const {
    return plan == nullptr ? std::string(nameOf(algorithm->collective())) : dsl::collectiveName(plan->program());
  }
  int execute(Communicator const& communicator, std::uintptr_t in, std::uintptr_t out, std::size_t inBytes,
              std::size_t outBytes, DataType type, ReduceOp op, std::uintptr_t stream, int blocks, int threads,
              bool symmetric, int root, Extras const& extras, std::string& why) const {
    CollectiveCall call{pointerOf(in), pointerOf(out), inBytes,   outBytes, type,  op,
                        blocks,        threads,        symmetric, root,     extras};
    if (plan != nullptr) {
      // What its steps do is the program's own; windows of buffers are made when they are first used.
      if (call.op == ReduceOp::none && reduces(algorithm->collective())) call.op = ReduceOp::sum;
      call.symmetric = true;
    }
    if (why = algorithm->refusal(communicator, call); !why.empty()) return refused;
    HostBuffers const buffers(communicator, call, keepsBuffers() ? name : std::string());
    runInStream(communicator, stream, buffers,
                [&](Stream const& where) { algorithm->execute(communicator, where, call); });
    return done;
  }
};

NamedAlgorithm fromCapsule(nb::handle capsule) {
  auto* const held =
      static_cast<std::shared_ptr<Algorithm>*>(PyCapsule_GetPointer(capsule.ptr(), ALGORITHM_NATIVE_CAPSULE_NAME));
  if (held == nullptr) throw nb::python_error();
  return {*held, (*held)->name(), nullptr, true};
}

NamedAlgorithm ofPlan(std::shared_ptr<dsl::ExecutionPlan const> plan) {
  auto algorithm = jit::planAlgorithm(*plan);
  auto name = algorithm->name();
  return {std::move(algorithm), std::move(name), std::move(plan)};
}

// Under every name; the first of an algorithm is its own.
std::vector<NamedAlgorithm> listOf(AlgorithmCollection const& collection) {
  std::vector<NamedAlgorithm> all;
  for (auto const& each : collection.algorithms()) all.push_back({each, each->name()});
  for (auto const& [collective, alias] : collection.aliases()) {
    all.push_back({collection.at(collective, alias), alias});
  }
  return all;
}

Collective collectiveNamed(std::string const& name) {
  if (auto const found = collectiveByName(name)) return *found;
  std::string all;
  for (auto const each : collectives) all += " " + std::string(nameOf(each));
  refuse("there is no collective \"" + name + "\"; there are" + all);
}

// A Python function as a selector.
Selector selectorOf(nb::callable function) {
  return [held = heldFunction(std::move(function))](SelectionRequest const& request) -> std::optional<Selection> {
    nb::gil_scoped_acquire const lock;
    auto const answer = (*held)(nb::cast(request));
    if (answer.is_none()) return {};
    if (nb::isinstance<NamedAlgorithm>(answer)) return Selection{.algorithm = nb::cast<NamedAlgorithm>(answer).name};
    return nb::cast<Selection>(answer);
  };
}

}  // namespace

void bindAlgorithms(nb::module_& module) {
  nb::class_<NamedAlgorithm>(module, "Algorithm", "A collective that the host starts.")
      .def_ro("name", &NamedAlgorithm::name)
      .def_prop_ro("collective", &NamedAlgorithm::collective)
      .def_prop_ro(
          "message_size_range",
          [](NamedAlgorithm const& self) {
            auto const* const plan = self.plan.get();
            return plan == nullptr ? std::pair(std::uint64_t{0}, ~std::uint64_t{0})
                                   : std::pair(plan->program().minBytes, plan->program().maxBytes);
          },
          "Least and most bytes of a message.")
      .def("is_dsl_algorithm", [](NamedAlgorithm const& self) { return self.plan != nullptr; })
      .def("is_native_algorithm", [](NamedAlgorithm const& self) { return self.plan == nullptr; })
      .def_static("create_from_native_capsule", &fromCapsule, nb::arg("capsule"),
                  "Of a capsule that holds a std::shared_ptr<mscclpp::Algorithm>, as users' modules make it.")
      .def_static("create_from_plan", &ofPlan, nb::arg("plan"))
      .def(
          "register_with_nccl",
          [](NamedAlgorithm const& self) {
            return self.plan != nullptr ? registerWithNccl(*self.plan) : registerWithNccl(self.algorithm);
          },
          WithoutGil(),
          "Has NCCL's functions of a preloaded libmscclpp_nccl.so ask it first, for communicators that are made from "
          "then on. False where none is loaded.")
      .def(
          "unregister_from_nccl",
          [](NamedAlgorithm const& self) {
            return unregisterFromNccl(self.algorithm->collective(), self.algorithm->name());
          },
          WithoutGil(), "False where it was not registered.")
      .def(
          "refusal",
          [](NamedAlgorithm const& self, Communicator const& communicator, std::uintptr_t in, std::uintptr_t out,
             std::size_t inBytes, std::size_t outBytes, DataType type, ReduceOp op, bool symmetric) {
            return self.algorithm->refusal(communicator, {.in = pointerOf(in),
                                                          .out = pointerOf(out),
                                                          .inBytes = inBytes,
                                                          .outBytes = outBytes,
                                                          .type = type,
                                                          .op = op,
                                                          .symmetric = symmetric});
          },
          nb::arg("comm"), nb::arg("input_buffer"), nb::arg("output_buffer"), nb::arg("input_size"),
          nb::arg("output_size"), nb::arg("dtype"), nb::arg("op") = ReduceOp::none, nb::arg("symmetric_memory") = false,
          WithoutGil(), "Why the call cannot be done, as a sentence; empty where it can.")
      .def(
          "execute",
          [](NamedAlgorithm const& self, Communicator const& communicator, std::uintptr_t in, std::uintptr_t out,
             std::size_t inBytes, std::size_t outBytes, DataType type, ReduceOp op, std::uintptr_t stream,
             nb::handle /*executor*/, int blocks, int threads, bool symmetric, std::optional<Extras> const& extras,
             int root) {
            std::string why;
            int result = done;
            {
              nb::gil_scoped_release const released;
              result = self.execute(communicator, in, out, inBytes, outBytes, type, op, stream, blocks, threads,
                                    symmetric, root, extras.value_or(Extras{}), why);
            }
            if (result != done) {
              auto const text = "'" + self.name + "' cannot do this call: " + why;
              if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) != 0) throw nb::python_error();
            }
            return result;
          },
          nb::arg("comm"), nb::arg("input_buffer"), nb::arg("output_buffer"), nb::arg("input_size"),
          nb::arg("output_size"), nb::arg("dtype"), nb::arg("op") = ReduceOp::none, nb::arg("stream") = 0,
          nb::arg("executor") = nb::none(), nb::arg("nblocks") = 0, nb::arg("nthreads_per_block") = 0,
          nb::arg("symmetric_memory") = false, nb::arg("extras") = nb::none(), nb::arg("root") = 0,
          "Puts the call into the stream: addresses, bytes, types; 0 blocks or threads: chosen. Returns 0; where the "
          "algorithm cannot do such a call, 1 and a warning that says why. What is wrong raises.");

  nb::class_<SelectionRequest>(module, "SelectionRequest", "What a choice may depend on; the same on all ranks.")
      .def_prop_ro("collective", [](SelectionRequest const& self) { return std::string(nameOf(self.collective)); })
      .def_ro("ranks", &SelectionRequest::ranks)
      .def_ro("message_size", &SelectionRequest::bytes)
      .def_ro("dtype", &SelectionRequest::type)
      .def_ro("op", &SelectionRequest::op)
      .def_ro("symmetric_memory", &SelectionRequest::symmetric)
      .def_ro("device_name", &SelectionRequest::device);
  nb::class_<Selection>(module, "Selection", "An algorithm, with blocks and threads; 0: chosen.")
      .def(
          "__init__",
          [](Selection* self, std::string algorithm, int blocks, int threads) {
            new (self) Selection{std::move(algorithm), blocks, threads};
          },
          nb::arg("algorithm"), nb::arg("nblocks") = 0, nb::arg("nthreads_per_block") = 0)
      .def_ro("algorithm", &Selection::algorithm)
      .def_ro("nblocks", &Selection::blocks)
      .def_ro("nthreads_per_block", &Selection::threads);

  nb::class_<AlgorithmCollection>(module, "AlgorithmCollection",
                                  "Algorithms by collective and name, and the choice between them.")
      .def_static("defaults", &AlgorithmCollection::defaults, "All that this build has.")
      .def("list", &listOf, "All, also under the names that MSCCL++ gives them.")
      .def(
          "add", [](AlgorithmCollection& self, NamedAlgorithm const& algorithm) { self.add(algorithm.algorithm); },
          nb::arg("algorithm"), "Takes the place of one of the same collective and name.")
      .def(
          "prefer",
          [](AlgorithmCollection& self, NamedAlgorithm const& algorithm) { self.prefer(algorithm.algorithm); },
          nb::arg("algorithm"), "Adds it, and has it make every call that it does not refuse.")
      .def(
          "set_selector",
          [](AlgorithmCollection& self, std::optional<nb::callable> selector) {
            self.setSelector(selector ? selectorOf(std::move(*selector)) : Selector{});
          },
          nb::arg("selector").none(),
          "A function from SelectionRequest to an algorithm, a Selection, or None: whatever the rest would choose.")
      .def(
          "choose",
          [](AlgorithmCollection const& self, std::string const& collective, Communicator const& communicator,
             std::uintptr_t in, std::uintptr_t out, std::size_t inBytes, std::size_t outBytes, DataType type,
             ReduceOp op, bool symmetric) {
            CollectiveCall call;
            call.in = pointerOf(in);
            call.out = pointerOf(out);
            call.inBytes = inBytes;
            call.outBytes = outBytes;
            call.type = type;
            call.op = op;
            call.symmetric = symmetric;
            return self.choose(collectiveNamed(collective), communicator, call);
          },
          nb::arg("collective"), nb::arg("comm"), nb::arg("input_buffer"), nb::arg("output_buffer"),
          nb::arg("input_size"), nb::arg("output_size"), nb::arg("dtype"), nb::arg("op") = ReduceOp::none,
          nb::arg("symmetric_memory") = false, WithoutGil(), "What execute() would take.")
      .def(
          "execute",
          [](AlgorithmCollection const& self, std::string const& collective, Communicator const& communicator,
             std::uintptr_t in, std::uintptr_t out, std::size_t inBytes, std::size_t outBytes, DataType type,
             ReduceOp op, std::uintptr_t stream, bool symmetric, int root) {
            CollectiveCall call{.in = pointerOf(in),
                                .out = pointerOf(out),
                                .inBytes = inBytes,
                                .outBytes = outBytes,
                                .type = type,
                                .op = op,
                                .symmetric = symmetric,
                                .root = root};
            HostBuffers const buffers(communicator, call);
            runInStream(communicator, stream, buffers, [&](Stream const& where) {
              self.execute(collectiveNamed(collective), communicator, where, call);
            });
          },
          nb::arg("collective"), nb::arg("comm"), nb::arg("input_buffer"), nb::arg("output_buffer"),
          nb::arg("input_size"), nb::arg("output_size"), nb::arg("dtype"), nb::arg("op") = ReduceOp::none,
          nb::arg("stream") = 0, nb::arg("symmetric_memory") = false, nb::arg("root") = 0, WithoutGil(),
          "By the best algorithm for the call.");
}

}  // namespace mscclpp::python
