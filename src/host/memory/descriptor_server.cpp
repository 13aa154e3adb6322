// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/memory/descriptor_server.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <list>
#include <thread>
#include <vector>

#include "base/format.hpp"
#include "base/own_thread.hpp"
#include "host/net/host_identity.hpp"
#include "host/net/socket.hpp"
#include "host/net/unix_socket.hpp"

namespace mscclpp {
namespace {

struct Request {
  std::uint64_t magic;
  Key128 key;
};
constexpr std::uint64_t requestMagic = 0x6d7363636c706664ull;
constexpr std::chrono::nanoseconds requestLimit = std::chrono::seconds(10);
constexpr std::size_t mostClients = 256;

std::string socketName(Key128 const& process) {
  std::string name = "mscclpp-fd-";
  for (auto byte : process) name += fmt::format("{:02x}", byte);
  return name;
}

}  // namespace

struct DescriptorServer::Client {
  explicit Client(FileHandle handle) : socket(std::move(handle)), deadline(requestLimit) {}

  FileHandle socket;
  Request request{};
  std::size_t filled = 0;
  Deadline deadline;
};

DescriptorServer& DescriptorServer::instance() {
  // Never destroyed: its thread runs until the process ends.
  static std::mutex mutex;
  static DescriptorServer* server = nullptr;
  static ::pid_t owner = -1;
  std::lock_guard const lock(mutex);
  if (owner != ::getpid()) {
    server = new DescriptorServer(server);
    owner = ::getpid();
  }
  return *server;
}

DescriptorServer::DescriptorServer(DescriptorServer* before) : before_(before) {
  int error = 0;
  listener_ = listenUnix(socketName(processIdentity()), error);
  if (!listener_) throwSystemError("share memory with other processes: make a unix socket", error);
  startOwnThread([this] { run(); }).detach();
}

Key128 DescriptorServer::publish(FileHandle descriptor) {
  return publish([held = std::make_shared<FileHandle const>(std::move(descriptor))] { return held; });
}

Key128 DescriptorServer::publish(Make make) {
  Key128 const key = randomKey();
  std::lock_guard const lock(mutex_);
  published_.emplace(key, std::move(make));
  return key;
}

void DescriptorServer::withdraw(Key128 const& key) noexcept {
  std::lock_guard const lock(mutex_);
  published_.erase(key);
}

bool DescriptorServer::answer(Client& client) {
  auto const room = writableBytesOf(client.request).subspan(client.filled);
  auto const got = ::recv(client.socket.get(), room.data(), room.size(), 0);
  if (got < 0 && wouldBlock(errno)) return true;
  if (got <= 0) return false;
  client.filled += static_cast<std::size_t>(got);
  if (client.filled < sizeof(Request)) return true;
  Make make;
  if (client.request.magic == requestMagic) {
    std::lock_guard const lock(mutex_);
    if (auto const found = published_.find(client.request.key); found != published_.end()) make = found->second;
  }
  auto const descriptor = make ? make() : nullptr;
  if (descriptor == nullptr) {
    refusals_.log(LogLevel::info, "a process asked for memory that is not shared here, or no longer");
    char const refusal = 'n';
    [[maybe_unused]] auto const sent = ::send(client.socket.get(), &refusal, 1, MSG_NOSIGNAL);
  } else if (int const error = sendDescriptor(client.socket.get(), descriptor->get()); error != 0) {
    refusals_.log(LogLevel::warn, "could not hand memory to another process: {}", std::strerror(error));
  }
  return false;
}

void DescriptorServer::run() {
  std::list<Client> clients;
  std::vector<pollfd> entries;
  for (;;) {
    entries.assign(1, {listener_.get(), POLLIN, 0});
    for (auto const& client : clients) entries.push_back({client.socket.get(), POLLIN, 0});
    int const limit = clients.empty() ? -1 : clients.front().deadline.pollMilliseconds();
    if (::poll(entries.data(), entries.size(), limit) < 0) continue;
    std::size_t at = 1;
    for (auto client = clients.begin(); client != clients.end(); ++at) {
      bool const keep = entries[at].revents != 0 ? answer(*client) : !client->deadline.expired();
      client = keep ? std::next(client) : clients.erase(client);
    }
    if (entries[0].revents == 0) continue;
    FileHandle socket = acceptFrom(listener_.get());
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE) {
        refusals_.log(LogLevel::warn,
                      "no descriptor left to hand memory to other processes; raise the open file limit (ulimit -n)");
        if (!clients.empty()) clients.pop_front();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    } else if (!sameUser(socket.get())) {
      refusals_.log(LogLevel::warn, "refused a process of another user that asked for memory");
    } else {
      if (clients.size() >= mostClients) clients.pop_front();
      clients.emplace_back(std::move(socket));
    }
  }
}

FileHandle fetchDescriptor(Key128 const& process, Key128 const& key, std::string const& who,
                           std::chrono::nanoseconds limit) {
  Deadline const deadline(limit);
  int error = EAGAIN;
  FileHandle socket;
  while (error == EAGAIN && !deadline.expired()) {
    socket = connectUnix(socketName(process), error);
    if (error == EAGAIN) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (error == ECONNREFUSED) {
    fail(ErrorCode::remoteError,
         "{}: its process does not answer on this host; it has ended, or it runs in another container or network "
         "namespace",
         who);
  }
  if (socket && !sameUser(socket.get())) fail(ErrorCode::remoteError, "{}: its process runs as another user", who);
  FileHandle descriptor;
  if (socket) {
    Request const request{requestMagic, key};
    error = sendAll(socket.get(), bytesOf(request), deadline);
    if (error == 0) descriptor = recvDescriptor(socket.get(), deadline, error);
  }
  if (descriptor) return descriptor;
  if (error == ENOMSG) {
    fail(ErrorCode::remoteError,
         "{}: that process no longer shares it; keep its RegisteredMemory until all have mapped it", who);
  }
  if (error == ETIMEDOUT || error == EAGAIN) {
    fail(ErrorCode::timeout, "{}: its process did not hand it over within {}", who, describe(limit));
  }
  if (error == ECONNRESET || error == EPIPE) {
    fail(ErrorCode::remoteError, "{}: its process has ended before it handed it over; see its output", who);
  }
  throwSystemError(fmt::format("{}: fetch it from its process", who), error);
}

}  // namespace mscclpp
