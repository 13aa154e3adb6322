// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "sim/memory/fabric.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string>

#include <fmt/format.h>

#include "base/keyed_hash.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::sim {
namespace {

struct MemoryName {
  std::int64_t process;
  std::int64_t descriptor;
  std::uint64_t device;  // these tell the memory from another behind the same descriptor
  std::uint64_t node;
};
static_assert(sizeof(MemoryName) <= sizeof(FabricHandle));

MemoryName nameOf(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throwSystemError("cannot name simulated memory for other hosts", errno);
  return {::getpid(), descriptor, status.st_dev, status.st_ino};
}

}  // namespace

FabricClique simulatedClique() {
  auto const word = processVariable("MSCCLPP_SIM_FABRIC").value_or("");
  if (word.empty()) return {};
  FabricClique clique{.clique = 1};
  auto const hash = keyedHash(Key128{}, std::as_bytes(std::span(word)));
  std::memcpy(clique.cluster.data(), &hash, sizeof hash);
  clique.cluster.back() = 1;  // never all zero
  return clique;
}

FabricHandle nameMemory(int descriptor) {
  auto const name = nameOf(descriptor);
  FabricHandle handle{};
  std::memcpy(handle.data(), &name, sizeof name);
  return handle;
}

FileHandle openMemory(FabricHandle const& handle) {
  MemoryName name{};
  std::memcpy(&name, handle.data(), sizeof name);
  auto const path = fmt::format("/proc/{}/fd/{}", name.process, name.descriptor);
  auto file = FileHandle::own([&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC); });
  if (!file) {
    throw Error(
        ErrorCode::remoteError,
        fmt::format("simulated memory of process {} on another host cannot be opened ({}: {}); it has been freed, "
                    "or its process has ended, runs as another user or in another pid namespace",
                    name.process, path, std::strerror(errno)));
  }
  auto const found = nameOf(file.get());
  if (found.device != name.device || found.node != name.node) {
    throw Error(
        ErrorCode::remoteError,
        fmt::format("simulated memory of process {} on another host has been freed; keep its RegisteredMemory until "
                    "all have mapped it",
                    name.process));
  }
  return file;
}

}  // namespace mscclpp::sim
