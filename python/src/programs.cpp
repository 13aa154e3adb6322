// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What mscclpp.language records its steps with: the builder of mscclpp::dsl.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "mscclpp/dsl/build.hpp"
#include "mscclpp/dsl/execution_plan.hpp"
#include "mscclpp/dsl/plan_json.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::python {
namespace {

using dsl::Chunks;

dsl::Collective collectiveOf(std::string const& name, int ranks, int chunkFactor, int inputs, int outputs) {
  auto const kind = dsl::collectiveKindOf(name);
  if (!kind) refuse("there is no collective \"" + name + "\" of programs");
  return {*kind, ranks, chunkFactor, inputs, outputs};
}

class Program {
 public:
  Program(std::string name, dsl::Spec spec) : name_(std::move(name)) {
    spec.name = name_;
    builder_ = std::make_unique<dsl::Builder>(spec);
    check();
  }

  dsl::Builder& builder() { return *builder_; }
  // Raises the mistake of the step before.
  void check() const {
    auto const& mistake = builder_->program().mistake;
    if (!mistake.empty()) refuse("program '" + name_ + "': " + mistake.str());
  }
  // With what follows from the steps: instances, fusion, syncs. Steps may still be added to this.
  dsl::Program finished() const {
    auto copy = *builder_;
    auto program = dsl::finish(copy);
    if (!program.mistake.empty()) refuse("program '" + name_ + "': " + program.mistake.str());
    return program;
  }

  // As MSCCL++'s DSL prints it, which has no grouped instances.
  std::string json() const {
    auto const& spec = builder_->spec();
    if (spec.instances != 1 && spec.replication == dsl::Replication::grouped) return dsl::toJson(finished());
    return dsl::toMscclppJson(builder_->program(), spec);
  }

  // The steps until endLoop() are repeated.
  void beginLoop(std::uint64_t unitBytes, int chunks) {
    (void)builder_->beginLoop(unitBytes, chunks);
    check();
  }
  void endLoop() { builder_->endLoop(); }

 private:
  std::string name_;
  std::unique_ptr<dsl::Builder> builder_;
};

dsl::At at(std::vector<int> blocks, bool isGroup, bool relaxed, std::optional<dsl::DataSync> sync,
           dsl::ReduceKind reduce) {
  dsl::At result{.relaxed = relaxed, .dataSync = sync.value_or(dsl::DataSync::automatic), .reduce = reduce};
  if (isGroup) {
    result.group.blocks = std::move(blocks);
  } else {
    result.tb = blocks.at(0);
  }
  return result;
}

}  // namespace

void bindPrograms(nb::module_& top) {
  auto module = top.def_submodule("programs", "Steps of collective programs; mscclpp.language is the one to use.");
  using dsl::At;

  nb::enum_<dsl::BufferKind>(module, "BufferType")
      .value("input", dsl::BufferKind::input)
      .value("output", dsl::BufferKind::output)
      .value("scratch", dsl::BufferKind::scratch);
  nb::enum_<dsl::DataSync>(module, "SyncType", "Where a block meets itself around a step.")
      .value("none", dsl::DataSync::none)
      .value("before", dsl::DataSync::before)
      .value("after", dsl::DataSync::after)
      .value("both", dsl::DataSync::both);
  nb::enum_<dsl::ReduceKind>(module, "ReduceOperationType")
      .value("sum", dsl::ReduceKind::asCalled)
      .value("prod", dsl::ReduceKind::prod)
      .value("min", dsl::ReduceKind::min)
      .value("max", dsl::ReduceKind::max);

  nb::class_<Chunks>(module, "Chunk", "Neighbouring chunks of a rank's buffer.")
      .def(
          "__init__",
          [](Chunks* self, int rank, dsl::BufferKind buffer, int index, int size) {
            new (self) Chunks{rank, buffer, index, size, false};
          },
          nb::arg("rank"), nb::arg("buffer"), nb::arg("index"), nb::arg("size"))
      .def_ro("rank", &Chunks::rank)
      .def_ro("buffer", &Chunks::buffer)
      .def_ro("index", &Chunks::index)
      .def_ro("size", &Chunks::count)
      .def("__eq__", [](Chunks const& a, Chunks const& b) { return a == b; })
      .def("__hash__",
           [](Chunks const& self) {
             return nb::hash(nb::make_tuple(self.rank, static_cast<int>(self.buffer), self.index, self.count));
           })
      .def("__repr__", [](Chunks const& self) {
        return std::string(dsl::nameOf(self.buffer)) + "[" + std::to_string(self.index) + ":" +
               std::to_string(self.index + self.count) + "] of rank " + std::to_string(self.rank);
      });

  nb::class_<At>(module, "At", "Who does a step, and how.")
      .def(
          "__init__",
          [](At* self, std::vector<int> blocks, bool isGroup, bool relaxed, std::optional<dsl::DataSync> sync,
             dsl::ReduceKind reduce) { new (self) At(at(std::move(blocks), isGroup, relaxed, sync, reduce)); },
          nb::arg("blocks"), nb::arg("is_group") = false, nb::arg("relaxed") = false, nb::arg("data_sync") = nb::none(),
          nb::arg("reduce_op") = dsl::ReduceKind::asCalled);

  using Memory = dsl::MemoryChannelRef;
  nb::class_<Memory>(module, "MemoryChannel")
      .def("signal", &Memory::signal)
      .def("wait", &Memory::wait)
      .def("put", &Memory::put)
      .def("get", &Memory::get)
      .def("put_packets", &Memory::putPackets)
      .def("read_put_packets", &Memory::readPutPackets)
      .def("reduce", &Memory::reduce);
  using Port = dsl::PortChannelRef;
  nb::class_<Port>(module, "PortChannel")
      .def("signal", &Port::signal)
      .def("wait", &Port::wait)
      .def("flush", &Port::flush)
      .def("put", &Port::put)
      .def("put_with_signal", &Port::putWithSignal)
      .def("put_with_signal_and_flush", &Port::putWithSignalAndFlush)
      .def("put_packets", &Port::putPackets)
      .def("read_put_packets", &Port::readPutPackets);
  nb::class_<dsl::SwitchPort>(module, "SwitchPort")
      .def("reduce", &dsl::SwitchPort::reduce)
      .def("broadcast", &dsl::SwitchPort::broadcast)
      .def("broadcast_packets", &dsl::SwitchPort::broadcastPackets);
  nb::class_<dsl::SwitchChannelRef>(module, "SwitchChannel")
      .def("at_rank", &dsl::SwitchChannelRef::atRank, nb::keep_alive<0, 1>());
  nb::class_<dsl::SemaphoreRef>(module, "Semaphore")
      .def("acquire", &dsl::SemaphoreRef::acquire)
      .def("release", &dsl::SemaphoreRef::release);
  nb::class_<dsl::RankRef>(module, "Rank")
      .def("copy", &dsl::RankRef::copy)
      .def("copy_packets", &dsl::RankRef::copyPackets)
      .def("unpack_packets", &dsl::RankRef::unpackPackets)
      .def("reduce", &dsl::RankRef::reduce)
      .def("reduce_packets", &dsl::RankRef::reducePackets)
      .def("barrier", &dsl::RankRef::barrier)
      .def("sync", &dsl::RankRef::sync);

  module.def(
      "refusal_of",
      [](std::string const& json) {
        auto program = dsl::programFromJson(json, "plan");
        return dsl::prove(program).diagnostic.str();
      },
      nb::arg("json"), "Why a plan is wrong; empty where it is right.");
  nb::class_<Program>(module, "Program")
      .def(
          "__init__",
          [](Program* self, std::string name, std::string const& collective, int ranks, int chunkFactor, int inputs,
             int outputs, bool inPlace, int instances, std::string const& protocol, bool fuse, bool autoSync,
             bool grouped, bool reuseResources, int threads, bool doubleScratch, std::uint64_t alignment,
             std::uint64_t minBytes, std::uint64_t maxBytes) {
            if (protocol != "Simple" && protocol != "LL") refuse("protocol \"" + protocol + "\"; it is Simple or LL");
            dsl::Spec const spec{.name = {},
                                 .collective = collectiveOf(collective, ranks, chunkFactor, inputs, outputs),
                                 .inPlace = inPlace,
                                 .protocol = protocol == "LL" ? dsl::Protocol::lowLatency : dsl::Protocol::simple,
                                 .instances = instances,
                                 .replication = grouped ? dsl::Replication::grouped : dsl::Replication::interleaved,
                                 .autoSync = autoSync,
                                 .fuse = fuse,
                                 .doubleScratch = doubleScratch,
                                 .reuseResources = reuseResources,
                                 .threads = threads,
                                 .alignment = alignment,
                                 .minBytes = minBytes,
                                 .maxBytes = maxBytes};
            new (self) Program(std::move(name), spec);
          },
          nb::arg("name"), nb::arg("collective"), nb::arg("ranks"), nb::arg("chunk_factor"), nb::arg("inputs"),
          nb::arg("outputs"), nb::arg("in_place"), nb::arg("instances"), nb::arg("protocol"), nb::arg("fuse"),
          nb::arg("auto_sync"), nb::arg("grouped"), nb::arg("reuse_resources"), nb::arg("threads"),
          nb::arg("double_scratch"), nb::arg("alignment"), nb::arg("min_bytes"), nb::arg("max_bytes"))
      .def("check", &Program::check)
      .def(
          "rank", [](Program& self, int rank) { return self.builder().rank(rank); }, nb::keep_alive<0, 1>())
      .def(
          "scratch",
          [](Program& self, int rank, int chunks) { return self.builder().rank(rank).scratch(chunks).first; },
          "New chunks of a rank's scratch memory: the first of them.")
      .def(
          "memory_channel", [](Program& self, int to, int of) { return self.builder().memoryChannel(to, of); },
          nb::keep_alive<0, 1>())
      .def(
          "port_channel", [](Program& self, int to, int of) { return self.builder().portChannel(to, of); },
          nb::keep_alive<0, 1>())
      .def(
          "switch_channel",
          [](Program& self, std::vector<int> ranks, dsl::BufferKind buffer) {
            return self.builder().switchChannel(std::move(ranks), buffer);
          },
          nb::keep_alive<0, 1>())
      .def(
          "semaphore", [](Program& self, int rank, int initial) { return self.builder().semaphore(rank, initial); },
          nb::keep_alive<0, 1>())
      .def("begin_loop", &Program::beginLoop)
      .def("end_loop", &Program::endLoop)
      .def("to_json", &Program::json)
      .def(
          "diagnostic",
          [](Program const& self) {
            auto program = self.finished();
            return dsl::prove(program).diagnostic.str();
          },
          "Why the program is wrong; empty where it is proved right.")
      .def("to_plan", [](Program const& self) { return dsl::ExecutionPlan(self.finished()); });
}

}  // namespace mscclpp::python
