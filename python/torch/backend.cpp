// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The process group backend "mscclpp" of torch.distributed, for CUDA tensors on GPUs and CPU tensors on the simulated
// machine: what each of its calls does with its tensors. How they run is runner.hpp. Compiled for the PyTorch at hand
// when it is first used (mscclpp/torch.py), without CUDA's headers.
#include <ATen/ATen.h>
#include <pybind11/chrono.h>
#include <torch/extension.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "monitored_barrier.hpp"
#include "runner.hpp"
#include "tensor_call.hpp"

namespace {

using c10d::OpType;
using mscclpp::Collective;
using mscclpp::torch::backendName;
using mscclpp::torch::MonitoredBarrier;
using mscclpp::torch::Runner;
using mscclpp::torch::Tensors;
using Message = mscclpp::nccl::Work;

class MscclppBackend final : public c10d::Backend {
 public:
  // `title`: by which profilers show its calls.
  MscclppBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout,
                 bool hasGpus, std::string const& title)
      : Backend(rank, size),
        options_(c10::make_intrusive<Options>(backendName, timeout)),
        store_(store),
        runner_(std::move(store), rank, size, timeout, hasGpus, title) {}

  std::string const getBackendName() const override { return backendName; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override {
    options_->timeout = timeout;
    runner_.setTimeout(timeout);
  }
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return runner_.calls(); }
  c10d::ErrorType getError() override {
    auto const fault = runner_.fault();
    if (!fault) return c10d::ErrorType::SUCCESS;
    if (fault->code() == mscclpp::ErrorCode::timeout) return c10d::ErrorType::TIMEOUT;
    bool const remote = fault->code() == mscclpp::ErrorCode::remoteError;
    return remote ? c10d::ErrorType::REMOTE_ERROR : c10d::ErrorType::COMM_ERROR;
  }
  void eagerConnectSingleDevice(at::Device device) override {
    std::optional<py::gil_scoped_release> released;
    if (PyGILState_Check() != 0) released.emplace();
    runner_.meetOn(device);
  }
  void abort() override { runner_.abort(); }
  void shutdown() override {
    runner_.withdraw();
    runner_.end();
  }
  void offer(std::string const& name, bool forCuda) { runner_.offer(name, forCuda); }
  // For torch.cuda.MemPool.
  py::object memAllocator() const {
    (void)runner_.engines().gpu("mem_allocator");
    return py::module_::import("mscclpp.torch").attr("_allocator")();
  }
  // Collective: what the pool has now is used where it lies.
  void registerPool(py::object const& pool) {
    for (auto const& segment : pool.attr("snapshot")()) {
      auto const base = segment["address"].cast<std::uintptr_t>();
      auto const bytes = segment["total_size"].cast<std::size_t>();
      py::gil_scoped_release const released;
      runner_.addWindow(base, bytes);
    }
  }
  void startCoalescing() override { runner_.startCoalescing(); }
  c10::intrusive_ptr<c10d::Work> endCoalescing() override { return runner_.endCoalescing(); }

  // Of its members alone, who meet in a store of their own.
  c10::intrusive_ptr<Backend> split(c10::intrusive_ptr<c10d::Store> const& store, std::vector<int> const& ranks,
                                    c10::intrusive_ptr<Options> const& options) override {
    auto const found = std::find(ranks.begin(), ranks.end(), rank_);
    if (found == ranks.end()) return nullptr;
    auto made = c10::make_intrusive<MscclppBackend>(store, static_cast<int>(found - ranks.begin()),
                                                    static_cast<int>(ranks.size()), options->timeout,
                                                    runner_.engines().hasGpus(), options_->backend);
    made->options_->group_name = options->group_name;
    made->options_->global_ranks_in_group = options->global_ranks_in_group;
    return made;
  }

  // ---- collectives

  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, c10d::AllreduceOptions const& options) override {
    one("allreduce", tensors);
    return reduceEach(OpType::ALLREDUCE, tensors, options.reduceOp, options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(Tensors& tensors,
                                                     c10d::AllreduceCoalescedOptions const& options) override {
    return reduceEach(OpType::ALLREDUCE_COALESCED, tensors, options.reduceOp, options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(Tensors& tensors, c10d::BroadcastOptions const& options) override {
    one("broadcast", tensors);
    auto made = runner_.call(OpType::BROADCAST);
    auto const data = rank_ == options.rootRank ? made.input(tensors[0]) : made.room(tensors[0]);
    made.move(Collective::broadcast, data, data, data.numel(), static_cast<int>(options.rootRank));
    made.arrive(tensors[0], data);
    return runner_.start(std::move(made), tensors[0].device(), options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> reduce(Tensors& tensors, c10d::ReduceOptions const& options) override {
    one("reduce", tensors);
    auto made = runner_.call(OpType::REDUCE);
    auto const data = made.input(tensors[0]);
    made.combine(Collective::reduce, data, data, data.numel(), options.reduceOp, static_cast<int>(options.rootRank));
    if (rank_ == options.rootRank) made.arrive(tensors[0], data);
    return runner_.start(std::move(made), tensors[0].device(), options.asyncOp);
  }

  c10::intrusive_ptr<c10d::Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                           c10d::AllgatherOptions const& options) override {
    one("allgather", inputs);
    auto const& in = inputs[0];
    auto made = runner_.call(OpType::ALLGATHER);
    bool alike = list("allgather", outputs, in);
    if (alike) {
      auto const own = made.input(in), whole = made.flat(in);
      made.move(Collective::allGather, own, whole, own.numel());
      made.spread(outputs[0], whole);
    } else {
      // Parts that differ in size: each rank's, to all.
      for (int root = 0; root < size_; ++root) {
        auto const& out = outputs[0][static_cast<std::size_t>(root)];
        auto const data = made.room(out);
        auto const from = root == rank_ ? made.input(in) : data;
        made.move(Collective::broadcast, from, data, data.numel(), root);
        made.arrive(out, data);
      }
    }
    made.results = outputs[0];
    return runner_.start(std::move(made), in.device(), options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 c10d::AllgatherOptions const& options) override {
    Tensors outputs{output}, inputs{input};
    return gatherEach(OpType::_ALLGATHER_BASE, outputs, inputs, options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                 c10d::AllgatherOptions const& options) override {
    return gatherEach(OpType::COALESCED, outputs, inputs, options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                     c10d::AllgatherOptions const& options) override {
    TORCH_CHECK_VALUE(!inputs.empty() && static_cast<int>(outputs.size()) == size_, backendName,
                      ": allgather_coalesced: a list of outputs for each of ", size_, " ranks is needed, there are ",
                      outputs.size());
    auto made = runner_.call(OpType::ALLGATHER_COALESCED);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensors places;
      for (auto const& of : outputs) places.push_back(of.at(i));
      TORCH_CHECK_VALUE(list("allgather_coalesced", {places}, inputs[i]), backendName,
                        ": allgather_coalesced into tensors of other sizes than ", inputs[i].sizes());
      auto const own = made.input(inputs[i]), whole = made.flat(inputs[i]);
      made.move(Collective::allGather, own, whole, own.numel());
      made.spread(places, whole);
    }
    return runner_.start(std::move(made), inputs[0].device(), options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                        c10d::GatherOptions const& options) override {
    one("gather", inputs);
    auto made = runner_.call(OpType::GATHER);
    auto const own = made.input(inputs[0]);
    bool const root = rank_ == options.rootRank;
    at::Tensor whole;
    if (root) {
      TORCH_CHECK_VALUE(list("gather", outputs, inputs[0]), backendName, ": gather into tensors of other sizes than ",
                        inputs[0].sizes());
      whole = made.flat(inputs[0]);
    } else {
      TORCH_CHECK_VALUE(outputs.empty() || outputs[0].empty(), backendName, ": gather: rank ", rank_,
                        " is not the root and gives outputs");
    }
    made.move(Collective::gather, own, whole, own.numel(), static_cast<int>(options.rootRank));
    if (root) made.spread(outputs[0], whole);
    if (root) made.results = outputs[0];
    return runner_.start(std::move(made), inputs[0].device(), options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                         c10d::ScatterOptions const& options) override {
    one("scatter", outputs);
    auto made = runner_.call(OpType::SCATTER);
    bool const root = rank_ == options.rootRank;
    at::Tensor whole;
    if (root) {
      TORCH_CHECK_VALUE(list("scatter", inputs, outputs[0]), backendName, ": scatter of tensors of other sizes than ",
                        outputs[0].sizes());
      whole = made.joined(inputs[0]);
    } else {
      TORCH_CHECK_VALUE(inputs.empty() || inputs[0].empty(), backendName, ": scatter: rank ", rank_,
                        " is not the root and gives inputs");
    }
    auto const own = made.room(outputs[0]);
    made.move(Collective::scatter, whole, own, own.numel(), static_cast<int>(options.rootRank));
    made.arrive(outputs[0], own);
    return runner_.start(std::move(made), outputs[0].device(), options.asyncOp);
  }

  c10::intrusive_ptr<c10d::Work> reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                c10d::ReduceScatterOptions const& options) override {
    one("reduce_scatter", outputs);
    auto made = runner_.call(OpType::REDUCE_SCATTER);
    if (list("reduce_scatter", inputs, outputs[0])) {
      auto const whole = made.joined(inputs[0]), own = made.room(outputs[0]);
      made.combine(Collective::reduceScatter, whole, own, own.numel(), options.reduceOp);
      made.arrive(outputs[0], own);
    } else {
      for (int root = 0; root < size_; ++root) {
        auto const data = made.input(inputs[0][static_cast<std::size_t>(root)].clone());
        made.combine(Collective::reduce, data, data, data.numel(), options.reduceOp, root);
        if (root == rank_) made.copies.emplace_back(outputs[0], data);
      }
      made.results = outputs;
    }
    return runner_.start(std::move(made), outputs[0].device(), options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      c10d::ReduceScatterOptions const& options) override {
    Tensors outputs{output}, inputs{input};
    return scatterEach(OpType::_REDUCE_SCATTER_BASE, outputs, inputs, options);
  }
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                 c10d::ReduceScatterOptions const& options) override {
    return scatterEach(OpType::COALESCED, outputs, inputs, options);
  }

  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& output, at::Tensor& input,
                                               std::vector<int64_t>& outputSplits, std::vector<int64_t>& inputSplits,
                                               c10d::AllToAllOptions const& options) override {
    auto made = runner_.call(OpType::ALLTOALL_BASE);
    auto const in = made.input(input), out = made.room(output);
    if (outputSplits.empty() && inputSplits.empty()) {
      TORCH_CHECK_VALUE(in.numel() == out.numel() && in.scalar_type() == out.scalar_type(), backendName,
                        ": all_to_all_single of ", in.numel(), " elements into ", out.numel());
      TORCH_CHECK_VALUE(in.dim() > 0 && in.size(0) % size_ == 0, backendName, ": all_to_all_single: dimension 0 of ",
                        in.sizes(), " does not divide by ", size_, " ranks");
      made.move(Collective::allToAll, in, out, in.numel() / size_);
    } else {
      auto const ins = parts("input", in, inputSplits), outs = parts("output", out, outputSplits);
      made.exchange(ins, outs);
    }
    made.arrive(output, out);
    return runner_.start(std::move(made), input.device(), options.asyncOp);
  }
  c10::intrusive_ptr<c10d::Work> alltoall(Tensors& outputs, Tensors& inputs,
                                          c10d::AllToAllOptions const& options) override {
    TORCH_CHECK_VALUE(static_cast<int>(inputs.size()) == size_ && static_cast<int>(outputs.size()) == size_,
                      backendName, ": all_to_all needs ", size_, " inputs and outputs, there are ", inputs.size(),
                      " and ", outputs.size());
    auto made = runner_.call(OpType::ALLTOALL);
    Tensors ins, outs;
    for (auto const& tensor : inputs) ins.push_back(made.input(tensor));
    for (auto const& tensor : outputs) outs.push_back(made.room(tensor));
    made.exchange(ins, outs);
    for (std::size_t i = 0; i < outs.size(); ++i) made.arrive(outputs[i], outs[i]);
    return runner_.start(std::move(made), inputs[0].device(), options.asyncOp);
  }

  c10::intrusive_ptr<c10d::Work> send(Tensors& tensors, int peer, int /*tag*/) override {
    one("send", tensors);
    auto made = runner_.call(OpType::SEND);
    made.message(Message::send, made.input(tensors[0]), peer);
    return runner_.start(std::move(made), tensors[0].device(), true);
  }
  c10::intrusive_ptr<c10d::Work> recv(Tensors& tensors, int peer, int /*tag*/) override {
    one("recv", tensors);
    auto made = runner_.call(OpType::RECV);
    auto const data = made.room(tensors[0]);
    made.message(Message::recv, data, peer);
    made.arrive(tensors[0], data);
    return runner_.start(std::move(made), tensors[0].device(), true);
  }
  c10::intrusive_ptr<c10d::Work> recvAnysource(Tensors& tensors, int /*tag*/) override {
    one("recv", tensors);
    auto made = runner_.call(OpType::RECVANYSOURCE);
    auto const data = made.room(tensors[0]);
    made.arrive(tensors[0], data);
    return runner_.startFromAny(std::move(made), data, tensors[0].device());
  }

  void monitoredBarrier(c10d::BarrierOptions const& options, bool waitAllRanks) override {
    auto const limit = options.timeout == c10d::kUnsetTimeout ? runner_.timeout() : options.timeout;
    barrier_(*store_, rank_, size_, limit, waitAllRanks);
  }
  c10::intrusive_ptr<c10d::Work> barrier(c10d::BarrierOptions const& options) override {
    auto made = runner_.call(OpType::BARRIER);
    at::Device device(at::kCPU);
    if (runner_.engines().hasGpus()) {
      if (!options.device_ids.empty()) {
        device = {at::kCUDA, static_cast<c10::DeviceIndex>(options.device_ids.front())};
      } else if (runner_.engines().haveMet(at::kCUDA)) {
        device = runner_.engines().gpu("a barrier");
      } else {  // nothing of this group is on a GPU, and nobody has said on which it will be
        barrier_(*store_, rank_, size_, runner_.timeout(), true);
        return runner_.done(OpType::BARRIER);
      }
    }
    auto const token = at::zeros({1}, at::TensorOptions().device(device).dtype(at::kByte));
    auto const data = made.input(token);
    made.combine(Collective::allReduce, data, data, 1, c10d::ReduceOp::SUM);
    return runner_.start(std::move(made), device, options.asyncOp || device.is_cuda());
  }

 private:
  static void one(char const* what, Tensors const& tensors) {
    TORCH_CHECK_VALUE(tensors.size() == 1, backendName, ": ", what, " takes one tensor, there are ", tensors.size());
  }
  // Whether a list has one tensor for each rank, all as large as `like`.
  bool list(char const* what, std::vector<Tensors> const& lists, at::Tensor const& like) const {
    TORCH_CHECK_VALUE(lists.size() == 1 && static_cast<int>(lists[0].size()) == size_, backendName, ": ", what,
                      " needs ", size_, " tensors in a list, there are ", lists.empty() ? 0 : lists[0].size());
    bool alike = true;
    for (auto const& tensor : lists[0]) {
      TORCH_CHECK_TYPE(tensor.scalar_type() == like.scalar_type(), backendName, ": ", what, " of ", like.scalar_type(),
                       " and ", tensor.scalar_type());
      alike = alike && tensor.numel() == like.numel();
    }
    return alike;
  }
  Tensors parts(char const* what, at::Tensor const& tensor, std::vector<int64_t> const& splits) const {
    if (splits.empty()) {
      TORCH_CHECK_VALUE(tensor.size(0) % size_ == 0, backendName, ": all_to_all_single: dimension 0 of the ", what,
                        ", ", tensor.sizes(), ", does not divide by ", size_, " ranks");
      return tensor.chunk(size_);
    }
    int64_t sum = 0;
    for (auto const split : splits) sum += split;
    TORCH_CHECK_VALUE(static_cast<int>(splits.size()) == size_ && sum == tensor.size(0), backendName,
                      ": all_to_all_single: the ", what, " has ", tensor.size(0), " rows, its ", splits.size(),
                      " splits for ", size_, " ranks sum up to ", sum);
    return tensor.split_with_sizes(splits);
  }

  c10::intrusive_ptr<c10d::Work> reduceEach(OpType kind, Tensors const& tensors, c10d::ReduceOp const& op, bool async) {
    TORCH_CHECK_VALUE(!tensors.empty(), backendName, ": no tensors");
    auto made = runner_.call(kind);
    for (auto const& tensor : tensors) {
      auto const data = made.input(tensor);
      made.combine(Collective::allReduce, data, data, data.numel(), op);
      made.arrive(tensor, data);
    }
    return runner_.start(std::move(made), tensors[0].device(), async);
  }
  c10::intrusive_ptr<c10d::Work> gatherEach(OpType kind, Tensors const& outputs, Tensors const& inputs, bool async) {
    auto made = runner_.call(kind);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      TORCH_CHECK_TYPE(outputs[i].scalar_type() == inputs[i].scalar_type(), backendName, ": all_gather of ",
                       inputs[i].scalar_type(), " into ", outputs[i].scalar_type());
      TORCH_CHECK_VALUE(outputs[i].numel() == inputs[i].numel() * size_, backendName, ": all_gather of ",
                        inputs[i].numel(), " elements from each of ", size_, " ranks into ", outputs[i].numel());
      auto const own = made.input(inputs[i]), whole = made.room(outputs[i]);
      made.move(Collective::allGather, own, whole, own.numel());
      made.arrive(outputs[i], whole);
    }
    return runner_.start(std::move(made), inputs.at(0).device(), async);
  }
  c10::intrusive_ptr<c10d::Work> scatterEach(OpType kind, Tensors const& outputs, Tensors const& inputs,
                                             c10d::ReduceScatterOptions const& options) {
    auto made = runner_.call(kind);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      TORCH_CHECK_TYPE(outputs[i].scalar_type() == inputs[i].scalar_type(), backendName, ": reduce_scatter of ",
                       inputs[i].scalar_type(), " into ", outputs[i].scalar_type());
      TORCH_CHECK_VALUE(inputs[i].numel() == outputs[i].numel() * size_, backendName, ": reduce_scatter of ",
                        inputs[i].numel(), " elements into ", outputs[i].numel(), " on each of ", size_, " ranks");
      auto const whole = made.input(inputs[i]), own = made.room(outputs[i]);
      made.combine(Collective::reduceScatter, whole, own, own.numel(), options.reduceOp);
      made.arrive(outputs[i], own);
    }
    return runner_.start(std::move(made), inputs.at(0).device(), options.asyncOp);
  }

  c10::intrusive_ptr<Options> options_;
  c10::intrusive_ptr<c10d::Store> store_;
  MonitoredBarrier barrier_;
  Runner runner_;
};

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  py::class_<MscclppBackend, c10d::Backend, c10::intrusive_ptr<MscclppBackend>>(module, "ProcessGroupMscclpp")
      .def(py::init([](c10::intrusive_ptr<c10d::Store> const& store, int rank, int size,
                       std::chrono::milliseconds timeout, bool hasGpus, std::string const& title) {
             return c10::make_intrusive<MscclppBackend>(store, rank, size, timeout, hasGpus, title);
           }),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("has_gpus") = false,
           py::arg("title") = backendName, py::call_guard<py::gil_scoped_release>())
      .def("offer", &MscclppBackend::offer, py::arg("name"), py::arg("for_cuda"),
           py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("mem_allocator", &MscclppBackend::memAllocator)
      .def("get_error", &MscclppBackend::getError)
      .def("register_mem_pool", &MscclppBackend::registerPool, py::arg("pool"))
      .def_property_readonly("options", &MscclppBackend::getBackendOptions);
}
