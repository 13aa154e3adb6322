// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stands in for NVIDIA's library behind this one: it counts its calls, and what it gives is a number of its own. As an
// NCCL of before 2.28, it has no all-to-all, gather and scatter. As NVIDIA's it calls functions of its own by names
// that others may have taken.
#include "fake_nccl.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>

extern "C" ncclResult_t ncclGetVersion(int* version);
extern "C" ncclResult_t pncclGetVersion(int* version);

namespace {

constexpr int ownVersion = 22700;

struct State {
  std::mutex mutex;
  FakeCalls calls;

  // One for all copies of this library in a process: the first leaves word of its own.
  static State& instance() {
    static State& state = [&]() -> State& {
      if (char const* const text = std::getenv("TEST_FAKE_NCCL_STATE"))
        return *reinterpret_cast<State*>(std::stoull(text));
      auto* const made = new State;
      ::setenv("TEST_FAKE_NCCL_STATE", std::to_string(reinterpret_cast<std::uintptr_t>(made)).c_str(), 1);
      return *made;
    }();
    return state;
  }
};
thread_local int depth = 0;

template <class F>
ncclResult_t count(F&& change) {
  auto& [mutex, calls] = State::instance();
  std::lock_guard const lock(mutex);
  change(calls);
  return ncclSuccess;
}

ncclResult_t give(void* out, std::size_t elements) {
  int version = 0;
  (void)ncclGetVersion(&version);
  if (version != ownVersion) return ncclInvalidArgument;
  if (depth != 1) return ncclInvalidUsage;
  std::fill_n(static_cast<float*>(out), elements, fakeResult);
  return count([](FakeCalls& calls) { ++calls.collectives; });
}

}  // namespace

extern "C" {

FakeCalls fakeCalls() {
  FakeCalls result;
  (void)count([&](FakeCalls const& calls) { result = calls; });
  return result;
}

ncclResult_t ncclGetVersion(int* version) { return pncclGetVersion(version); }
ncclResult_t pncclGetVersion(int* version) {
  *version = ownVersion;
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
  return count([](FakeCalls& calls) { ++calls.made; });
}
ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  delete reinterpret_cast<int*>(comm);
  return count([](FakeCalls& calls) { ++calls.destroyed; });
}
ncclResult_t pncclCommAbort(ncclComm_t comm) {
  delete reinterpret_cast<int*>(comm);
  return count([](FakeCalls& calls) { ++calls.aborted; });
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
  return count([&](FakeCalls& calls) { calls.factor = *static_cast<float*>(scalar); });
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
