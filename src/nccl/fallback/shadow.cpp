// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl/fallback/shadow.hpp"

#include <array>
#include <cstring>
#include <vector>

#include "nccl/machine.hpp"
#include "nccl/result.hpp"

namespace mscclpp::nccl {

Shadow::~Shadow() {
  if (auto* const comm = comm_.load()) {
    KeepDevice const keep(communicator_.device());
    (void)real_.commDestroy(comm);
  }
}

std::string Shadow::refusal(Collective collective) const {
  bool const missing = (collective == Collective::allToAll && real_.allToAll == nullptr) ||
                       (collective == Collective::gather && real_.gather == nullptr) ||
                       (collective == Collective::scatter && real_.scatter == nullptr);
  return missing ? fmt::format("NCCL {} has no {}", real_.version, nameOf(collective)) : "";
}

void Shadow::make() {
  if (comm_ != nullptr) return;
  auto const ranks = communicator_.size();
  auto const rank = communicator_.rank();
  struct Offer {
    ncclUniqueId id;
    int result;
  };
  std::vector<Offer> all(static_cast<std::size_t>(ranks));
  if (rank == 0) all[0].result = real_.getUniqueId(&all[0].id);
  communicator_.setup()->allGather(all.data(), sizeof(Offer));
  real_.require(static_cast<ncclResult_t>(all[0].result), "ncclGetUniqueId");
  ncclComm_t comm = nullptr;
  real_.require(real_.commInitRank(&comm, ranks, all[0].id, rank), "ncclCommInitRank");
  comm_ = comm;
}

void Shadow::start(std::span<Operation const> operations) {
  std::lock_guard const lock(mutex_);
  if (comm_ == nullptr) {
    for (auto const& operation : operations) {
      if (Stream::borrow(communicator_.device(), operation.stream).capturing()) {
        refuse(
            ncclInvalidUsage,
            "rank {}: {} goes to NCCL's own library, which cannot begin while a graph is captured; call it once before",
            communicator_.rank(), nameOf(operation.collective));
      }
    }
    make();
  }
  real_.require(real_.groupStart(), "ncclGroupStart");
  try {
    for (auto const& operation : operations) startOne(operation);
  } catch (...) {
    (void)real_.groupEnd();
    throw;
  }
  real_.require(real_.groupEnd(), "ncclGroupEnd");
}

void Shadow::startOne(Operation const& operation) const {
  auto* const comm = comm_.load();
  auto const& o = operation;
  int const type = numberOf(o.type);
  if (o.work != Work::collective) {
    auto const result = o.work == Work::send ? real_.send(o.in, o.count, type, o.root, comm, o.stream)
                                             : real_.recv(o.out, o.count, type, o.root, comm, o.stream);
    return real_.require(result, o.work == Work::send ? "ncclSend" : "ncclRecv");
  }
  int op = numberOf(o.op);
  if (o.factor) {
    auto const& factor = *o.factor;
    bool const onDevice = factor.device != nullptr;
    auto value = factor.value;
    void* const scalar = onDevice ? const_cast<void*>(factor.device) : value.data();
    real_.require(
        real_.redOpCreatePreMulSum(&op, scalar, type, onDevice ? ncclScalarDevice : ncclScalarHostImmediate, comm),
        "ncclRedOpCreatePreMulSum");
  }
  auto const result = [&] {
    switch (o.collective) {
      case Collective::allReduce:
        return real_.allReduce(o.in, o.out, o.count, type, op, comm, o.stream);
      case Collective::reduce:
        return real_.reduce(o.in, o.out, o.count, type, op, o.root, comm, o.stream);
      case Collective::reduceScatter:
        return real_.reduceScatter(o.in, o.out, o.count, type, op, comm, o.stream);
      case Collective::allGather:
        return real_.allGather(o.in, o.out, o.count, type, comm, o.stream);
      case Collective::broadcast:
        return real_.broadcast(o.in, o.out, o.count, type, o.root, comm, o.stream);
      case Collective::allToAll:
        return real_.allToAll(o.in, o.out, o.count, type, comm, o.stream);
      case Collective::gather:
        return real_.gather(o.in, o.out, o.count, type, o.root, comm, o.stream);
      case Collective::scatter:
        return real_.scatter(o.in, o.out, o.count, type, o.root, comm, o.stream);
      default:
        return ncclInternalError;
    }
  }();
  // It has been copied by the call.
  if (o.factor) (void)real_.redOpDestroy(op, comm);
  real_.require(result, std::string(nameOf(o.collective)).c_str());
}

void Shadow::abort() noexcept {
  if (auto* const comm = comm_.exchange(nullptr)) (void)real_.commAbort(comm);
}

ncclResult_t Shadow::asyncError() {
  auto* const comm = comm_.load();
  auto error = ncclSuccess;
  if (comm != nullptr && real_.commGetAsyncError(comm, &error) != ncclSuccess) error = ncclInternalError;
  return error;
}

}  // namespace mscclpp::nccl
