// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One call of the backend while it is put together: tensors that the device can use, what is done with them, and what
// is to be copied when that is done.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/record_function.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "nccl/operation.hpp"

namespace mscclpp::torch {

using Tensors = std::vector<at::Tensor>;

inline constexpr char const* backendName = "mscclpp";

// While it is there copies are not of autograd's concern, nor is what collectives write on GPUs.
using Quiet = at::AutoDispatchBelowADInplaceOrView;

// Of elements that can be combined; nothing for those that can only be moved.
inline std::optional<DataType> dataTypeOf(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DataType::float32;
    case at::kDouble:
      return DataType::float64;
    case at::kHalf:
      return DataType::float16;
    case at::kBFloat16:
      return DataType::bfloat16;
    case at::kFloat8_e4m3fn:
      return DataType::float8E4M3;
    case at::kFloat8_e5m2:
      return DataType::float8E5M2;
    case at::kChar:
      return DataType::int8;
    case at::kByte:
      return DataType::uint8;
    case at::kBool:
      return DataType::uint8;
    case at::kInt:
      return DataType::int32;
    case at::kUInt32:
      return DataType::uint32;
    case at::kLong:
      return DataType::int64;
    case at::kUInt64:
      return DataType::uint64;
    default:
      return std::nullopt;
  }
}

class TensorCall {
 public:
  // Of that many ranks; `allocate`: memory for tensors of the CPU.
  using Allocate = std::function<std::shared_ptr<void>(std::size_t bytes)>;
  TensorCall(c10d::OpType kind, int size, Allocate const& allocate)
      : kind(kind), isProfiled(at::hasCallbacks()), size_(size), allocate_(&allocate) {}

  c10d::OpType kind;
  bool isProfiled;
  c10::SmallVector<nccl::Operation, 1> calls;
  c10::SmallVector<at::Tensor, 2> kept;                   // whatever the calls read and write
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // to, from: once the calls are done
  c10::SmallVector<at::Tensor, 1> results;
  Tensors shown;  // to a profiler, if there is one: what is read, or where there is nothing, what is written

  // What a call reads: the tensor itself, or of the CPU a copy in device memory.
  at::Tensor input(at::Tensor const& tensor) {
    usable(tensor);
    Quiet const quiet;
    auto const result = tensor.is_cpu() ? memory(tensor.sizes(), tensor.options()).copy_(tensor) : tensor;
    kept.push_back(result);
    if (isProfiled) shown.push_back(tensor);
    return result;
  }
  // Where a call writes what arrive() then takes to the tensor.
  at::Tensor room(at::Tensor const& tensor) {
    usable(tensor);
    auto const result = tensor.is_cpu() ? memory(tensor.sizes(), tensor.options()) : tensor;
    kept.push_back(result);
    if (isProfiled && shown.empty()) shown.push_back(tensor);
    return result;
  }
  // For a tensor like that of each rank.
  at::Tensor flat(at::Tensor const& like) {
    auto const result = memory({size_, like.numel()}, like.options());
    kept.push_back(result);
    return result;
  }
  // The list's tensors, one behind the other.
  at::Tensor joined(Tensors const& list) {
    Quiet const quiet;
    auto const whole = flat(list[0]);
    for (int i = 0; i < size_; ++i) {
      auto const& part = list[static_cast<std::size_t>(i)];
      kept.push_back(part);
      whole.select(0, i).copy_(part.reshape(-1));
    }
    return whole;
  }
  // When the calls are done, `data` is what the tensor gets; it is a result.
  void arrive(at::Tensor const& tensor, at::Tensor const& data) {
    if (!data.is_same(tensor)) copies.emplace_back(tensor, data);
    results.push_back(tensor);
  }
  void spread(Tensors const& list, at::Tensor const& whole) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      copies.emplace_back(list[i], whole.select(0, static_cast<int64_t>(i)).view(list[i].sizes()));
    }
  }
  // Any elements, as bytes.
  void move(Collective collective, at::Tensor const& in, at::Tensor const& out, int64_t count, int root = 0) {
    if (count == 0) return;
    auto const size = in.defined() ? in.element_size() : out.element_size();
    calls.push_back({.collective = collective,
                     .in = in.defined() ? in.data_ptr() : nullptr,
                     .out = out.defined() ? out.data_ptr() : nullptr,
                     .count = static_cast<std::size_t>(count * size),
                     .root = root});
  }
  // Numbers.
  void combine(Collective collective, at::Tensor const& in, at::Tensor const& out, int64_t count,
               c10d::ReduceOp const& op, int root = 0) {
    if (in.is_complex()) {
      TORCH_CHECK_VALUE(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG, backendName,
                        ": complex numbers can be summed and averaged only");
      return combine(collective, at::view_as_real(in), at::view_as_real(out), 2 * count, op, root);
    }
    auto const type = dataTypeOf(in.scalar_type());
    TORCH_CHECK_TYPE(type, backendName, ": elements of ", in.scalar_type(), " cannot be combined");
    if (count == 0) return;
    nccl::Operation call{.collective = collective,
                         .in = in.data_ptr(),
                         .out = out.data_ptr(),
                         .count = static_cast<std::size_t>(count),
                         .type = *type,
                         .root = root};
    setOperation(call, in, op);
    calls.push_back(call);
  }
  void message(nccl::Work work, at::Tensor const& data, int peer) {
    TORCH_CHECK_VALUE(peer >= 0 && peer < size_, backendName, ": a message with rank ", peer, "; there are ranks 0 to ",
                      size_ - 1);
    bool const sends = work == nccl::Work::send;
    calls.push_back({.work = work,
                     .in = sends ? data.data_ptr() : nullptr,
                     .out = sends ? nullptr : data.data_ptr(),
                     .count = static_cast<std::size_t>(data.numel() * data.element_size()),
                     .root = peer});
  }
  // Part p to rank p. Of a pair both ranks leave out what is empty.
  void exchange(Tensors const& ins, Tensors const& outs) {
    for (int peer = 0; peer < size_; ++peer) {
      auto const& in = ins[static_cast<std::size_t>(peer)];
      auto const& out = outs[static_cast<std::size_t>(peer)];
      TORCH_CHECK_TYPE(in.scalar_type() == out.scalar_type(), backendName, ": all_to_all of ", in.scalar_type(),
                       " into ", out.scalar_type());
      if (in.numel() != 0) message(nccl::Work::send, in, peer);
      if (out.numel() != 0) message(nccl::Work::recv, out, peer);
    }
  }

  // What another one does, too.
  void append(TensorCall const& other) {
    auto const join = [](auto& to, auto const& from) { to.insert(to.end(), from.begin(), from.end()); };
    join(shown, other.shown);
    join(calls, other.calls);
    join(kept, other.kept);
    join(copies, other.copies);
    join(results, other.results);
  }

 private:
  static void usable(at::Tensor const& tensor) {
    TORCH_CHECK_VALUE(!tensor.is_sparse(), backendName, ": sparse tensors cannot be used");
    TORCH_CHECK_VALUE(tensor.is_cpu() || tensor.is_contiguous(tensor.suggest_memory_format()), backendName,
                      ": tensors must be contiguous; sizes ", tensor.sizes(), ", strides ", tensor.strides());
  }
  // Memory of the device of that many elements, in one dimension or as `sizes`.
  at::Tensor memory(at::IntArrayRef sizes, at::TensorOptions const& options) {
    auto const like = options.requires_grad(false);
    if (!options.device().is_cpu()) return at::empty(sizes, like);
    auto const bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * like.dtype().itemsize();
    auto const held = (*allocate_)(std::max<std::size_t>(bytes, 1));
    return at::from_blob(
        held.get(), sizes, [held](void*) {}, like);
  }
  void setOperation(nccl::Operation& call, at::Tensor const& in, c10d::ReduceOp const& op) {
    bool const isBool = in.scalar_type() == at::kBool;
    switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
      case c10d::ReduceOp::SUM:
        call.op = isBool ? ReduceOp::max : ReduceOp::sum;
        return;
      case c10d::ReduceOp::PRODUCT:
        call.op = isBool ? ReduceOp::min : ReduceOp::prod;
        return;
      case c10d::ReduceOp::MIN:
        call.op = ReduceOp::min;
        return;
      case c10d::ReduceOp::MAX:
        call.op = ReduceOp::max;
        return;
      case c10d::ReduceOp::AVG:
        TORCH_CHECK_VALUE(!isBool, backendName, ": booleans have no average");
        call.op = ReduceOp::avg;
        return;
      case c10d::ReduceOp::BAND:
      case c10d::ReduceOp::BOR:
        TORCH_CHECK_VALUE(isBool, backendName, ": bits cannot be combined, but of booleans");
        call.op = op == c10d::ReduceOp::BAND ? ReduceOp::min : ReduceOp::max;
        return;
      case c10d::ReduceOp::PREMUL_SUM:
        break;
      default:
        TORCH_CHECK_VALUE(false, backendName, ": bits cannot be combined");
    }
    auto const* const with = static_cast<c10d::NCCLPreMulSumSupplement const*>(op.supplement_.get());
    call.op = ReduceOp::sum;
    if (with->tensor_factor.defined() && with->tensor_factor.is_cuda()) {
      TORCH_CHECK_TYPE(with->tensor_factor.scalar_type() == in.scalar_type(), backendName, ": a factor of ",
                       with->tensor_factor.scalar_type(), " for elements of ", in.scalar_type());
      call.factor = nccl::Factor{.type = call.type, .device = with->tensor_factor.const_data_ptr()};
      kept.push_back(with->tensor_factor);
      return;
    }
    auto const value = with->tensor_factor.defined() ? with->tensor_factor.to(in.scalar_type())
                                                     : at::scalar_tensor(with->double_factor, in.scalar_type());
    call.factor = nccl::Factor{.type = call.type};
    std::memcpy(call.factor->value.data(), value.const_data_ptr(), value.element_size());
  }

  int size_;
  Allocate const* allocate_;
};

}  // namespace mscclpp::torch
