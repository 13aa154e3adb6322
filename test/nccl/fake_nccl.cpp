// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stands in for NVIDIA's library behind this one: it counts its calls, and what it gives is a number of its own. As an
// NCCL of before 2.28, it has no all-to-all, gather and scatter.
#include "fake_nccl.hpp"

#include <algorithm>
#include <mutex>

namespace {

std::mutex mutex;
FakeCalls calls;
thread_local int depth = 0;

template <class F>
ncclResult_t count(F&& change) {
  std::lock_guard const lock(mutex);
  change();
  return ncclSuccess;
}

ncclResult_t give(void* out, std::size_t elements) {
  if (depth != 1) return ncclInvalidUsage;
  std::fill_n(static_cast<float*>(out), elements, fakeResult);
  return count([] { ++calls.collectives; });
}

}  // namespace

extern "C" {

FakeCalls fakeCalls() {
  std::lock_guard const lock(mutex);
  return calls;
}

ncclResult_t pncclGetVersion(int* version) {
  *version = 22700;
  return ncclSuccess;
}
ncclResult_t pncclGetUniqueId(ncclUniqueId* id) {
  *id = {"fake"};
  return ncclSuccess;
}
char const* pncclGetLastError(ncclComm_t) { return "the fake's words"; }
ncclResult_t pncclCommInitRank(ncclComm_t* comm, int, ncclUniqueId id, int rank) {
  if (id.internal[0] != 'f') return ncclInvalidArgument;
  *comm = reinterpret_cast<ncclComm_t>(new int(rank));
  return count([] { ++calls.made; });
}
ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  delete reinterpret_cast<int*>(comm);
  return count([] { ++calls.destroyed; });
}
ncclResult_t pncclCommAbort(ncclComm_t comm) {
  delete reinterpret_cast<int*>(comm);
  return count([] { ++calls.aborted; });
}
ncclResult_t pncclCommGetAsyncError(ncclComm_t, ncclResult_t* error) {
  *error = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t pncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t pncclGroupEnd() {
  --depth;
  return ncclSuccess;
}
ncclResult_t pncclRedOpCreatePreMulSum(int* op, void* scalar, int, int, ncclComm_t) {
  *op = 1000;
  return count([&] { calls.factor = *static_cast<float*>(scalar); });
}
ncclResult_t pncclRedOpDestroy(int op, ncclComm_t) { return op == 1000 ? ncclSuccess : ncclInvalidArgument; }
ncclResult_t pncclAllReduce(void const*, void* out, std::size_t elements, int, int, ncclComm_t, ncclStream) {
  return give(out, elements);
}
ncclResult_t pncclReduce(void const*, void* out, std::size_t elements, int, int op, int, ncclComm_t, ncclStream) {
  if (op != 1000) return ncclInvalidArgument;
  return out == nullptr ? ncclSuccess : give(out, elements);
}
ncclResult_t pncclReduceScatter(void const*, void* out, std::size_t elements, int, int, ncclComm_t, ncclStream) {
  return give(out, elements);
}
ncclResult_t pncclAllGather(void const*, void* out, std::size_t elements, int, ncclComm_t, ncclStream) {
  return give(out, 2 * elements);
}
ncclResult_t pncclBroadcast(void const*, void*, std::size_t, int, int, ncclComm_t, ncclStream) {
  return ncclSystemError;
}
ncclResult_t pncclSend(void const*, std::size_t, int, int, ncclComm_t, ncclStream) { return ncclSuccess; }
ncclResult_t pncclRecv(void* out, std::size_t elements, int, int, ncclComm_t, ncclStream) {
  return give(out, elements);
}
}
