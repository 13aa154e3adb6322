// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl_peer.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

#include "mscclpp/host/error.hpp"

namespace mscclpp::bench {
namespace {

// The values that NCCL's public interface gives to types and operations; they do not change between versions.
int codeOf(ElementType type) {
  switch (type) {
    case ElementType::int8:
      return 0;
    case ElementType::uint8:
      return 1;
    case ElementType::int32:
      return 2;
    case ElementType::uint32:
      return 3;
    case ElementType::int64:
      return 4;
    case ElementType::uint64:
      return 5;
    case ElementType::float16:
      return 6;
    case ElementType::float32:
      return 7;
    case ElementType::float64:
      return 8;
    case ElementType::bfloat16:
      return 9;
    case ElementType::float8E4M3:
      return 10;
    case ElementType::float8E5M2:
      break;
  }
  return 11;
}

int codeOf(Operation operation) {
  switch (operation) {
    case Operation::sum:
      return 0;
    case Operation::prod:
      return 1;
    case Operation::max:
      return 2;
    case Operation::min:
      return 3;
    case Operation::avg:
      break;
  }
  return 4;
}

}  // namespace

struct NcclLibrary::Functions {
  void* library = nullptr;
  int version = 0;
  int (*getVersion)(int*) = nullptr;
  int (*getUniqueId)(UniqueId*) = nullptr;
  int (*commInitRank)(void**, int, UniqueId, int) = nullptr;
  int (*allReduce)(void const*, void*, std::size_t, int, int, void*, void*) = nullptr;
  int (*commDestroy)(void*) = nullptr;
  int (*commAbort)(void*) = nullptr;
  char const* (*getErrorString)(int) = nullptr;

  template <class F>
  void find(char const* name, F& function) const {
    function = reinterpret_cast<F>(::dlsym(library, name));
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
  f.find("ncclAllReduce", f.allReduce);
  f.find("ncclCommDestroy", f.commDestroy);
  f.find("ncclCommAbort", f.commAbort);
  f.find("ncclGetErrorString", f.getErrorString);
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

bool NcclLibrary::supports(ElementType type) const {
  bool const float8 = type == ElementType::float8E4M3 || type == ElementType::float8E5M2;
  return !float8 || functions_->version >= 22400;
}

NcclLibrary::UniqueId NcclLibrary::makeUniqueId() const {
  UniqueId id{};
  if (int const result = functions_->getUniqueId(&id); result != 0) {
    throw Error(ErrorCode::deviceError, fmt::format("ncclGetUniqueId: {}", functions_->getErrorString(result)));
  }
  return id;
}

NcclCommunicator::NcclCommunicator(NcclLibrary const& library, NcclLibrary::UniqueId const& id, int rank, int ranks)
    : nccl_(*library.functions_), rank_(rank) {
  check(nccl_.commInitRank(&communicator_, ranks, id, rank), "ncclCommInitRank");
}

NcclCommunicator::~NcclCommunicator() {
  if (communicator_ != nullptr) nccl_.commDestroy(communicator_);
}

void NcclCommunicator::allReduce(void const* in, void* out, std::size_t count, ElementType type, Operation operation,
                                 Stream const& stream) const {
  check(nccl_.allReduce(in, out, count, codeOf(type), codeOf(operation), communicator_, stream.native()),
        "ncclAllReduce");
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

}  // namespace mscclpp::bench
