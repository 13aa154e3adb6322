// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives, messages, groups, and operations of a communicator's own.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "mscclpp/algorithms/core/traits.hpp"
#include "nccl/exports/exports.hpp"
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

template <class Make>
ncclResult_t startOneSided(char const* function, unsigned flags, ncclComm_t comm, Make make) noexcept {
  return grouped(function, [&] {
    auto const to = Handle::of(comm).comm();
    if (flags != 0) refuse(ncclInvalidArgument, "rank {}: flags {:#x}; there are none yet, give 0", to->rank(), flags);
    OneSided const operation = make();
    enqueue(to, std::span(&operation, 1));
    return ncclSuccess;
  });
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

ncclResult_t pncclPutSignal(void const* data, std::size_t count, int type, int peer, ncclWindow_t window,
                            std::size_t offset, int signal, int context, unsigned flags, ncclComm_t comm,
                            ncclStream stream) {
  return startOneSided("ncclPutSignal", flags, comm, [&] {
    return OneSided{.kind = OneSided::Kind::put,
                    .in = data,
                    .bytes = count * bytesOf(typeOf(type)),
                    .window = window,
                    .offset = offset,
                    .signal = {peer, signal, context},
                    .stream = stream};
  });
}

ncclResult_t pncclSignal(int peer, int signal, int context, unsigned flags, ncclComm_t comm, ncclStream stream) {
  return startOneSided("ncclSignal", flags, comm, [&] {
    return OneSided{.kind = OneSided::Kind::signal, .signal = {peer, signal, context}, .stream = stream};
  });
}

ncclResult_t pncclWaitSignal(int count, ncclWaitSignalDesc_t* waits, ncclComm_t comm, ncclStream stream) {
  return grouped("ncclWaitSignal", [&] {
    auto const to = Handle::of(comm).comm();
    if (count < 0 || (waits == nullptr && count != 0)) refuse(ncclInvalidArgument, "{} waits", count);
    std::vector<OneSided> all;
    for (auto const& wait : std::span(waits, static_cast<std::size_t>(count))) {
      all.push_back({.kind = OneSided::Kind::wait,
                     .signal = {wait.peer, wait.sigIdx, wait.ctx},
                     .count = static_cast<std::uint64_t>(std::max(wait.opCnt, 0)),
                     .stream = stream});
    }
    enqueue(to, all);
    return ncclSuccess;
  });
}

ncclResult_t pncclGroupStart() {
  groupStart();
  return ncclSuccess;
}

ncclResult_t pncclGroupEnd() { return guarded("ncclGroupEnd", groupEnd); }

// What was in the group is dropped.
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* info) {
  return guarded("ncclGroupSimulateEnd", [&] {
    bool const fits = info == nullptr || info->size >= offsetof(ncclSimInfo_t, estimatedTime) + sizeof(float);
    if (!fits || (info != nullptr && info->magic != simInfoMagic)) {
      spoilGroup(ncclInvalidArgument);
      (void)groupEnd();
      refuse(ncclInvalidArgument, "a place for times that was not begun with NCCL_SIM_INFO_INITIALIZER");
    }
    double seconds = 0;
    auto const result = groupSimulateEnd(seconds);
    if (result == ncclSuccess && info != nullptr) info->estimatedTime = static_cast<float>(1e6 * seconds);
    return result;
  });
}
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
MSCCLPP_NCCL_FUNCTION(ncclGroupSimulateEnd);
MSCCLPP_NCCL_FUNCTION(ncclPutSignal);
MSCCLPP_NCCL_FUNCTION(ncclSignal);
MSCCLPP_NCCL_FUNCTION(ncclWaitSignal);
