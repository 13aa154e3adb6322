// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the ranks of one job exchange small messages on the host while they set up. TcpBootstrap and LocalBootstrap come
// with the library; any other launcher is used by implementing the virtual functions below.
//
// Messages between two ranks with the same tag arrive in the order sent; tags are independent of each other. Every call
// has a time limit, and an error names the rank, the peer and the operation. A rank uses its bootstrap from one thread
// at a time for collectives, from any threads for send and recv with different tags.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace mscclpp {

// Messages meet where all three are equal. Groups of ranks have contexts of their own; 0 is that of all ranks.
struct MessageAddress {
  std::uint64_t context = 0;
  int peer = 0;
  int tag = 0;
};

// How long a message is waited for, and who must be there beside the peer.
struct MessageWait {
  std::chrono::nanoseconds limit{};
  std::vector<int> members;  // the wait ends also where one of them was needed in vain by anybody; empty: it does not
  bool collective = false;   // the call is one of all members: it ends also where one has died
};

class Bootstrap {
 public:
  Bootstrap();
  virtual ~Bootstrap();

  // The own rank, and the number of ranks: getRank() is 0 to getNranks() - 1.
  virtual int getRank() const = 0;
  virtual int getNranks() const = 0;
  // Ranks on this rank's host, itself included.
  virtual int getNranksPerNode() const = 0;
  // Longest that one call may take.
  virtual std::chrono::nanoseconds timeout() const = 0;

  // `tag` is 0 or more. The receiver names the size that was sent. A rank may send to itself.
  void send(void const* data, std::size_t bytes, int peer, int tag);
  void recv(void* data, std::size_t bytes, int peer, int tag);
  // The receiver need not know the size.
  void send(std::vector<char> const& data, int peer, int tag);
  void recv(std::vector<char>& data, int peer, int tag);

  // `all` holds one part of `bytesPerRank` per rank; each rank fills its own beforehand. Costs log2(ranks) messages.
  virtual void allGather(void* all, std::size_t bytesPerRank);
  // Returns when every rank has called it. Costs log2(ranks) messages.
  virtual void barrier();
  // The same among `ranks` only, which are distinct, hold the caller, and are given in the same order by each.
  void groupBarrier(std::vector<int> const& ranks);

 protected:
  // Tags below zero, and above 2^24, belong to the library. sendMessage may return before the peer has received.
  virtual void sendMessage(void const* data, std::size_t bytes, int peer, int tag) = 0;
  virtual std::vector<std::byte> recvMessage(int peer, int tag) = 0;

  // The same in any context. By default the two above carry all contexts' messages, which are sorted here, and a wait
  // takes no notice of members. From any threads.
  virtual void sendTo(MessageAddress const& to, MessageWait const& wait, void const* data, std::size_t bytes);
  virtual std::vector<std::byte> recvFrom(MessageAddress const& from, MessageWait const& wait);

  // Calls `died` once for each other rank that has been lost, since its process has ended without a word or it has
  // declared so, of those known already too, from any thread; until what this returns is destroyed, which waits for a
  // call that runs. By default nobody is heard of.
  using Died = std::function<void(int rank, std::string const& reason)>;
  virtual std::shared_ptr<void> listen(Died died);
  // This rank can take part in nothing any more, though its process lives: the others hear of it as of one that has
  // died. From any thread. By default nobody hears.
  virtual void declareLost(std::string const& reason);

 private:
  friend class BootstrapAccess;
  void checkPeer(std::string_view operation, int peer) const;
  void checkTag(std::string_view operation, int peer, int tag) const;
  void copyMessage(std::string_view operation, std::vector<std::byte> const& message, void* data, std::size_t bytes,
                   int peer, int tag) const;
  void disseminate(std::string_view operation, std::vector<int> const& ranks, int tag, std::uint64_t token);

  struct Sorter;
  std::mutex sorterMutex_;
  std::unique_ptr<Sorter> sorter_;  // made at first use
};

}  // namespace mscclpp
