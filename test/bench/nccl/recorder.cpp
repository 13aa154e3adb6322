// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Has the names of NCCL's library and writes down how it is called, so that the calls can be tested without GPUs. With
// RECORD_OLD_NCCL it lacks what came with 2.27 and 2.28. The signatures are those of nccl.h.
#include <array>
#include <cstddef>
#include <sstream>
#include <string>

namespace {

using Id = std::array<std::byte, 128>;

std::string& record() {
  static std::string text;
  return text;
}
int failing = 0;

template <class... Arguments>
int note(char const* name, Arguments... arguments) {
  std::ostringstream line;
  line << name;
  ((line << ' ' << arguments), ...);
  record() += line.str() + "\n";
  return failing;
}

// Buffers, streams and communicators are numbers here.
long number(void const* pointer) { return static_cast<long>(reinterpret_cast<std::size_t>(pointer)); }

}  // namespace

extern "C" {

char const* recordedCalls() { return record().c_str(); }
void forgetCalls() { record().clear(); }
void failFromNowOn(int result) { failing = result; }

char const* ncclGetErrorString(int result) { return result == 5 ? "invalid usage" : "other error"; }
int ncclGetUniqueId(Id* id) {
  id->fill(std::byte{7});
  return failing;
}
int ncclCommInitRank(void** comm, int ranks, Id id, int rank) {
  *comm = reinterpret_cast<void*>(std::size_t{900} + static_cast<std::size_t>(rank));
  return note("init", ranks, std::to_integer<int>(id[127]), rank);
}
int ncclCommDestroy(void* comm) { return note("destroy", number(comm)); }
int ncclCommAbort(void* comm) { return note("abort", number(comm)); }
int ncclGroupStart() { return note("{"); }
int ncclGroupEnd() { return note("}"); }

int ncclAllReduce(void const* in, void* out, std::size_t count, int type, int op, void* comm, void*) {
  return note("allReduce", number(in), number(out), count, type, op, number(comm));
}
int ncclReduceScatter(void const* in, void* out, std::size_t count, int type, int op, void* comm, void*) {
  return note("reduceScatter", number(in), number(out), count, type, op, number(comm));
}
int ncclAllGather(void const* in, void* out, std::size_t count, int type, void* comm, void*) {
  return note("allGather", number(in), number(out), count, type, number(comm));
}
int ncclBroadcast(void const* in, void* out, std::size_t count, int type, int root, void* comm, void*) {
  return note("broadcast", number(in), number(out), count, type, root, number(comm));
}
int ncclReduce(void const* in, void* out, std::size_t count, int type, int op, int root, void* comm, void*) {
  return note("reduce", number(in), number(out), count, type, op, root, number(comm));
}
int ncclSend(void const* from, std::size_t count, int type, int peer, void* comm, void*) {
  return note("send", number(from), count, type, peer, number(comm));
}
int ncclRecv(void* to, std::size_t count, int type, int peer, void* comm, void*) {
  return note("receive", number(to), count, type, peer, number(comm));
}

#if defined(RECORD_OLD_NCCL)
int ncclGetVersion(int* version) {
  *version = 22205;
  return 0;
}
#else
int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
int ncclAlltoAll(void const* in, void* out, std::size_t count, int type, void* comm, void*) {
  return note("allToAll", number(in), number(out), count, type, number(comm));
}
int ncclGather(void const* in, void* out, std::size_t count, int type, int root, void* comm, void*) {
  return note("gather", number(in), number(out), count, type, root, number(comm));
}
int ncclScatter(void const* in, void* out, std::size_t count, int type, int root, void* comm, void*) {
  return note("scatter", number(in), number(out), count, type, root, number(comm));
}
int ncclMemAlloc(void** memory, std::size_t bytes) {
  *memory = reinterpret_cast<void*>(std::size_t{4096});
  return note("alloc", bytes);
}
int ncclMemFree(void* memory) { return note("free", number(memory)); }
// No window, and no error: this is how NCCL says that it has no symmetric memory. Here for odd sizes.
int ncclCommWindowRegister(void* comm, void* memory, std::size_t bytes, void** window, int flags) {
  *window = bytes % 2 == 0 ? reinterpret_cast<void*>(std::size_t{77}) : nullptr;
  return note("register", number(comm), number(memory), bytes, flags);
}
int ncclCommWindowDeregister(void* comm, void* window) { return note("deregister", number(comm), number(window)); }
#endif

}  // extern "C"
