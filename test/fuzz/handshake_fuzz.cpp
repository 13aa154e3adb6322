// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The connecting end of the handshake that bootstrap and TCP transport share, against any answers.
#include <sys/socket.h>

#include <cerrno>

#include "fuzz.hpp"
#include "host/net/handshake.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) return 0;
  FileHandle const own(ends[0]);
  FileHandle const peer(ends[1]);
  if (size > 0 && ::send(peer.get(), data, size, MSG_NOSIGNAL) < 0) return 0;
  ::shutdown(peer.get(), SHUT_WR);
  attempt([&] {
    auto const result = introduce(own.get(), Key128{}, Hello{}, Deadline(std::chrono::seconds(5)));
    // Without the key nobody can prove anything: the greeting's answer depends on a fresh nonce.
    require(result.kind != HandshakeResult::Kind::admitted, "a stranger was taken for a rank");
    require(!result.reason.empty(), "a refusal without a reason");
  });
  return 0;
}
