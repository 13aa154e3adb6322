// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/bootstrap/peer_socket.hpp"

#include <cerrno>

namespace mscclpp {

void PeerSocket::takeNotices() {
  std::lock_guard const lock(noticesMutex_);
  unsent_.insert(unsent_.end(), notices_.begin(), notices_.end());
  notices_.clear();
}

int PeerSocket::send(FrameHeader const& first, std::span<std::byte const> data, Deadline const& deadline) {
  int error = 0;
  {
    std::lock_guard const lock(sending_);
    takeNotices();
    error = sendAll(socket.get(), unsent_, deadline);
    if (error == 0) unsent_.clear();
    if (error == 0) error = sendAll(socket.get(), bytesOf(first), deadline);
    if (error == 0) error = sendAll(socket.get(), data, deadline);
  }
  // What came meanwhile found this thread in its way. It must be out before this rank acts on it, perhaps by dying.
  if (error == 0) flush();
  return error;
}

int PeerSocket::sendFirst(std::span<std::byte const> data, Deadline const& deadline) {
  std::lock_guard const lock(sending_);
  int const error = sendAll(socket.get(), data, deadline);
  open_ = error == 0;
  return error;
}

void PeerSocket::notify(std::span<std::byte const> frame) {
  std::lock_guard const lock(noticesMutex_);
  notices_.insert(notices_.end(), frame.begin(), frame.end());
}

bool PeerSocket::flush() {
  std::unique_lock const lock(sending_, std::try_to_lock);
  if (!lock) return false;
  if (!open_) return true;
  takeNotices();
  while (!unsent_.empty()) {
    auto const sent = ::send(socket.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
    if (sent < 0) unsent_.clear();  // it is broken, which its reader finds out
    if (sent > 0) unsent_.erase(unsent_.begin(), unsent_.begin() + sent);
  }
  return true;
}

void PeerSocket::flush(Deadline const& deadline) {
  std::lock_guard const lock(sending_);
  if (!open_) return;
  takeNotices();
  [[maybe_unused]] int const error = sendAll(socket.get(), unsent_, deadline);
  unsent_.clear();
}

}  // namespace mscclpp
