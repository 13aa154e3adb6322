// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory of the same size on several ranks, mapped by all of them: what collectives without copies work in.
//
//   MemoryWindow window(communicator, buffer.data(), buffer.bytes());
//   launch(stream, shape, Kernel{}, ..., window.deviceHandle());      // SymmetricView in the kernel
//
// Making one is collective over its ranks, which all give memory of one size: any device memory of the rank's device,
// whoever has allocated it, from wherever in its allocation. That stays its owner's, and outlives the window and its
// parts; destroy these only when the kernels of all ranks that use them have ended.
//
// A part of a window is a window of its own over the same mapping: kernels that get it reach no byte beside it.
// host/fused/symmetric_arena.hpp cuts one window into parts, the same on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "mscclpp/host/communicator.hpp"
#include "mscclpp/host/memory.hpp"
#include "mscclpp/host/multicast.hpp"
#include "mscclpp/layout/window_handle.hpp"

namespace mscclpp {

// Who reaches the memory of other ranks through a window.
enum class WindowUse : std::uint8_t {
  threads,    // kernels of ranks of one host
  multicast,  // and multicast accesses, under the conditions of host/multicast.hpp
  proxies,    // kernels within a host, proxies everywhere: ranks of other hosts have no address in the device handle
};

class MemoryWindow {
 public:
  // `ranks`: of the communicator, in the same order on each; a rank's place is its rank in the window, as in a Team.
  // Empty: all. Throws invalidUsage on every member where sizes or ranks differ, unsupported where one is out of reach.
  MemoryWindow(Communicator const& communicator, void* memory, std::size_t bytes, std::vector<int> ranks = {},
               WindowUse use = WindowUse::threads);
  // The same of memory that goes with the last of the window and its parts.
  MemoryWindow(Communicator const& communicator, DeviceMemory memory, std::vector<int> ranks = {},
               WindowUse use = WindowUse::threads);
  MemoryWindow(MemoryWindow&&) noexcept = default;
  MemoryWindow& operator=(MemoryWindow&&) noexcept = default;

  // Of `bytes` at `offset` of each rank's memory. Not collective, and costs nothing but the object; the mapping ends
  // with the last window over it. Throws invalidUsage where it would be empty or end past this window.
  MemoryWindow part(std::size_t offset, std::size_t bytes) const;

  layout::WindowHandle const& deviceHandle() const noexcept { return handle_; }
  std::byte* data() const noexcept { return handle_.bases[handle_.rank]; }
  std::size_t size() const noexcept { return handle_.bytes; }
  // By rank in the window, for proxies. Throws unsupported for a part: proxies take the whole window, and offsets in
  // it.
  std::vector<RegisteredMemory> const& memories() const;
  // The same of no two windows of this process.
  std::uint64_t id() const noexcept { return id_; }
  // Whether [pointer, pointer + bytes) lies in the own memory.
  bool contains(void const* pointer, std::size_t bytes) const noexcept;

 private:
  MemoryWindow(MemoryWindow const&) = default;  // of which part() makes another

  std::shared_ptr<void> memory_;  // where it is the window's
  std::vector<RegisteredMemory> mapped_;
  std::shared_ptr<void> keepAlive_;
  layout::WindowHandle handle_{};
  std::uint64_t id_ = 0;
  bool whole_ = true;
  std::shared_ptr<MulticastWindow> multicast_;
};

}  // namespace mscclpp
