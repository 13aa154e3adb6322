// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Messages between pairs of ranks, from the host: what NCCL calls send, recv and a group of them.
//
//   PointToPoint links(communicator);                                          // once, by all ranks
//   MessageGroup(links, stream).send(x, bytes, right).recv(y, bytes, left).start();
//
// start() puts the whole group into the stream and returns; its messages go on together, so ranks may send to each
// other in any pattern. Only the ranks of a message call. Between two ranks, the i-th send of one meets the i-th recv
// of the other, in the order of the calls; both name the same bytes, else the receiver's kernel refuses the message
// with a report. A receive that nobody sends for ends in a time-out that names lane and peer. May be captured into a
// graph. Unless its receiver reads it, a message of more than 16 MiB, or of 2 MiB to a rank of another node, keeps the
// sender's kernel waiting.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "mscclpp/collectives/kernel_table.hpp"
#include "mscclpp/host/point_to_point.hpp"
#include "mscclpp/host/stream.hpp"

namespace mscclpp {

class MessageGroup {
 public:
  // Throws invalidUsage where the stream is of another device. Both must live until start() has returned. `maxBlocks`:
  // of a kernel that the library chooses; 0: as many as fit the device.
  MessageGroup(PointToPoint const& links, Stream const& stream, std::uint32_t maxBlocks = 0);

  // `peer`: a rank of the links, also the own one. Throw invalidUsage for a rank that there is not, and a null pointer
  // with bytes.
  MessageGroup& send(void const* data, std::size_t bytes, int peer);
  MessageGroup& recv(void* data, std::size_t bytes, int peer);

  // Empties the group. `blocks` 0: enough for all peers at once, as far as there may be so many. `threads` per block,
  // 0: the library's choice. Throws invalidUsage for messages to the own rank that do not meet, and unsupported where
  // the build has no kernels for the device. Where the links have `stagesLater`, as PointToPoint::handleFor() throws.
  void start(int blocks = 0, int threads = 0);

 private:
  void check(char const* what, void const* data, std::size_t bytes, int peer) const;

  PointToPoint const& links_;
  Stream const& stream_;
  std::uint32_t maxBlocks_;
  // The k-th messages to and from each peer, by k.
  std::vector<layout::Messages> rounds_;
  std::map<int, std::size_t> sends_;  // so far, by peer
  std::map<int, std::size_t> recvs_;
};

// The launch of the kernel of messages with so many peers, whose largest has `bytes` bytes, through links of so many
// lanes, as MessageGroup chooses it: a block for each end of each lane, as far as `maxBlocks` has them.
LaunchShape messageLaunchShape(Kernel const& kernel, std::uint32_t peers, std::uint32_t lanes, std::uint64_t bytes,
                               std::uint32_t maxBlocks);

}  // namespace mscclpp
