// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A one-sided way to one peer's memory, as a proxy uses it: posts are queued, nothing blocks, and progress() says how
// many of them are complete. Communicator::connect makes one.
//
// One thread at a time uses a connection. Once it has failed, every function throws the Error that says why, with rank,
// peer and operation. What is posted may arrive late and in any order; only signal() orders: the peer that sees its
// count sees every write that was posted before it.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "mscclpp/host/memory.hpp"
#include "mscclpp/host/transport_set.hpp"
#include "mscclpp/layout/watch.hpp"

namespace mscclpp {

class Connection {
 public:
  virtual ~Connection();

  virtual Transport transport() const noexcept = 0;
  virtual int peer() const noexcept = 0;

  // Posts a copy of `bytes`, any number, from own memory `src` to memory `dst` of the peer. Both must be registered for
  // this transport and hold the range, and `src` must not change until the post is complete.
  virtual void write(RegisteredMemory const& dst, std::uint64_t dstOffset, RegisteredMemory const& src,
                     std::uint64_t srcOffset, std::uint64_t bytes) = 0;
  // Posts: once all earlier writes are visible at the peer, the aligned 8-byte word at `dstOffset` becomes `count`. A
  // word belongs to one connection, and `count` is the number of signals to it so far, so it only grows by one.
  virtual void signal(RegisteredMemory const& dst, std::uint64_t dstOffset, std::uint64_t count) = 0;

  // Writes and signals posted so far.
  virtual std::uint64_t posted() const noexcept = 0;
  // One step that does not block. Returns how many posts, from the first on, are complete: their source may be used
  // again, and they are visible at the peer. Called again and again by the proxy, also while nothing is posted, so that
  // a transport may serve here what the peer sends.
  virtual std::uint64_t progress() = 0;
  // Whether progress() will do nothing before one of some sockets is ready, or nothing is posted: adds those sockets to
  // `sockets`, with what to ask poll(2) for. False, and nothing is added, where more steps may help, as is the default.
  virtual bool waitsFor(std::vector<pollfd>& sockets) const;

  // This side has failed and posts nothing more: sets the top bit (`abandonedSignal`) of a word that it signals, as far
  // as the transport can, so that whoever waits there learns of it at once. Where it cannot, the wait's limit remains.
  virtual void abandon(RegisteredMemory const& dst, std::uint64_t dstOffset) noexcept;
};

// Between the steps of whoever drives `connections`: sleeps until one of them can go on, `limit` at most, where all of
// them only wait for sockets; asking again and again would take the processor from the kernel's threads and from the
// receiver. Returns whether it slept.
bool restUntilReady(std::span<Connection const* const> connections, std::chrono::nanoseconds limit);

using layout::abandonedSignal;

}  // namespace mscclpp
