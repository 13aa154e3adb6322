// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session/nccl_peer.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

#include "machine/over_ranks.hpp"
#include "mscclpp/host/error.hpp"
#include "plan/exchange.hpp"

namespace mscclpp::bench {
namespace {

constexpr int symmetricWindow = 1;  // NCCL_WIN_COLL_SYMMETRIC

// The values that NCCL's public interface gives to types and operations; they do not change between versions.
int codeOf(DataType type) {
  switch (type) {
    case DataType::int8:
      return 0;
    case DataType::uint8:
      return 1;
    case DataType::int32:
      return 2;
    case DataType::uint32:
      return 3;
    case DataType::int64:
      return 4;
    case DataType::uint64:
      return 5;
    case DataType::float16:
      return 6;
    case DataType::float32:
      return 7;
    case DataType::float64:
      return 8;
    case DataType::bfloat16:
      return 9;
    case DataType::float8E4M3:
      return 10;
    case DataType::float8E5M2:
      break;
  }
  return 11;
}

int codeOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return 0;
    case ReduceOp::prod:
      return 1;
    case ReduceOp::max:
      return 2;
    case ReduceOp::min:
      return 3;
    case ReduceOp::avg:
    case ReduceOp::none:
      break;
  }
  return 4;
}

}  // namespace

struct NcclLibrary::Functions {
  using Stream = void*;
  using Communicator = void*;

  void* library = nullptr;
  int version = 0;
  int (*getVersion)(int*) = nullptr;
  int (*getUniqueId)(UniqueId*) = nullptr;
  int (*commInitRank)(Communicator*, int, UniqueId, int) = nullptr;
  int (*commDestroy)(Communicator) = nullptr;
  int (*commAbort)(Communicator) = nullptr;
  char const* (*getErrorString)(int) = nullptr;

  int (*allReduce)(void const*, void*, std::size_t, int, int, Communicator, Stream) = nullptr;
  int (*reduceScatter)(void const*, void*, std::size_t, int, int, Communicator, Stream) = nullptr;
  int (*allGather)(void const*, void*, std::size_t, int, Communicator, Stream) = nullptr;
  int (*broadcast)(void const*, void*, std::size_t, int, int, Communicator, Stream) = nullptr;
  int (*reduce)(void const*, void*, std::size_t, int, int, int, Communicator, Stream) = nullptr;
  int (*send)(void const*, std::size_t, int, int, Communicator, Stream) = nullptr;
  int (*receive)(void*, std::size_t, int, int, Communicator, Stream) = nullptr;
  int (*groupStart)() = nullptr;
  int (*groupEnd)() = nullptr;

  // Null in older versions.
  int (*allToAll)(void const*, void*, std::size_t, int, Communicator, Stream) = nullptr;
  int (*gather)(void const*, void*, std::size_t, int, int, Communicator, Stream) = nullptr;
  int (*scatter)(void const*, void*, std::size_t, int, int, Communicator, Stream) = nullptr;
  int (*memAlloc)(void**, std::size_t) = nullptr;
  int (*memFree)(void*) = nullptr;
  int (*windowRegister)(Communicator, void*, std::size_t, void**, int) = nullptr;
  int (*windowDeregister)(Communicator, void*) = nullptr;

  template <class F>
  void findIfThere(char const* name, F& function) const {
    function = reinterpret_cast<F>(::dlsym(library, name));
  }
  template <class F>
  void find(char const* name, F& function) const {
    findIfThere(name, function);
    if (function == nullptr) throw Error(ErrorCode::unsupported, fmt::format("libnccl.so.2 has no {}", name));
  }
};

NcclLibrary::NcclLibrary() : functions_(std::make_unique<Functions>()) {
  auto& f = *functions_;
  f.library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (f.library == nullptr) {
    char const* const why = ::dlerror();
    throw Error(ErrorCode::unsupported,
                fmt::format("NCCL cannot be loaded ({}); install it, or name its folder in LD_LIBRARY_PATH",
                            why != nullptr ? why : "libnccl.so.2 not found"));
  }
  f.find("ncclGetVersion", f.getVersion);
  f.find("ncclGetUniqueId", f.getUniqueId);
  f.find("ncclCommInitRank", f.commInitRank);
  f.find("ncclCommDestroy", f.commDestroy);
  f.find("ncclCommAbort", f.commAbort);
  f.find("ncclGetErrorString", f.getErrorString);
  f.find("ncclAllReduce", f.allReduce);
  f.find("ncclReduceScatter", f.reduceScatter);
  f.find("ncclAllGather", f.allGather);
  f.find("ncclBroadcast", f.broadcast);
  f.find("ncclReduce", f.reduce);
  f.find("ncclSend", f.send);
  f.find("ncclRecv", f.receive);
  f.find("ncclGroupStart", f.groupStart);
  f.find("ncclGroupEnd", f.groupEnd);
  f.findIfThere("ncclAlltoAll", f.allToAll);
  f.findIfThere("ncclGather", f.gather);
  f.findIfThere("ncclScatter", f.scatter);
  f.findIfThere("ncclMemAlloc", f.memAlloc);
  f.findIfThere("ncclMemFree", f.memFree);
  f.findIfThere("ncclCommWindowRegister", f.windowRegister);
  f.findIfThere("ncclCommWindowDeregister", f.windowDeregister);
  if (int const result = f.getVersion(&f.version); result != 0) {
    throw Error(ErrorCode::deviceError, fmt::format("ncclGetVersion: {}", f.getErrorString(result)));
  }
}

// The library stays loaded: it has threads of its own, whose end nobody announces.
NcclLibrary::~NcclLibrary() = default;

std::string NcclLibrary::version() const {
  int const v = functions_->version;
  return v >= 10000 ? fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100)
                    : fmt::format("{}.{}.{}", v / 1000, v / 100 % 10, v % 100);
}

bool NcclLibrary::supports(DataType type) const {
  bool const float8 = type == DataType::float8E4M3 || type == DataType::float8E5M2;
  return !float8 || functions_->version >= 22400;
}

bool NcclLibrary::hasWindows() const {
  auto const& f = *functions_;
  return f.memAlloc != nullptr && f.memFree != nullptr && f.windowRegister != nullptr && f.windowDeregister != nullptr;
}

NcclLibrary::UniqueId NcclLibrary::makeUniqueId() const {
  UniqueId id{};
  if (int const result = functions_->getUniqueId(&id); result != 0) {
    throw Error(ErrorCode::deviceError, fmt::format("ncclGetUniqueId: {}", functions_->getErrorString(result)));
  }
  return id;
}

NcclCommunicator::NcclCommunicator(NcclLibrary const& library, NcclLibrary::UniqueId const& id, int rank, int ranks)
    : nccl_(*library.functions_), rank_(rank), ranks_(ranks) {
  check(nccl_.commInitRank(&communicator_, ranks, id, rank), "ncclCommInitRank");
}

NcclCommunicator::NcclCommunicator(NcclLibrary const& library, Bootstrap& bootstrap)
    : NcclCommunicator(
          library, gather(bootstrap, bootstrap.getRank() == 0 ? library.makeUniqueId() : NcclLibrary::UniqueId{})[0],
          bootstrap.getRank(), bootstrap.getNranks()) {}

NcclCommunicator::~NcclCommunicator() {
  if (communicator_ != nullptr) nccl_.commDestroy(communicator_);
}

void NcclCommunicator::start(NcclCall const& call, Stream const& stream) const {
  using enum Collective;
  auto* const queue = stream.native();
  int const type = codeOf(call.type);
  auto const* const in = static_cast<std::byte const*>(call.in);
  auto* const out = static_cast<std::byte*>(call.out);
  bool const isRoot = rank_ == call.root;
  switch (call.collective) {
    case allReduce:
      check(nccl_.allReduce(in, out, call.count, type, codeOf(call.op), communicator_, queue), "ncclAllReduce");
      return;
    case reduceScatter:
      check(nccl_.reduceScatter(in, out, call.count, type, codeOf(call.op), communicator_, queue), "ncclReduceScatter");
      return;
    case reduce:
      check(nccl_.reduce(in, out, call.count, type, codeOf(call.op), call.root, communicator_, queue), "ncclReduce");
      return;
    case allGather:
      check(nccl_.allGather(in, out, call.count, type, communicator_, queue), "ncclAllGather");
      return;
    case broadcast:
      check(nccl_.broadcast(in, out, call.count, type, call.root, communicator_, queue), "ncclBroadcast");
      return;
    case allToAll:
      if (nccl_.allToAll == nullptr) return exchange(call, in, out, nullptr, nullptr, queue);
      check(nccl_.allToAll(in, out, call.count, type, communicator_, queue), "ncclAlltoAll");
      return;
    case gather:
      if (nccl_.gather == nullptr) return exchange(call, nullptr, isRoot ? out : nullptr, in, nullptr, queue);
      check(nccl_.gather(in, out, call.count, type, call.root, communicator_, queue), "ncclGather");
      return;
    case scatter:
      if (nccl_.scatter == nullptr) return exchange(call, isRoot ? in : nullptr, nullptr, nullptr, out, queue);
      check(nccl_.scatter(in, out, call.count, type, call.root, communicator_, queue), "ncclScatter");
      return;
    case sendRecv:
      check(nccl_.groupStart(), "ncclGroupStart");
      check(nccl_.send(in, call.count, type, nextRank(rank_, ranks_), communicator_, queue), "ncclSend");
      check(nccl_.receive(out, call.count, type, previousRank(rank_, ranks_), communicator_, queue), "ncclRecv");
      check(nccl_.groupEnd(), "ncclGroupEnd");
      return;
    case barrier:
      break;
  }
  throw Error(ErrorCode::unsupported, fmt::format("NCCL is not asked for {} here", nameOf(call.collective)));
}

void NcclCommunicator::exchange(NcclCall const& call, std::byte const* toEach, std::byte* fromEach,
                                std::byte const* toRoot, std::byte* fromRoot, void* stream) const {
  int const type = codeOf(call.type);
  auto const part = call.count * bytesOf(call.type);
  check(nccl_.groupStart(), "ncclGroupStart");
  for (int peer = 0; peer < ranks_; ++peer) {
    auto const offset = static_cast<std::size_t>(peer) * part;
    if (toEach != nullptr) {
      check(nccl_.send(toEach + offset, call.count, type, peer, communicator_, stream), "ncclSend");
    }
    if (fromEach != nullptr) {
      check(nccl_.receive(fromEach + offset, call.count, type, peer, communicator_, stream), "ncclRecv");
    }
  }
  if (toRoot != nullptr) check(nccl_.send(toRoot, call.count, type, call.root, communicator_, stream), "ncclSend");
  if (fromRoot != nullptr)
    check(nccl_.receive(fromRoot, call.count, type, call.root, communicator_, stream), "ncclRecv");
  check(nccl_.groupEnd(), "ncclGroupEnd");
}

void NcclCommunicator::abort() noexcept {
  if (auto* const communicator = std::exchange(communicator_, nullptr); communicator != nullptr) {
    nccl_.commAbort(communicator);
  }
}

void NcclCommunicator::check(int result, char const* operation) const {
  if (result == 0) return;
  throw Error(ErrorCode::deviceError, fmt::format("rank {}: {}: {}; NCCL_DEBUG=WARN tells more", rank_, operation,
                                                  nccl_.getErrorString(result)));
}

NcclWindow::NcclWindow(NcclCommunicator const& communicator, std::size_t bytes) : communicator_(communicator) {
  auto const& nccl = communicator.nccl_;
  communicator.check(nccl.memAlloc(&memory_, bytes), "ncclMemAlloc");
  int const result = nccl.windowRegister(communicator.communicator_, memory_, bytes, &window_, symmetricWindow);
  if (result == 0 && window_ != nullptr) return;
  nccl.memFree(memory_);
  communicator.check(result, "ncclCommWindowRegister");
  // This is how it says that the ranks cannot reach each other's memory.
  throw Error(
      ErrorCode::unsupported,
      fmt::format("rank {}: ncclCommWindowRegister: NCCL has no symmetric memory here; leave nccl-symmetric out "
                  "of --peers, or see NCCL_CUMEM_ENABLE and NCCL_WIN_ENABLE",
                  communicator.rank_));
}

NcclWindow::~NcclWindow() {
  auto const& nccl = communicator_.nccl_;
  if (communicator_.communicator_ != nullptr) nccl.windowDeregister(communicator_.communicator_, window_);
  nccl.memFree(memory_);
}

}  // namespace mscclpp::bench
