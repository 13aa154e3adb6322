// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "handles.hpp"
#include "host_buffers.hpp"
#include "mscclpp/base/bits.hpp"
#include "mscclpp/collectives/expert_parallel.hpp"
#include "mscclpp/host/gpu_buffer.hpp"

namespace mscclpp::python {
namespace {

// Many buffers of one call, as HostBuffers: on the simulated machine those that are no device memory go through memory
// that is, each by itself. Elsewhere they are the call's own.
class StagedBuffers {
 public:
  explicit StagedBuffers(Device device) : device_(device) {}

  // Of what the call has; it outlives this. Empty ones, and those that are not there, stay as they are.
  template <class T>
  void reads(T const*& buffer, std::size_t bytes) {
    if (mustGo(buffer, bytes)) buffers_.push_back({buffer, nullptr, bytes, [&](void* at) { buffer = as<T>(at); }});
  }
  template <class T>
  void writes(T*& buffer, std::size_t bytes) {
    if (mustGo(buffer, bytes)) buffers_.push_back({buffer, buffer, bytes, [&](void* at) { buffer = as<T>(at); }});
  }

  bool used() const { return !buffers_.empty(); }
  // Copies there also what may be written: what a call leaves out stays the caller's.
  void enter() {
    std::size_t bytes = 0;
    for (auto& each : buffers_) {
      each.at = bytes;
      bytes += roundUp(each.bytes, apart);
    }
    if (bytes == 0) return;
    memory_ = DeviceMemory(device_, bytes);
    for (auto const& each : buffers_) {
      device_.runtime().copy(placeOf(each), each.from, each.bytes);
      each.tell(placeOf(each));
    }
  }
  // Once the call is done.
  void finish() const {
    for (auto const& each : buffers_) {
      if (each.to != nullptr) device_.runtime().copy(each.to, placeOf(each), each.bytes);
    }
  }

 private:
  static constexpr std::size_t apart = 256;
  struct Buffer {
    void const* from;
    void* to;
    std::size_t bytes;
    std::function<void(void*)> tell;
    std::size_t at = 0;
  };

  template <class T>
  static T* as(void* at) {
    return static_cast<T*>(at);
  }
  std::byte* placeOf(Buffer const& buffer) const { return static_cast<std::byte*>(memory_.data()) + buffer.at; }
  bool mustGo(void const* buffer, std::size_t bytes) const {
    return device_.kind == DeviceKind::sim && buffer != nullptr && bytes != 0 &&
           !isDeviceMemory(device_.runtime(), buffer);
  }

  Device device_;
  std::vector<Buffer> buffers_;
  DeviceMemory memory_;
};

// With the communicator whose streams its calls take.
class PythonExperts {
 public:
  PythonExperts(std::shared_ptr<Communicator> communicator, layout::ExpertLimits const& limits, DataType type,
                DataType wire, std::vector<int> ranks)
      : communicator_(std::move(communicator)), experts_(*communicator_, limits, type, wire, std::move(ranks)) {}

  ExpertParallel const& experts() const { return experts_; }

  void dispatch(DispatchCall call, std::uintptr_t stream) const {
    auto const& layout = experts_.deviceHandle().layout;
    auto const [tokens, topK, hidden] = sizesOf(call.tokens);
    bool const byToken = call.order == ExpertOrder::byToken;
    StagedBuffers staged(communicator_->device());
    staged.reads(call.x, tokens * hidden * bytesOf(experts_.type()));
    staged.reads(call.experts, tokens * topK * sizeof *call.experts);
    staged.reads(call.weights, tokens * topK * sizeof *call.weights);
    staged.writes(call.rows, call.room * hidden * bytesOf(experts_.wire()));
    staged.writes(call.scales, call.room * layout.scalesOfRow * sizeof *call.scales);
    staged.writes(call.firsts, (byToken ? layout.ranks + 1 : layout.perRank) * sizeof *call.firsts);
    staged.writes(call.counts, layout.perRank * sizeof *call.counts);
    staged.writes(call.origins, call.room * sizeof *call.origins);
    staged.writes(call.rowWeights, call.room * (byToken ? topK : 1) * sizeof *call.rowWeights);
    staged.writes(call.rowExperts, byToken ? call.room * topK * sizeof *call.rowExperts : 0);
    staged.writes(call.dropped, sizeof *call.dropped);
    staged.reads(call.failed, layout.ranks * sizeof *call.failed);
    staged.writes(call.unsent, tokens * topK * sizeof *call.unsent);
    staged.writes(call.unsentCount, sizeof *call.unsentCount);
    staged.enter();
    runInStream(*communicator_, stream, staged, [&](Stream const& in) { experts_.dispatch(in, call); });
  }
  void combine(CombineCall call, std::uintptr_t stream) const {
    auto const [tokens, topK, hidden] = sizesOf(call.tokens);
    StagedBuffers staged(communicator_->device());
    staged.reads(call.results, call.rows * hidden * bytesOf(experts_.type()));
    staged.reads(call.experts, tokens * topK * sizeof *call.experts);
    staged.reads(call.weights, tokens * topK * sizeof *call.weights);
    staged.reads(call.failed, static_cast<std::size_t>(experts_.size()) * sizeof *call.failed);
    staged.writes(call.y, tokens * hidden * bytesOf(experts_.type()));
    staged.enter();
    runInStream(*communicator_, stream, staged, [&](Stream const& in) { experts_.combine(in, call); });
  }

 private:
  struct Sizes {
    std::size_t tokens, topK, hidden;
  };
  Sizes sizesOf(std::size_t tokens) const { return {tokens, experts_.limits().topK, experts_.limits().hidden}; }

  std::shared_ptr<Communicator> communicator_;
  ExpertParallel experts_;
};

template <class T>
T* at(std::uintptr_t number) {
  return static_cast<T*>(pointerOf(number));
}

}  // namespace

void bindExperts(nb::module_& module) {
  nb::enum_<ExpertOrder>(module, "ExpertOrder", "How rows that come are laid out.")
      .value("packed", ExpertOrder::packed, "One expert's behind the other's.")
      .value("padded", ExpertOrder::padded, "As many for each expert.")
      .value("by_token", ExpertOrder::byToken, "One for each token.");
  using layout::ExpertTransport;
  nb::enum_<ExpertTransport>(module, "ExpertTransport", "How rows travel.")
      .value("automatic", ExpertTransport::automatic, "By packets where tokens are few and links are whole.")
      .value("memory", ExpertTransport::memory, "As they are, some with a flag.")
      .value("packets", ExpertTransport::packets, "As lines of which each has its flag.");
  HandleClass<layout::ExpertsHandle>(module, "ExpertsHandle", "DeviceExperts of kernels.");
  nb::class_<PythonExperts>(module, "ExpertParallel",
                            "Tokens to their experts and home, by addresses; mscclpp.ExpertParallel takes arrays. "
                            "Collective over its ranks; none: all.")
      .def(
          "__init__",
          [](PythonExperts* self, std::shared_ptr<Communicator> communicator, std::uint32_t experts, std::uint32_t topK,
             std::uint32_t tokens, std::uint32_t hidden, DataType type, DataType wire, bool partOfEach,
             std::uint32_t blocks, layout::ExpertTransport transport, std::vector<int> ranks) {
            new (self) PythonExperts(std::move(communicator),
                                     {.experts = experts,
                                      .topK = topK,
                                      .tokens = tokens,
                                      .hidden = hidden,
                                      .blocks = blocks,
                                      .partOfEach = partOfEach,
                                      .transport = transport},
                                     type, wire, std::move(ranks));
          },
          nb::arg("communicator"), nb::kw_only(), nb::arg("experts"), nb::arg("topk"), nb::arg("tokens"),
          nb::arg("hidden"), nb::arg("dtype"), nb::arg("wire"), nb::arg("part_of_each") = false,
          nb::arg("blocks") = 132, nb::arg("transport") = layout::ExpertTransport::automatic,
          nb::arg("ranks") = std::vector<int>(), WithoutGil())
      .def(
          "dispatch",
          [](PythonExperts const& self, std::uintptr_t x, std::uintptr_t indices, std::uint32_t tokens,
             ExpertOrder order, std::uint32_t orderRows, std::uintptr_t rows, std::size_t room, std::uintptr_t weights,
             std::uintptr_t scales, std::uintptr_t firsts, std::uintptr_t counts, std::uintptr_t origins,
             std::uintptr_t rowWeights, std::uintptr_t rowExperts, std::uintptr_t dropped, std::uintptr_t failed,
             std::uintptr_t unsent, std::uintptr_t unsentCount, std::uintptr_t stream) {
            self.dispatch({.x = pointerOf(x),
                           .experts = at<std::int64_t>(indices),
                           .weights = at<float>(weights),
                           .tokens = tokens,
                           .order = order,
                           .orderRows = orderRows,
                           .rows = pointerOf(rows),
                           .room = room,
                           .scales = at<float>(scales),
                           .firsts = at<std::uint32_t>(firsts),
                           .counts = at<std::uint32_t>(counts),
                           .origins = at<std::uint32_t>(origins),
                           .rowWeights = at<float>(rowWeights),
                           .rowExperts = at<std::int32_t>(rowExperts),
                           .dropped = at<std::uint32_t>(dropped),
                           .failed = at<std::int32_t>(failed),
                           .unsent = at<std::uint8_t>(unsent),
                           .unsentCount = at<std::uint32_t>(unsentCount)},
                          stream);
          },
          nb::arg("x"), nb::arg("indices"), nb::arg("tokens"), nb::arg("order"), nb::arg("order_rows"), nb::arg("rows"),
          nb::arg("room"), nb::arg("weights") = 0, nb::arg("scales") = 0, nb::arg("firsts") = 0, nb::arg("counts") = 0,
          nb::arg("origins") = 0, nb::arg("row_weights") = 0, nb::arg("row_experts") = 0, nb::arg("dropped") = 0,
          nb::arg("failed") = 0, nb::arg("unsent") = 0, nb::arg("unsent_count") = 0, nb::arg("stream") = 0,
          WithoutGil(), "By addresses; 0: not there, not asked for.")
      .def(
          "combine",
          [](PythonExperts const& self, std::uintptr_t results, std::size_t rows, std::uintptr_t indices,
             std::uint32_t tokens, std::uintptr_t y, std::uintptr_t weights, bool weighted, std::uintptr_t failed,
             std::uintptr_t stream) {
            self.combine({.results = pointerOf(results),
                          .rows = rows,
                          .experts = at<std::int64_t>(indices),
                          .weights = at<float>(weights),
                          .tokens = tokens,
                          .y = pointerOf(y),
                          .weighted = weighted,
                          .failed = at<std::int32_t>(failed)},
                         stream);
          },
          nb::arg("results"), nb::arg("rows"), nb::arg("indices"), nb::arg("tokens"), nb::arg("y"),
          nb::arg("weights") = 0, nb::arg("weighted") = true, nb::arg("failed") = 0, nb::arg("stream") = 0,
          WithoutGil(), "By addresses; 0: not there.")
      .def_prop_ro("rank", [](PythonExperts const& self) { return self.experts().rank(); })
      .def_prop_ro("size", [](PythonExperts const& self) { return self.experts().size(); })
      .def_prop_ro("ranks_of_node",
                   [](PythonExperts const& self) { return self.experts().deviceHandle().layout.ranks; })
      .def_prop_ro("experts", [](PythonExperts const& self) { return self.experts().limits().experts; })
      .def_prop_ro("topk", [](PythonExperts const& self) { return self.experts().limits().topK; })
      .def_prop_ro("tokens", [](PythonExperts const& self) { return self.experts().limits().tokens; })
      .def_prop_ro("hidden", [](PythonExperts const& self) { return self.experts().limits().hidden; })
      .def_prop_ro("blocks", [](PythonExperts const& self) { return self.experts().limits().blocks; })
      .def_prop_ro("part_of_each", [](PythonExperts const& self) { return self.experts().limits().partOfEach; })
      .def_prop_ro("by_packets",
                   [](PythonExperts const& self) { return self.experts().deviceHandle().layout.packets != 0; })
      .def_prop_ro("dtype", [](PythonExperts const& self) { return self.experts().type(); })
      .def_prop_ro("wire", [](PythonExperts const& self) { return self.experts().wire(); })
      .def_prop_ro("experts_of_rank", [](PythonExperts const& self) { return self.experts().expertsOfRank(); })
      .def_prop_ro("scales_of_row",
                   [](PythonExperts const& self) { return self.experts().deviceHandle().layout.scalesOfRow; })
      .def_prop_ro(
          "bytes", [](PythonExperts const& self) { return self.experts().bytes(); }, "Of this rank's memory.")
      .def("device_handle", [](PythonExperts const& self) { return self.experts().deviceHandle(); });
}

}  // namespace mscclpp::python
