// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank's side of a group of ranks: its device, what it shares with the others, and the watch through which its
// kernels tell of waits that did not end.
//
// Making one is collective over the bootstrap. Calls that name a peer are matched by that peer's own call, the i-th of
// one side with the i-th of the other for each tag. Destroy it, and the semaphores and teams made from it, only when
// all kernels of all ranks that use them have ended.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <typeindex>
#include <typeinfo>
#include <vector>

#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/host/connection.hpp"
#include "mscclpp/host/device.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/memory.hpp"
#include "mscclpp/host/semaphore.hpp"
#include "mscclpp/host/stream.hpp"
#include "mscclpp/layout/watch.hpp"

namespace mscclpp {

struct CommunicatorImpl;

// How connect() reaches the peer.
struct EndpointConfig {
  std::optional<Transport> transport;  // empty: chosen, see Communicator::transportTo
};

class Communicator {
 public:
  Communicator(std::shared_ptr<Bootstrap> bootstrap, Device device);
  ~Communicator();
  Communicator(Communicator const&) = delete;
  Communicator& operator=(Communicator const&) = delete;

  std::shared_ptr<Bootstrap> const& bootstrap() const noexcept;
  // What teams, windows and the like are made over: the same, and after rejoin() one that takes no message from before.
  std::shared_ptr<Bootstrap> setup() const;
  int rank() const noexcept;
  int size() const noexcept;
  Device device() const noexcept;
  // Whether kernels here can use the memory of `peer`: it is of the same domain, a host or several that NVLink joins
  // (docs/networks.md).
  bool reaches(int peer) const;
  // Of memory that all those ranks can map: shareable where some of them are on other hosts, else standard.
  MemoryKind mappedKind() const;
  // The most ranks that one device has: 1, unless ranks share devices (host/ranks.hpp), which then run their
  // kernels side by side on each.
  int ranksPerDevice() const;
  // Whether a warp's 128-byte line arrives as one at `peer`, which LL128 packets need; without an argument: at all.
  bool linesArriveWhole(int peer) const;
  bool linesArriveWhole() const;

  // Seen by host and kernels. Its limit is MSCCLPP_KERNEL_TIMEOUT until set otherwise; zero: none.
  layout::Watch* watch() const noexcept;
  void setTimeLimit(std::chrono::nanoseconds limit) const;

  // Memory of this rank, inside one allocation of its device, for kernels of ranks that can map it. Says nothing to
  // them yet: sendMemory() does, and recvMemory() waits for that. Throws invalidUsage for other memory.
  RegisteredMemory registerMemory(void* pointer, std::size_t bytes) const;
  // Also for connections over these transports, which throws unsupported where this machine lacks one.
  RegisteredMemory registerMemory(void* pointer, std::size_t bytes, TransportSet transports) const;
  void sendMemory(RegisteredMemory const& memory, int peer, int tag = 0) const;
  RegisteredMemory recvMemory(int peer, int tag = 0) const;
  // Collective: everybody's memory, by rank; [rank] is the own.
  std::vector<RegisteredMemory> exchangeMemory(RegisteredMemory const& memory) const;

  // Both ranks call it, with the same tag, naming each other, and wait for each other there.
  MemoryDevice2DeviceSemaphore buildSemaphore(int peer, int tag = 0) const;

  // What connect() chooses by itself: MSCCLPP_TRANSPORT where it is set; else mapped memory to peers of this host, and
  // InfiniBand, or TCP where one side lacks that, to others.
  Transport transportTo(int peer) const;
  // All that transportTo() chooses for any peer: what to register memory with.
  TransportSet transports() const;
  // For proxies. Both ranks call it, with the same tag, naming each other, and must come to the same transport.
  std::shared_ptr<Connection> connect(int peer, EndpointConfig const& config = {}, int tag = 0) const;

  // Throws what kernels of this rank have reported since the last call, in words, and clears it: timeout for waits,
  // invalidUsage for a launch that a kernel refused, remoteError where a peer's proxy has failed, aborted after
  // abort() and for a kernel that found a wait given up before it, and again and again fault(). Kernels must have
  // ended. After an error kernels refuse the teams, programs and rings of messages that were made before, since ranks
  // may have counted differently; collectives of an AlgorithmCollection find together again by themselves
  // (docs/failures.md). Make semaphores and channels anew.
  void checkReports() const;
  // What has ended this communicator for good: another rank has died, which ends the waits of kernels here within
  // milliseconds where the bootstrap hears of it (TcpBootstrap does), or a proxy of this rank has failed. Go on with
  // survivors() and shrink(). From any thread.
  std::optional<Error> fault() const;
  // How often checkReports() has thrown.
  std::uint64_t failures() const noexcept;
  // Ends the waits of this rank's kernels, now and from now on.
  void abort() const noexcept;
  // Waits for the stream (limit as in Stream), then checkReports().
  void synchronize(Stream const& stream, std::optional<std::chrono::nanoseconds> limit = {}) const;

  // After a failure. Collective over the ranks that are left, which find out together who they are: whoever has ended,
  // or does not answer within the bootstrap's limit, is left out. All ranks that return from it return the same list; a
  // rank that ends meanwhile may still be in it, or makes it throw. Then repeat it, on every rank that is left. It also
  // throws where others have given this rank up, and where those that are silent may go on by themselves, being more.
  std::vector<int> survivors() const;
  // After a failure that all ranks have outlived, such as a time-out. Collective over all ranks: what is made from this
  // communicator from then on has nothing to do with what was begun before. Returns everybody's bytes, by rank. Throws
  // remoteError, naming them, where ranks have ended or do not answer.
  std::vector<std::vector<std::byte>> rejoin(std::vector<std::byte> const& mine = {}) const;
  // A communicator of some of the ranks, numbered in the order given, for instance survivors(); collective over them.
  // It has a watch of its own and none of the old one's faults, and works side by side with others of the same ranks,
  // the old one among them, from any threads; calls with the same ranks are matched by their order. Destroy what was
  // made from the old one at leisure. Errors of its bootstrap name ranks as the first bootstrap numbers them.
  std::unique_ptr<Communicator> shrink(std::vector<int> const& ranks) const;

  // What this rank's kernels shall lead astray when they give up a wait (layout/round_counter.hpp), of each rank that
  // is mapped; until what this returns is destroyed. No rank's memory may go before.
  std::shared_ptr<void> leadAstray(std::vector<layout::RoundCounters> const& counters) const;

  // The one T of this communicator, made as T(communicator) by the first call and destroyed with the communicator.
  // What a library above keeps for each communicator lives here.
  template <class T>
  T& attached() const {
    return *static_cast<T*>(
        attach(typeid(T), [](Communicator const& self) -> std::shared_ptr<void> { return std::make_shared<T>(self); }));
  }

 private:
  friend struct CommunicatorImpl;  // through which the library itself reaches it
  struct Attachments;
  void* attach(std::type_index type, std::shared_ptr<void> (*make)(Communicator const&)) const;

  std::shared_ptr<CommunicatorImpl> impl_;
  std::unique_ptr<Attachments> attachments_;  // destroyed first
};

}  // namespace mscclpp
