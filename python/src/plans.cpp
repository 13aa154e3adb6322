// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "bindings.hpp"
#include "host_buffers.hpp"
#include "mscclpp/dsl/execution_plan.hpp"
#include "mscclpp/dsl/plan_algorithm.hpp"
#include "mscclpp/dsl/plan_json.hpp"
#include "mscclpp/jit/plan_executor.hpp"

namespace mscclpp::python {
namespace {

using Runs = dsl::detail::PlanRuns<jit::PlanExecutor>;
using KeptRun = dsl::detail::KeptRun<jit::PlanExecutor>;

// Runs any plan over one communicator, and keeps what its calls need.
class Executor {
 public:
  explicit Executor(std::shared_ptr<Communicator> communicator) : communicator_(std::move(communicator)) {}

  void execute(int rank, std::uintptr_t in, std::uintptr_t out, std::size_t inBytes, std::size_t outBytes,
               DataType type, dsl::ExecutionPlan const& plan, std::uintptr_t handle, dsl::PlanPackets packets,
               ReduceOp op) {
    if (rank != communicator_->rank()) {
      refuse("Executor.execute: rank " + std::to_string(rank) + " of a communicator whose rank here is " +
             std::to_string(communicator_->rank()));
    }
    CollectiveCall buffers{.in = pointerOf(in), .out = pointerOf(out), .inBytes = inBytes, .outBytes = outBytes};
    HostBuffers const held(*communicator_, buffers, plan.needsWindows() ? plan.program().name.str() : std::string());
    dsl::PlanExecution const call{.in = buffers.in,
                                  .out = buffers.out,
                                  .inBytes = inBytes,
                                  .outBytes = outBytes,
                                  .type = type,
                                  .op = op,
                                  .packets = packets};
    runInStream(*communicator_, handle, held,
                [&](Stream const& stream) { kept(plan, stream, call).execute(stream, call); });
  }
  // Frees it. Kernels must have ended.
  void reset() { kept_.clear(); }

 private:
  struct Kept {
    Runs runs;  // keeps the plan, and so its identity
    std::shared_ptr<KeptRun> run;
  };
  using Key = std::tuple<void const*, std::uint64_t, ContextKey>;

  KeptRun const& kept(dsl::ExecutionPlan const& plan, Stream const& stream, dsl::PlanExecution const& call) {
    Runs runs(plan);
    Key const key{plan.identity(), stream.id(), runs.keyOf(*communicator_, call)};
    auto found = kept_.find(key);
    if (found == kept_.end()) {
      auto run = runs.make(*communicator_, call);
      found = kept_.emplace(key, Kept{std::move(runs), std::move(run)}).first;
    }
    return *found->second.run;
  }

  std::shared_ptr<Communicator> communicator_;
  std::map<Key, Kept> kept_;
};

}  // namespace

void bindPlans(nb::module_& module) {
  nb::enum_<dsl::PlanPackets>(module, "PacketType", "In which packets of a plan travel.")
      .value("LL8", dsl::PlanPackets::ll8)
      .value("LL16", dsl::PlanPackets::ll16);

  nb::class_<dsl::ExecutionPlan>(module, "ExecutionPlan", "A plan of all ranks, read and proved.")
      .def(
          "__init__",
          [](dsl::ExecutionPlan* self, std::string const& path, int /*rank*/) {
            new (self) dsl::ExecutionPlan(dsl::ExecutionPlan::load(path));
          },
          nb::arg("plan_path"), nb::arg("rank") = 0, WithoutGil(),
          "Of a file. Raises where it is no plan, and where the plan is wrong, with the reason.")
      .def_static(
          "from_json",
          [](std::string const& text, std::string const& source) {
            return dsl::ExecutionPlan(dsl::programFromJson(text, source));
          },
          nb::arg("text"), nb::arg("source") = "plan", WithoutGil())
      .def_prop_ro("name", [](dsl::ExecutionPlan const& self) { return self.program().name.str(); })
      .def_prop_ro("collective", [](dsl::ExecutionPlan const& self) { return dsl::collectiveName(self.program()); })
      .def_prop_ro("ranks", [](dsl::ExecutionPlan const& self) { return self.program().size(); })
      .def_prop_ro("in_place", [](dsl::ExecutionPlan const& self) { return self.program().inPlace; })
      .def_prop_ro("min_message_size", [](dsl::ExecutionPlan const& self) { return self.program().minBytes; })
      .def_prop_ro("max_message_size", [](dsl::ExecutionPlan const& self) { return self.program().maxBytes; });

  nb::class_<Executor>(module, "Executor", "Runs plans over a communicator, and keeps what their calls need.")
      .def(nb::init<std::shared_ptr<Communicator>>(), nb::arg("comm"))
      .def("execute", &Executor::execute, nb::arg("rank"), nb::arg("send_buff"), nb::arg("recv_buff"),
           nb::arg("send_buff_size"), nb::arg("recv_buff_size"), nb::arg("data_type"), nb::arg("plan"),
           nb::arg("stream") = 0, nb::arg("packet_type") = dsl::PlanPackets::ll16, nb::arg("op") = ReduceOp::sum,
           WithoutGil(),
           "Puts a plan into the stream: addresses, bytes. The first call with a plan, stream, size and, where ranks "
           "touch each other's buffers, pair of buffers is collective.")
      .def("reset", &Executor::reset, WithoutGil(), "Frees what is kept. Kernels must have ended.");
}

}  // namespace mscclpp::python
