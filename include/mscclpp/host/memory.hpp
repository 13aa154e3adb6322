// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory of some rank that kernels of this rank's device or its proxies can use: the own memory, or a peer's.
//
// A rank registers its memory (Communicator::registerMemory) and hands it to others (sendMemory, exchangeMemory, or the
// bytes of serialize() by any other way). The receiver gets the same bytes of memory under an address of its own. How:
//   same process   the pointer itself, with peer access enabled where the devices differ
//   same host      the runtime's IPC handle, or the file descriptor of virtual memory, handed over a unix socket
//   same domain    memory of other hosts that NVLink joins (docs/networks.md): a fabric handle, which only
//                  MemoryKind::shareable has on a GPU
//   other hosts    not mapped, so data() throws; a proxy's connection reaches it by a transport that both registered
// The copies of one RegisteredMemory share its mapping, which ends with the last of them. The memory itself belongs to
// whoever allocated it and must outlive every use here and at the peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "mscclpp/host/device.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/transport_set.hpp"

namespace mscclpp {

class Registration;
class TransportContext;

// How memory is known here: as this rank's own, by a pointer of this process, an IPC handle or a descriptor of this
// host, not mapped, or by a fabric handle of another host.
enum class MemoryReach : std::uint8_t { own, sameProcess, ipc, descriptor, otherHost, fabric };
std::string_view nameOf(MemoryReach reach) noexcept;

class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  // The own memory of `rank`. Throws invalidUsage where the range is not inside one allocation of `device`.
  static RegisteredMemory own(int rank, Device device, void* pointer, std::size_t bytes);
  // Also registered with these transports, which peers may then use.
  static RegisteredMemory own(int rank, Device device, void* pointer, std::size_t bytes,
                              std::span<std::shared_ptr<TransportContext> const> transports);

  explicit operator bool() const noexcept { return impl_ != nullptr; }
  // These throw invalidUsage on an empty object.
  std::byte* data() const;    // for kernels; throws unsupported where the memory is on another host
  std::byte* mapped() const;  // for copies of the machine, which may reach more; throws unsupported where they cannot
  std::size_t size() const;
  int rank() const;       // that owns the memory
  Device device() const;  // on which data() is valid
  MemoryReach reach() const;

  // Ways for proxies: what the owner has registered it with. Mapped memory has Transport::memory without registration.
  TransportSet transports() const;
  // What the owner's registration says to peers. Throws invalidUsage where it is not registered for that.
  std::span<std::byte const> key(Transport transport) const;
  // Only of the own memory; throws invalidUsage otherwise.
  Registration& registration(Transport transport) const;

  // Only of the own memory. `forOtherProcesses` false leaves out what only they need, which is cheaper.
  std::vector<std::byte> serialize(bool forOtherProcesses = true) const;
  // Maps what serialize() wrote for use on `device`. Throws invalidUsage for other bytes, remoteError where the memory
  // is no longer registered or its process has ended, unsupported where neither `device` nor a transport can reach it.
  static RegisteredMemory deserialize(std::span<std::byte const> bytes, Device device);

 private:
  struct Impl;
  explicit RegisteredMemory(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  Impl const& get() const;

  std::shared_ptr<Impl> impl_;
};

}  // namespace mscclpp
