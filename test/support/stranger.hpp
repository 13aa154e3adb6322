// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A socket that speaks no bootstrap by itself.
#pragma once

#include <chrono>
#include <cstdint>
#include <thread>

#include "base/file_handle.hpp"
#include "host/net/socket.hpp"

namespace mscclpp::test {

// Connected to `port` of this host, once somebody listens there; empty where nobody does for 5 s.
inline FileHandle strangerTo(std::uint16_t port) {
  auto const address = resolve("127.0.0.1", port).front();
  Deadline const deadline(std::chrono::seconds(5));
  for (;;) {
    int error = 0;
    FileHandle socket = connectTo(address, deadline, error);
    if (socket || deadline.expired()) return socket;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace mscclpp::test
