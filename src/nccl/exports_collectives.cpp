// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives, messages, groups, and operations of a communicator's own.
#include <cstring>
#include <optional>

#include "mscclpp/algorithms/core/traits.hpp"
#include "nccl/exports.hpp"
#include "nccl/handle.hpp"

namespace mscclpp::nccl {
namespace {

// With the factor where the operation is one that a communicator has made.
void setOperation(Comm const& comm, int op, Operation& operation) {
  auto const builtIn = builtInOperation(op);
  operation.op = builtIn.value_or(ReduceOp::sum);
  if (builtIn) return;
  operation.factor = comm.factor(op);
  if (operation.factor->type != operation.type) {
    refuse(ncclInvalidArgument, "rank {}: operation {} multiplies elements of {}, but the call has {}", comm.rank(), op,
           nameOf(operation.factor->type), nameOf(operation.type));
  }
}

struct Arguments {
  void const* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  int type = 0;
  std::optional<int> op{};
  int root = 0;
};

ncclResult_t start(char const* function, Work work, Collective collective, Arguments const& with, ncclComm_t comm,
                   ncclStream stream) noexcept {
  return grouped(function, [&] {
    auto const to = Handle::of(comm).comm();
    Operation operation{.work = work,
                        .collective = collective,
                        .in = with.in,
                        .out = with.out,
                        .count = with.count,
                        .type = typeOf(with.type),
                        .root = with.root,
                        .stream = stream};
    if (with.op) setOperation(*to, *with.op, operation);
    enqueue(to, operation);
    return ncclSuccess;
  });
}

ncclResult_t startCollective(char const* function, Collective collective, Arguments const& with, ncclComm_t comm,
                             ncclStream stream) noexcept {
  return start(function, Work::collective, collective, with, comm, stream);
}

}  // namespace
}  // namespace mscclpp::nccl

using namespace mscclpp;
using namespace mscclpp::nccl;

extern "C" {

ncclResult_t pncclAllReduce(void const* in, void* out, std::size_t count, int type, int op, ncclComm_t comm,
                            ncclStream stream) {
  return startCollective("ncclAllReduce", Collective::allReduce, {in, out, count, type, op}, comm, stream);
}

ncclResult_t pncclReduce(void const* in, void* out, std::size_t count, int type, int op, int root, ncclComm_t comm,
                         ncclStream stream) {
  return startCollective("ncclReduce", Collective::reduce, {in, out, count, type, op, root}, comm, stream);
}

ncclResult_t pncclReduceScatter(void const* in, void* out, std::size_t count, int type, int op, ncclComm_t comm,
                                ncclStream stream) {
  return startCollective("ncclReduceScatter", Collective::reduceScatter, {in, out, count, type, op}, comm, stream);
}

ncclResult_t pncclAllGather(void const* in, void* out, std::size_t count, int type, ncclComm_t comm,
                            ncclStream stream) {
  return startCollective("ncclAllGather", Collective::allGather, {in, out, count, type}, comm, stream);
}

ncclResult_t pncclAlltoAll(void const* in, void* out, std::size_t count, int type, ncclComm_t comm, ncclStream stream) {
  return startCollective("ncclAlltoAll", Collective::allToAll, {in, out, count, type}, comm, stream);
}

ncclResult_t pncclBroadcast(void const* in, void* out, std::size_t count, int type, int root, ncclComm_t comm,
                            ncclStream stream) {
  return startCollective("ncclBroadcast", Collective::broadcast, {in, out, count, type, {}, root}, comm, stream);
}

ncclResult_t pncclBcast(void* data, std::size_t count, int type, int root, ncclComm_t comm, ncclStream stream) {
  return startCollective("ncclBcast", Collective::broadcast, {data, data, count, type, {}, root}, comm, stream);
}

ncclResult_t pncclGather(void const* in, void* out, std::size_t count, int type, int root, ncclComm_t comm,
                         ncclStream stream) {
  return startCollective("ncclGather", Collective::gather, {in, out, count, type, {}, root}, comm, stream);
}

ncclResult_t pncclScatter(void const* in, void* out, std::size_t count, int type, int root, ncclComm_t comm,
                          ncclStream stream) {
  return startCollective("ncclScatter", Collective::scatter, {in, out, count, type, {}, root}, comm, stream);
}

ncclResult_t pncclSend(void const* data, std::size_t count, int type, int peer, ncclComm_t comm, ncclStream stream) {
  return start("ncclSend", Work::send, Collective::sendRecv, {data, nullptr, count, type, {}, peer}, comm, stream);
}

ncclResult_t pncclRecv(void* data, std::size_t count, int type, int peer, ncclComm_t comm, ncclStream stream) {
  return start("ncclRecv", Work::recv, Collective::sendRecv, {nullptr, data, count, type, {}, peer}, comm, stream);
}

ncclResult_t pncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int residence, ncclComm_t comm) {
  return guarded("ncclRedOpCreatePreMulSum", [&] {
    auto const to = Handle::of(comm).comm();
    if (op == nullptr || scalar == nullptr) refuse(ncclInvalidArgument, "a null pointer");
    Factor factor{.type = typeOf(type)};
    if (residence == ncclScalarHostImmediate) {
      std::memcpy(factor.value.data(), scalar, bytesOf(factor.type));
    } else if (residence == ncclScalarDevice) {
      factor.device = scalar;
    } else {
      refuse(ncclInvalidArgument, "a scalar's place is {} or {}, not {}", int{ncclScalarDevice},
             int{ncclScalarHostImmediate}, residence);
    }
    *op = to->addFactor(factor);
    return ncclSuccess;
  });
}

ncclResult_t pncclRedOpDestroy(int op, ncclComm_t comm) {
  return guarded("ncclRedOpDestroy", [&] {
    Handle::of(comm).comm()->removeFactor(op);
    return ncclSuccess;
  });
}

ncclResult_t pncclGroupStart() {
  groupStart();
  return ncclSuccess;
}

ncclResult_t pncclGroupEnd() { return guarded("ncclGroupEnd", groupEnd); }
}

MSCCLPP_NCCL_FUNCTION(ncclAllReduce);
MSCCLPP_NCCL_FUNCTION(ncclReduce);
MSCCLPP_NCCL_FUNCTION(ncclReduceScatter);
MSCCLPP_NCCL_FUNCTION(ncclAllGather);
MSCCLPP_NCCL_FUNCTION(ncclAlltoAll);
MSCCLPP_NCCL_FUNCTION(ncclBroadcast);
MSCCLPP_NCCL_FUNCTION(ncclBcast);
MSCCLPP_NCCL_FUNCTION(ncclGather);
MSCCLPP_NCCL_FUNCTION(ncclScatter);
MSCCLPP_NCCL_FUNCTION(ncclSend);
MSCCLPP_NCCL_FUNCTION(ncclRecv);
MSCCLPP_NCCL_FUNCTION(ncclRedOpCreatePreMulSum);
MSCCLPP_NCCL_FUNCTION(ncclRedOpDestroy);
MSCCLPP_NCCL_FUNCTION(ncclGroupStart);
MSCCLPP_NCCL_FUNCTION(ncclGroupEnd);
