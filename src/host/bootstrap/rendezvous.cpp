// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/bootstrap/rendezvous.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <thread>
#include <vector>

#include "base/format.hpp"
#include "base/keyed_hash.hpp"
#include "base/log_budget.hpp"
#include "host/net/socket.hpp"
#include "host/net/unix_socket.hpp"

namespace mscclpp {
namespace {

struct Request {
  std::uint64_t magic;
  std::int32_t rank;
  std::int32_t ranks;
};

struct Reply {
  std::uint64_t magic;
  std::int32_t ranks;  // as rank 0 has it; where it differs from the request's, the id is empty
  std::int32_t reserved;
  std::array<std::byte, uniqueIdBytes> id;
};

constexpr std::uint64_t requestMagic = 0x6d7363636c6d6565ull;

std::string socketName(std::string const& key) {
  auto const text = std::as_bytes(std::span(key));
  return fmt::format("mscclpp-meet-{}-{:016x}{:016x}", ::geteuid(), keyedHash(Key128{1}, text),
                     keyedHash(Key128{2}, text));
}

}  // namespace

void handOut(UniqueId const& id, std::string const& key, int ranks, std::chrono::nanoseconds limit) {
  Deadline const deadline(limit);
  int error = 0;
  FileHandle const listener = listenUnix(socketName(key), error);
  if (!listener) {
    throwSystemError(fmt::format("rank 0: cannot make the meeting point of job \"{}\"; does another rank 0 of this job "
                                 "run, on this host? MSCCLPP_COMM_ID=ip:port gives another way to meet",
                                 key),
                     error);
  }
  struct Client {
    FileHandle socket;
    Request request{};
    std::size_t filled = 0;
  };
  std::list<Client> clients;
  LogBudget refusals;
  std::vector<bool> served(static_cast<std::size_t>(ranks), false);
  served[0] = true;
  auto const answer = [&](Client& client) {  // false: done with this one
    auto const room = writableBytesOf(client.request).subspan(client.filled);
    auto const got = ::recv(client.socket.get(), room.data(), room.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    client.filled += static_cast<std::size_t>(got);
    if (client.filled < sizeof(Request)) return true;
    Request const& request = client.request;
    if (request.magic != requestMagic || request.rank < 1 || request.rank >= std::max(ranks, request.ranks)) {
      refusals.log(LogLevel::warn, "rank 0: refused a process at the meeting point of job \"{}\": no rank of this job",
                   key);
      return false;
    }
    Reply reply{requestMagic, ranks, 0, {}};
    if (request.ranks == ranks) {
      reply.id = id.toBytes();
    } else {
      refusals.log(LogLevel::warn, "rank 0: has {} ranks, but rank {} was told {}", ranks, request.rank, request.ranks);
    }
    auto const sent = ::send(client.socket.get(), &reply, sizeof reply, MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(sizeof reply) && request.ranks == ranks) {
      served[static_cast<std::size_t>(request.rank)] = true;
    }
    return false;
  };
  while (std::find(served.begin(), served.end(), false) != served.end()) {
    if (deadline.expired()) {
      std::vector<int> missing;
      for (int rank = 1; rank < ranks; ++rank) {
        if (!served[static_cast<std::size_t>(rank)]) missing.push_back(rank);
      }
      fail(
          ErrorCode::timeout,
          "rank 0: after {} these of the {} ranks of job \"{}\" had not come to its meeting point: {}; do they run, on "
          "this host and as this user, outside other containers? MSCCLPP_COMM_ID=ip:port gives another way to meet",
          describe(limit), ranks, key, fmt::join(missing, ", "));
    }
    std::vector<pollfd> entries{{listener.get(), POLLIN, 0}};
    for (auto const& client : clients) entries.push_back({client.socket.get(), POLLIN, 0});
    if (::poll(entries.data(), entries.size(), deadline.pollMilliseconds()) <= 0) continue;
    std::size_t at = 1;
    for (auto client = clients.begin(); client != clients.end(); ++at) {
      bool const keep = entries[at].revents == 0 || answer(*client);
      client = keep ? std::next(client) : clients.erase(client);
    }
    if (entries[0].revents == 0) continue;
    FileHandle socket = acceptFrom(listener.get());
    if (!socket) {
      // Short of descriptors: wait rather than spin on a listener that stays ready.
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } else if (sameUser(socket.get())) {
      clients.push_back({std::move(socket), {}, 0});
    } else {
      refusals.log(LogLevel::warn, "rank 0: refused a process of another user at the meeting point of job \"{}\"", key);
    }
  }
}

UniqueId fetchUniqueId(std::string const& key, int rank, int ranks, std::chrono::nanoseconds limit) {
  Deadline const deadline(limit);
  std::string last = "no attempt was made";
  auto pause = std::chrono::milliseconds(2);
  while (!deadline.expired()) {
    int error = 0;
    FileHandle const socket = connectUnix(socketName(key), error);
    if (socket && !sameUser(socket.get())) {
      fail(ErrorCode::remoteError,
           "rank {}: the meeting point of job \"{}\" is held by another user; use MSCCLPP_COMM_ID=ip:port to meet",
           rank, key);
    }
    if (socket) {
      Request const request{requestMagic, rank, ranks};
      Reply reply{};
      error = sendAll(socket.get(), bytesOf(request), deadline);
      if (error == 0) error = recvAll(socket.get(), writableBytesOf(reply), deadline);
      if (error == 0 && (reply.magic != requestMagic || reply.ranks != ranks)) {
        fail(ErrorCode::invalidUsage, "rank {}: rank 0 of job \"{}\" has {} ranks, but this rank was told {}", rank,
             key, reply.ranks, ranks);
      }
      if (error == 0) return UniqueId::fromBytes(reply.id);
    }
    last = std::strerror(error);
    std::this_thread::sleep_for(std::clamp<std::chrono::nanoseconds>(deadline.left(), {}, pause));
    pause = std::min(pause * 2, std::chrono::milliseconds(100));
  }
  fail(ErrorCode::timeout,
       "rank {}: rank 0 of job \"{}\" did not come to its meeting point within {} (last attempt: {}); does it run, on "
       "this "
       "host and as this user? MSCCLPP_COMM_ID=ip:port gives another way to meet",
       rank, key, describe(limit), last);
}

}  // namespace mscclpp
