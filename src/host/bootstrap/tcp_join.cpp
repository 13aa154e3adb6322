// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/bootstrap/tcp_join.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/format.hpp"
#include "host/bootstrap/death_watch.hpp"
#include "host/net/host_identity.hpp"

namespace mscclpp {
namespace {

constexpr std::chrono::nanoseconds shortestRetry = std::chrono::milliseconds(5);
constexpr std::chrono::nanoseconds longestRetry = std::chrono::milliseconds(50);
constexpr std::chrono::nanoseconds longestAttempt = std::chrono::seconds(3);

[[noreturn]] void explainRefusal(HandshakeResult const& result, int rank, int ranks, std::string const& target) {
  if (result.kind == HandshakeResult::Kind::stranger) {
    fail(ErrorCode::remoteError,
         "rank {}: {} is not rank 0 of this job: {}; choose another port or make a new unique id", rank, target,
         result.reason);
  }
  switch (result.verdict.admission) {
    case Admission::wrongRanks:
      fail(ErrorCode::invalidUsage, "rank {}: rank 0 at {} has {} ranks, but this rank was told {}; give all the same",
           rank, target, result.verdict.ranks, ranks);
    case Admission::rankTaken:
      fail(ErrorCode::invalidUsage, "rank {}: rank 0 at {} has a rank {} already; each process needs a rank of its own",
           rank, target, rank);
    case Admission::wrongSecret:
      fail(ErrorCode::invalidUsage,
           "rank {}: {} is rank 0 of another job (the secret differs); the unique id, address or "
           "MSCCLPP_SECRET is stale or mixed up",
           rank, target);
    default:
      fail(ErrorCode::remoteError, "rank {}: rank 0 at {} refused this rank: {}", rank, target, result.reason);
  }
}

void receiveTable(Joined& joined, int rank, int ranks, std::string const& target, Deadline const& deadline) {
  int const socket = joined.socket.get();
  TableHeader header{};
  std::string text;
  int error = recvAll(socket, writableBytesOf(header), deadline);
  if (error == 0 && header.complete == 0) {
    text.resize(std::min<std::size_t>(header.textBytes, 65536));
    error = recvAll(socket, std::as_writable_bytes(std::span(text)), deadline);
  } else if (error == 0) {
    joined.table.resize(static_cast<std::size_t>(ranks));
    error = recvAll(socket, std::as_writable_bytes(std::span(joined.table)), deadline);
  }
  if (error == ETIMEDOUT) {
    fail(ErrorCode::timeout, "rank {}: joined rank 0 at {}, but the other ranks did not within {}", rank, target,
         describe(deadline.limit()));
  }
  if (error != 0) {
    fail(ErrorCode::remoteError, "rank {}: rank 0 at {} went away while the ranks were joining: {}; see its output",
         rank, target, std::strerror(error));
  }
  if (header.complete == 0) fail(ErrorCode::timeout, "rank {}: rank 0 gave up: {}", rank, text);
  joined.session = header.session;
}

}  // namespace

Joined joinRankZero(int rank, int ranks, std::vector<SocketAddress> const& addresses, std::string const& interfaceName,
                    Key128 const& secret, Deadline const& deadline) {
  std::string const target = addresses.front().toString();
  std::string last = "no attempt was made";
  auto pause = shortestRetry;
  // Rank 0 tells who is missing when its own limit passes, which began about when this one did.
  Deadline const tableDeadline(
      deadline.left() + std::min<std::chrono::nanoseconds>(std::chrono::milliseconds(500), deadline.limit() / 4));
  for (std::size_t attempt = 0; !deadline.expired(); ++attempt) {
    int error = 0;
    // Where a name has several addresses, one that swallows packets must not use up the time of the others.
    auto const share = addresses.size() == 1 ? deadline.left() : std::min(deadline.left(), longestAttempt);
    FileHandle socket = connectTo(addresses[attempt % addresses.size()], Deadline(share), error);
    if (socket) {
      SocketAddress own = interfaceName.empty() ? localAddress(socket.get()) : interfaceAddress(interfaceName);
      own.setPort(0);
      FileHandle listener = listenOn(fmt::format("rank {}: initialize", rank), own);
      Hello hello{};
      hello.purpose = Purpose::join;
      hello.rank = rank;
      hello.ranks = ranks;
      hello.hostIdentity = hostIdentity();
      hello.listener = toWire(localAddress(listener.get()));
      FileHandle door = DeathWatch::openDoor(hello.listener);
      HandshakeResult const result = introduce(socket.get(), secret, hello, deadline);
      if (result.kind == HandshakeResult::Kind::admitted) {
        Joined joined{std::move(socket), std::move(listener), std::move(door), {}, {}};
        receiveTable(joined, rank, ranks, target, tableDeadline);
        return joined;
      }
      // Another program may have the port at another address of the name.
      bool const other = result.kind == HandshakeResult::Kind::stranger && addresses.size() > 1;
      if (result.kind != HandshakeResult::Kind::broken && !other) explainRefusal(result, rank, ranks, target);
      last = result.reason;
    } else {
      last = std::strerror(error);
    }
    std::this_thread::sleep_for(std::clamp<std::chrono::nanoseconds>(deadline.left(), {}, pause));
    pause = std::min(pause * 2, longestRetry);
  }
  fail(ErrorCode::timeout,
       "rank {}: could not join rank 0 at {} within {} (last attempt: {}); does rank 0 run, is this its present unique "
       "id or address (an id serves one initialize), and can this host reach that port?",
       rank, target, describe(deadline.limit()), last);
}

}  // namespace mscclpp
