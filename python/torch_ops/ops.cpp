// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// torch.ops.mscclpp: collectives of CUDA tensors in the current stream, and of CPU tensors on the simulated machine.
//
// By PyTorch's stable ABI: what is compiled with one PyTorch from 2.10 on works with every other. Fake kernels,
// derivatives and the order in compiled programs are mscclpp/ops.py.
#include <dlfcn.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "fused.hpp"
#include "mscclpp/host/error.hpp"
#include "norm.hpp"
#include "torch/groups.hpp"

namespace {

using mscclpp::Collective;
using mscclpp::DataType;
using mscclpp::DeviceKind;
using mscclpp::ReduceOp;
using mscclpp::nccl::Work;
using mscclpp::torch::Engine;
using mscclpp::torch::Group;
using mscclpp::torch::Groups;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

std::string shown(Tensor const& tensor) {
  std::ostringstream text;
  text << '[';
  for (std::int64_t i = 0; i < tensor.dim(); ++i) text << (i == 0 ? "" : ", ") << tensor.size(i);
  text << ']';
  return text.str();
}

// Of elements that can be combined; nothing for those that can only be moved.
std::optional<DataType> dataTypeOf(ScalarType type) {
  switch (type) {
    case ScalarType::Float:
      return DataType::float32;
    case ScalarType::Double:
      return DataType::float64;
    case ScalarType::Half:
      return DataType::float16;
    case ScalarType::BFloat16:
      return DataType::bfloat16;
    case ScalarType::Float8_e4m3fn:
      return DataType::float8E4M3;
    case ScalarType::Float8_e5m2:
      return DataType::float8E5M2;
    case ScalarType::Char:
      return DataType::int8;
    case ScalarType::Byte:
      return DataType::uint8;
    case ScalarType::Int:
      return DataType::int32;
    case ScalarType::UInt32:
      return DataType::uint32;
    case ScalarType::Long:
      return DataType::int64;
    case ScalarType::UInt64:
      return DataType::uint64;
    default:
      return std::nullopt;
  }
}
bool isFloating(DataType type) { return type <= DataType::float8E5M2; }
static_assert(DataType::float32 < DataType::float8E5M2 && DataType::float8E5M2 < DataType::int8);

void* currentCudaStream(std::int32_t device) {
  using Get = AOTITorchError (*)(std::int32_t, void**);
  static Get const get = [] {
    // It is there: a tensor of CUDA is.
    auto* const library = ::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return library == nullptr ? nullptr : reinterpret_cast<Get>(::dlsym(library, "aoti_torch_get_current_cuda_stream"));
  }();
  void* stream = nullptr;
  STD_TORCH_CHECK(get != nullptr && get(device, &stream) == AOTI_TORCH_SUCCESS,
                  "torch.ops.mscclpp: this PyTorch does not tell its current CUDA stream");
  return stream;
}

// What the library throws, with the name of the op.
template <class F>
auto explained(char const* op, F&& body) {
  try {
    return static_cast<F&&>(body)();
  } catch (mscclpp::Error const& error) {
    auto const text = std::string("torch.ops.mscclpp.") + op + ": " + error.what();
    if (error.code() == mscclpp::ErrorCode::invalidUsage) throw std::invalid_argument(text);
    throw std::runtime_error(text);
  }
}

// One call: which group it is of, and its tensors where the device can use them.
class Call {
 public:
  Call(char const* name, Tensor const& tensor, std::string const& group)
      : name_(name),
        isCuda_(tensor.is_cuda()),
        group_(explained(name, [&] { return Groups::find(group, isCuda_ ? DeviceKind::cuda : DeviceKind::sim); })) {
    if (!isCuda_) {
      stream_ = group_.stream;
      return;
    }
    auto const device = tensor.get_device_index();
    require(device == group_.engine->device().ordinal, "a tensor on cuda:", device,
            "; this group is on cuda:", group_.engine->device().ordinal);
    stream_ = currentCudaStream(device);
  }

  int size() const { return group_.engine->size(); }

  void const* input(Tensor const& tensor) {
    usable(tensor);
    if (isCuda_) return tensor.const_data_ptr();
    auto* const place = room(tensor);
    if (place != nullptr) std::memcpy(place, tensor.const_data_ptr(), bytesOf(tensor));
    return place;
  }
  void* output(Tensor const& tensor) {
    usable(tensor);
    if (isCuda_) return tensor.mutable_data_ptr();
    auto* const place = room(tensor);
    results_.emplace_back(tensor, place);
    return place;
  }
  void* both(Tensor const& tensor) {
    auto* const place = output(tensor);
    if (!isCuda_ && place != nullptr) std::memcpy(place, tensor.const_data_ptr(), bytesOf(tensor));
    return place;
  }
  // Memory that is needed until the call is done.
  void* scratch(Tensor const& tensor) {
    if (isCuda_) return tensor.mutable_data_ptr();
    return room(tensor);
  }

  DataType numbers(Tensor const& tensor) const {
    auto const type = dataTypeOf(tensor.scalar_type());
    require(type.has_value(),
            "elements of this type cannot be combined; there are float64, float32, float16, bfloat16, "
            "float8_e4m3fn, float8_e5m2, and integers of 8, 32 and 64 bits");
    return *type;
  }
  ReduceOp operation(std::string_view op) const {
    constexpr std::array<std::pair<std::string_view, ReduceOp>, 5> all{{{"sum", ReduceOp::sum},
                                                                        {"avg", ReduceOp::avg},
                                                                        {"min", ReduceOp::min},
                                                                        {"max", ReduceOp::max},
                                                                        {"product", ReduceOp::prod}}};
    auto const found = std::find_if(all.begin(), all.end(), [&](auto const& each) { return each.first == op; });
    require(found != all.end(), "there is no operation \"", op, "\"; there are sum, avg, min, max and product");
    return found->second;
  }
  void requireResidual(Tensor const& residual, Tensor const& x) const {
    bool const alike =
        residual.dim() == x.dim() && std::equal(x.sizes().begin(), x.sizes().end(), residual.sizes().begin());
    require(alike, "a residual of shape ", shown(residual), " for an input of shape ", shown(x));
  }
  void requireRank(std::int64_t rank) const {
    require(rank >= 0 && rank < size(), "there is no rank ", rank, "; there are ranks 0 to ", size() - 1);
  }
  template <class... Words>
  void require(bool holds, Words const&... words) const {
    if (holds) return;
    std::ostringstream text;
    text << "torch.ops.mscclpp." << name_ << ": rank " << group_.engine->rank() << ": ";
    (text << ... << words);
    throw std::invalid_argument(text.str());
  }

  void combine(Collective collective, void const* in, void* out, std::int64_t count, DataType type, ReduceOp op) {
    start({.collective = collective,
           .in = in,
           .out = out,
           .count = static_cast<std::size_t>(count),
           .type = type,
           .op = op});
  }
  // Any elements, as bytes.
  void move(Collective collective, void const* in, void* out, std::size_t bytes, std::int64_t root = 0) {
    start({.collective = collective, .in = in, .out = out, .count = bytes, .root = static_cast<int>(root)});
  }
  void message(Work work, void const* in, void* out, std::size_t bytes, std::int64_t peer) {
    start({.work = work, .in = in, .out = out, .count = bytes, .root = static_cast<int>(peer)});
  }
  void fused(mscclpp::torch::FusedCall const& call) {
    run([&] { mscclpp::torch::startFused(*group_.engine, call, stream_); });
  }
  void norm(mscclpp::torch::NormCall const& call) {
    run([&] { mscclpp::torch::startNorm(*group_.engine, call, stream_); });
  }

  static std::size_t bytesOf(Tensor const& tensor) {
    return static_cast<std::size_t>(tensor.numel()) * tensor.element_size();
  }

 private:
  void usable(Tensor const& tensor) const {
    require(tensor.is_cuda() == isCuda_, "tensors of CUDA and of the CPU in one call");
    require(tensor.is_contiguous(), "a tensor of shape ", shown(tensor),
            " is not contiguous; give it its contiguous()");
  }
  void* room(Tensor const& tensor) {
    if (bytesOf(tensor) == 0) return nullptr;
    return memory_.emplace_back(Engine::allocate(group_.engine->device(), bytesOf(tensor))).get();
  }
  void start(mscclpp::torch::Call call) {
    if (call.count == 0 && call.work == Work::collective) return;
    run([&] { group_.engine->start({&call, 1}, stream_); });
  }
  template <class F>
  void run(F&& body) {
    explained(name_, [&] {
      body();
      if (isCuda_) return;
      group_.engine->wait(stream_);
      for (auto const& [tensor, place] : results_) {
        if (place != nullptr) std::memcpy(tensor.mutable_data_ptr(), place, bytesOf(tensor));
      }
    });
  }

  char const* name_;
  bool isCuda_;
  Group group_;
  void* stream_ = nullptr;
  std::vector<std::shared_ptr<void>> memory_;
  std::vector<std::pair<Tensor, void*>> results_;
};

Tensor likeWithRows(Tensor const& tensor, std::int64_t rows) {
  std::vector<std::int64_t> sizes(tensor.sizes().begin(), tensor.sizes().end());
  sizes[0] = rows;
  return torch::stable::new_empty(tensor, sizes);
}

void allReduceInPlace(Tensor x, std::string op, std::string group) {
  Call call("all_reduce_", x, group);
  auto const type = call.numbers(x);
  auto const how = call.operation(op);
  auto* const data = call.both(x);
  call.combine(Collective::allReduce, data, data, x.numel(), type, how);
}

Tensor allReduce(Tensor x, std::string op, std::string group) {
  Call call("all_reduce", x, group);
  auto const type = call.numbers(x);
  auto const how = call.operation(op);
  auto const* const in = call.input(x);
  auto const out = torch::stable::empty_like(x);
  call.combine(Collective::allReduce, in, call.output(out), x.numel(), type, how);
  return out;
}

Tensor fusedAllReduce(Tensor x, std::string op, std::string group, double scale, std::optional<Tensor> residual,
                      std::optional<ScalarType> dtype) {
  Call call("fused_all_reduce", x, group);
  auto const type = call.numbers(x);
  auto const how = call.operation(op);
  auto const target = dtype.value_or(x.scalar_type());
  auto const outType = dataTypeOf(target);
  call.require(isFloating(type) && outType && isFloating(*outType),
               "floating numbers are scaled and converted; take all_reduce for others");
  mscclpp::torch::FusedCall fused{.count = static_cast<std::size_t>(x.numel()),
                                  .type = type,
                                  .outType = *outType,
                                  .residualType = type,
                                  .op = how,
                                  .scale = scale};
  fused.in = call.input(x);
  if (residual) {
    auto const residualType = dataTypeOf(residual->scalar_type());
    call.require(residualType && (*residualType == type || *residualType == *outType),
                 "the residual has the type of the input, or of the output");
    call.requireResidual(*residual, x);
    fused.residual = call.input(*residual);
    fused.residualType = *residualType;
  }
  auto const out = torch::stable::new_empty(x, x.sizes(), target);
  if (fused.count == 0) return out;
  fused.out = call.output(out);
  std::optional<Tensor> sum;
  fused.sum = *outType == type ? fused.out : call.scratch(sum.emplace(torch::stable::empty_like(x)));
  call.fused(fused);
  return out;
}

std::tuple<Tensor, Tensor> allReduceRmsNorm(Tensor x, Tensor weight, std::string group, std::optional<Tensor> residual,
                                            double eps) {
  Call call("all_reduce_rms_norm", x, group);
  auto const type = x.scalar_type();
  call.require(type == ScalarType::Half || type == ScalarType::BFloat16 || type == ScalarType::Float,
               "elements of this type are not normalised; there are float16, bfloat16 and float32");
  call.require(x.dim() > 0, "a tensor without dimensions; its last one is normalised");
  auto const columns = x.size(x.dim() - 1);
  call.require(weight.dim() == 1 && weight.size(0) == columns, "a weight of shape ", shown(weight), " for rows of ",
               columns, " elements");
  call.require(weight.scalar_type() == type, "the weight has the type of the input");
  call.require(eps >= 0, "eps of ", eps, "; it is 0 or more");
  mscclpp::torch::NormCall norm{
      .columns = static_cast<std::size_t>(columns), .type = call.numbers(x), .epsilon = static_cast<float>(eps)};
  norm.in = call.input(x);
  norm.weight = call.input(weight);
  if (residual) {
    call.require(residual->scalar_type() == type, "the residual has the type of the input");
    call.requireResidual(*residual, x);
    norm.residual = call.input(*residual);
  }
  auto const y = torch::stable::empty_like(x);
  auto const kept = torch::stable::empty_like(x);
  if (x.numel() == 0) return {y, kept};
  norm.rows = static_cast<std::size_t>(x.numel() / columns);
  norm.y = call.output(y);
  norm.kept = call.output(kept);
  call.norm(norm);
  return {y, kept};
}

Tensor allGather(Tensor x, std::string group) {
  Call call("all_gather", x, group);
  call.require(x.dim() > 0, "a tensor without dimensions; give it one by reshape(1)");
  auto const* const in = call.input(x);
  auto const out = likeWithRows(x, x.size(0) * call.size());
  call.move(Collective::allGather, in, call.output(out), Call::bytesOf(x));
  return out;
}

Tensor reduceScatter(Tensor x, std::string op, std::string group) {
  Call call("reduce_scatter", x, group);
  auto const type = call.numbers(x);
  auto const how = call.operation(op);
  call.require(x.dim() > 0 && x.size(0) % call.size() == 0, "dimension 0 of shape ", shown(x), " does not divide by ",
               call.size(), " ranks");
  auto const* const in = call.input(x);
  auto const out = likeWithRows(x, x.size(0) / call.size());
  call.combine(Collective::reduceScatter, in, call.output(out), out.numel(), type, how);
  return out;
}

Tensor allToAll(Tensor x, std::string group) {
  Call call("all_to_all", x, group);
  call.require(x.dim() > 0 && x.size(0) % call.size() == 0, "dimension 0 of shape ", shown(x), " does not divide by ",
               call.size(), " ranks");
  auto const* const in = call.input(x);
  auto const out = torch::stable::empty_like(x);
  call.move(Collective::allToAll, in, call.output(out), Call::bytesOf(x) / static_cast<std::size_t>(call.size()));
  return out;
}

void broadcastInPlace(Tensor x, std::int64_t root, std::string group) {
  Call call("broadcast_", x, group);
  call.requireRank(root);
  auto* const data = call.both(x);
  call.move(Collective::broadcast, data, data, Call::bytesOf(x), root);
}

Tensor broadcast(Tensor x, std::int64_t root, std::string group) {
  Call call("broadcast", x, group);
  call.requireRank(root);
  auto const* const in = call.input(x);
  auto const out = torch::stable::empty_like(x);
  call.move(Collective::broadcast, in, call.output(out), Call::bytesOf(x), root);
  return out;
}

void send(Tensor x, std::int64_t peer, std::string group) {
  Call call("send", x, group);
  call.requireRank(peer);
  call.message(Work::send, call.input(x), nullptr, Call::bytesOf(x), peer);
}

void receiveInPlace(Tensor x, std::int64_t peer, std::string group) {
  Call call("recv_", x, group);
  call.requireRank(peer);
  call.message(Work::recv, nullptr, call.output(x), Call::bytesOf(x), peer);
}

Tensor receive(Tensor like, std::int64_t peer, std::string group) {
  Call call("recv", like, group);
  call.requireRank(peer);
  auto const out = torch::stable::empty_like(like);
  call.message(Work::recv, nullptr, call.output(out), Call::bytesOf(out), peer);
  return out;
}

void implement(torch::stable::detail::StableLibrary& library) {
  library.impl("all_reduce_", TORCH_BOX(&allReduceInPlace));
  library.impl("all_reduce", TORCH_BOX(&allReduce));
  library.impl("fused_all_reduce", TORCH_BOX(&fusedAllReduce));
  library.impl("all_reduce_rms_norm", TORCH_BOX(&allReduceRmsNorm));
  library.impl("all_gather", TORCH_BOX(&allGather));
  library.impl("reduce_scatter", TORCH_BOX(&reduceScatter));
  library.impl("all_to_all", TORCH_BOX(&allToAll));
  library.impl("broadcast_", TORCH_BOX(&broadcastInPlace));
  library.impl("broadcast", TORCH_BOX(&broadcast));
  library.impl("send", TORCH_BOX(&send));
  library.impl("recv_", TORCH_BOX(&receiveInPlace));
  library.impl("recv", TORCH_BOX(&receive));
}

}  // namespace

STABLE_TORCH_LIBRARY(mscclpp, library) {
  library.def("all_reduce_(Tensor(a!) x, str op, str group) -> ()");
  library.def("all_reduce(Tensor x, str op, str group) -> Tensor");
  library.def(
      "fused_all_reduce(Tensor x, str op, str group, float scale=1.0, Tensor? residual=None, ScalarType? dtype=None)"
      " -> Tensor");
  library.def(
      "all_reduce_rms_norm(Tensor x, Tensor weight, str group, Tensor? residual=None, float eps=1e-06)"
      " -> (Tensor, Tensor)");
  library.def("all_gather(Tensor x, str group) -> Tensor");
  library.def("reduce_scatter(Tensor x, str op, str group) -> Tensor");
  library.def("all_to_all(Tensor x, str group) -> Tensor");
  library.def("broadcast_(Tensor(a!) x, int root, str group) -> ()");
  library.def("broadcast(Tensor x, int root, str group) -> Tensor");
  library.def("send(Tensor x, int peer, str group) -> ()");
  library.def("recv_(Tensor(a!) x, int peer, str group) -> ()");
  library.def("recv(Tensor like, int peer, str group) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(mscclpp, CPU, library) { implement(library); }
STABLE_TORCH_LIBRARY_IMPL(mscclpp, CUDA, library) { implement(library); }
