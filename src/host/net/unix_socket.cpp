// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/net/unix_socket.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "host/net/socket.hpp"

namespace mscclpp {
namespace {

struct UnixAddress {
  sockaddr_un storage{};
  socklen_t length = 0;

  explicit UnixAddress(std::string const& name) {
    storage.sun_family = AF_UNIX;
    // A leading zero byte makes the name abstract; the names here are far shorter than the field.
    auto const bytes = name.copy(storage.sun_path + 1, sizeof storage.sun_path - 1);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  }
  sockaddr const* get() const { return reinterpret_cast<sockaddr const*>(&storage); }
};

FileHandle openUnix(int& error) {
  auto socket = FileHandle::own([] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  error = socket ? 0 : errno;
  return socket;
}

}  // namespace

FileHandle listenUnix(std::string const& name, int& error) {
  FileHandle socket = openUnix(error);
  if (!socket) return {};
  UnixAddress const address(name);
  if (::bind(socket.get(), address.get(), address.length) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
    error = errno;
    return {};
  }
  return socket;
}

FileHandle connectUnix(std::string const& name, int& error) {
  FileHandle socket = openUnix(error);
  if (!socket) return {};
  UnixAddress const address(name);
  // A full backlog gives EAGAIN: the caller tries again.
  if (::connect(socket.get(), address.get(), address.length) != 0) {
    error = errno;
    return {};
  }
  return socket;
}

bool sameUser(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

int sendDescriptor(int socket, int descriptor) {
  char byte = 'd';
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  while (::sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

FileHandle recvDescriptor(int socket, Deadline const& deadline, int& error) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  for (;;) {
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    auto const got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (got == 0) {
      error = ECONNRESET;
      return {};
    }
    if (got > 0) {
      cmsghdr const* const header = CMSG_FIRSTHDR(&message);
      if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
        error = ENOMSG;
        return {};
      }
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
      error = 0;
      return FileHandle(descriptor);
    }
    if (!wouldBlock(errno)) {
      error = errno;
      return {};
    }
    pollfd entry{socket, POLLIN, 0};
    if (::poll(&entry, 1, deadline.pollMilliseconds()) <= 0 && deadline.expired()) {
      error = ETIMEDOUT;
      return {};
    }
  }
}

}  // namespace mscclpp
