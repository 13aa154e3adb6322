// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory of a rank that is made at its first use, by the rank itself or by a peer that maps it. The peer waits for the
// owner's process alone, which makes it whatever its program does: in one process the peer's own thread does so, else
// that of the owner's descriptor_server.hpp. It is not filled with anything, since that would wait for the device.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/random.hpp"
#include "mscclpp/host/memory.hpp"

namespace mscclpp {

class LateMemory {
 public:
  // Of `rank`, `bytes` at its first use. `alone`: nobody in other processes asks for it.
  LateMemory(int rank, Device device, std::size_t bytes, bool alone);
  // Nobody uses it any more.
  ~LateMemory();
  LateMemory(LateMemory const&) = delete;
  LateMemory& operator=(LateMemory const&) = delete;

  // By which peers ask for it.
  Key128 const& key() const noexcept { return key_; }
  // These from any thread.
  std::byte* data() const;
  std::size_t bytes() const;  // 0 until the first use

  // That of `key` in `process` (processIdentity() there), made where it was not. `who` says in errors whose it is.
  // Throws remoteError where the owner has ended, or could not make it; timeout past MSCCLPP_TIMEOUT.
  static RegisteredMemory map(Key128 const& process, Key128 const& key, Device device, std::string const& who);

 private:
  struct Made;
  std::shared_ptr<Made> made_;
  Key128 key_;
  bool alone_;
};

}  // namespace mscclpp
