// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/net/host_identity.hpp"

#include <unistd.h>

#include <fstream>
#include <mutex>
#include <string>

#include "base/keyed_hash.hpp"

namespace mscclpp {

std::uint64_t hostIdentity() {
  static std::uint64_t const identity = [] {
    std::string text;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
    if (text.empty()) {
      char name[256] = {};
      ::gethostname(name, sizeof name - 1);
      text = name;
    }
    char space[64] = {};
    if (::readlink("/proc/self/ns/net", space, sizeof space - 1) > 0) text += space;
    return keyedHash(Key128{}, std::as_bytes(std::span(text)));
  }();
  return identity;
}

Key128 processIdentity() {
  static std::mutex mutex;
  static Key128 identity{};
  static ::pid_t owner = -1;
  std::lock_guard const lock(mutex);
  if (owner != ::getpid()) {
    identity = randomKey();
    owner = ::getpid();
  }
  return identity;
}

}  // namespace mscclpp
