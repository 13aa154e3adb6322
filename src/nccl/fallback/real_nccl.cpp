// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl/fallback/real_nccl.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>

#include "base/file_handle.hpp"
#include "base/format.hpp"
#include "mscclpp/host/env.hpp"
#include "nccl/result.hpp"

namespace mscclpp::nccl {
namespace {

// In memory.
FileHandle copyOf(std::string const& path) {
  FileHandle const from(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  FileHandle to(::memfd_create("mscclpp-nccl", MFD_CLOEXEC));
  ssize_t sent = from && to ? 1 : -1;
  while (sent > 0) sent = ::sendfile(to.get(), from.get(), nullptr, std::size_t{1} << 30);
  if (sent < 0) throwSystemError(fmt::format("copy MSCCLPP_NCCL_LIB_PATH=\"{}\" into memory", path), errno);
  return to;
}

class Library {
 public:
  explicit Library(std::string path) : path_(std::move(path)) {
    auto file = path_;
    FileHandle copy;
    // The process may have it already, as PyTorch does. Then its calls of its own functions lead here, where this
    // library came first, and a file is loaded once: so a copy of it is.
    if (void* const there = ::dlopen(path_.c_str(), RTLD_NOW | RTLD_NOLOAD)) {
      refuseItself(there);
      ::dlclose(there);
      copy = copyOf(path_);
      file = fmt::format("/proc/self/fd/{}", copy.get());
      log(LogLevel::info, "{} is loaded once more, since the program's own use of it leads to this library", path_);
    }
    // Its calls of its own functions stay within it, whatever has been loaded before.
    handle_ = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (handle_ == nullptr) refuse(ncclInvalidUsage, "MSCCLPP_NCCL_LIB_PATH=\"{}\": {}", path_, ::dlerror());
    refuseItself(handle_);
  }

  template <class F>
  void bind(F*& function, char const* name, bool optional = false) const {
    function = reinterpret_cast<F*>(::dlsym(handle_, name));
    if (function == nullptr && !optional) {
      refuse(ncclInvalidUsage, "MSCCLPP_NCCL_LIB_PATH=\"{}\" has no {}; name NVIDIA's libnccl.so.2", path_, name);
    }
  }

  std::string const& path() const { return path_; }

 private:
  // The shared object or program that has what is there.
  static void const* objectOf(void const* address) {
    Dl_info found{};
    return address != nullptr && ::dladdr(address, &found) != 0 ? found.dli_fbase : nullptr;
  }
  void refuseItself(void* handle) const {
    static char const here = 0;
    auto const own = objectOf(&here);
    if (own == nullptr || objectOf(::dlsym(handle, "pncclGetVersion")) != own) return;
    refuse(ncclInvalidUsage, "MSCCLPP_NCCL_LIB_PATH=\"{}\" is this library itself; name NVIDIA's", path_);
  }

  std::string path_;
  void* handle_ = nullptr;  // never closed: it may have threads
};

RealNccl load(std::string const& path) {
  Library const library(path);
  RealNccl real{};
  decltype(&ncclGetVersion) getVersion = nullptr;
  library.bind(getVersion, "pncclGetVersion");
  library.bind(real.getUniqueId, "pncclGetUniqueId");
  library.bind(real.getLastError, "pncclGetLastError");
  library.bind(real.commInitRank, "pncclCommInitRank");
  library.bind(real.commDestroy, "pncclCommDestroy");
  library.bind(real.commAbort, "pncclCommAbort");
  library.bind(real.commGetAsyncError, "pncclCommGetAsyncError");
  library.bind(real.groupStart, "pncclGroupStart");
  library.bind(real.groupEnd, "pncclGroupEnd");
  library.bind(real.redOpCreatePreMulSum, "pncclRedOpCreatePreMulSum");
  library.bind(real.redOpDestroy, "pncclRedOpDestroy");
  library.bind(real.allReduce, "pncclAllReduce");
  library.bind(real.reduce, "pncclReduce");
  library.bind(real.reduceScatter, "pncclReduceScatter");
  library.bind(real.allGather, "pncclAllGather");
  library.bind(real.broadcast, "pncclBroadcast");
  library.bind(real.send, "pncclSend");
  library.bind(real.recv, "pncclRecv");
  constexpr bool optional = true;
  library.bind(real.allToAll, "pncclAlltoAll", optional);
  library.bind(real.gather, "pncclGather", optional);
  library.bind(real.scatter, "pncclScatter", optional);
  real.require(getVersion(&real.version), "ncclGetVersion");
  log(LogLevel::info, "NCCL {} of {} is there for what this library does not do", real.version, path);
  return real;
}

}  // namespace

RealNccl const* RealNccl::instance() {
  static std::unique_ptr<RealNccl const> const real = [] {
    auto const path = processVariable("MSCCLPP_NCCL_LIB_PATH").value_or("");
    return path.empty() ? nullptr : std::make_unique<RealNccl const>(load(path));
  }();
  return real.get();
}

void RealNccl::require(ncclResult_t result, char const* function) const {
  if (result == ncclSuccess) return;
  char const* const words = getLastError == nullptr ? "" : getLastError(nullptr);
  refuse(result, "NCCL's own {} failed: {}", function, words == nullptr ? "" : words);
}

Forced Forced::parse(std::string const& list) {
  Forced forced;
  std::string_view rest = list;
  while (!rest.empty()) {
    auto const end = rest.find(',');
    auto const name = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    if (name.empty()) continue;
    if (name == "all") {
      forced.bits_ = ~0u;
    } else if (name == "send" || name == "recv") {
      forced.bits_ |= 1u << static_cast<unsigned>(Collective::sendRecv);
    } else if (auto const collective = collectiveByName(name)) {
      forced.bits_ |= 1u << static_cast<unsigned>(*collective);
    } else {
      refuse(ncclInvalidUsage,
             "MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION=\"{}\": there is no {}; name allreduce, allgather, reducescatter, "
             "alltoall, broadcast, reduce, gather, scatter, send, or all",
             list, name);
    }
  }
  return forced;
}

Forced const& Forced::instance() {
  static Forced const forced = parse(processVariable("MSCCLPP_FORCE_NCCL_FALLBACK_OPERATION").value_or(""));
  return forced;
}

}  // namespace mscclpp::nccl
