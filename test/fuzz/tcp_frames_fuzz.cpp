// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Frames of the TCP transport: bytes of a peer that may name any memory, any offset and any size.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "fuzz.hpp"
#include "host/transport/tcp/tcp_frame.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  if (size < 2) return 0;
  // Exactly as large as registered, so that the sanitizer sees what goes beyond.
  auto const first = std::make_unique<std::array<std::uint64_t, 25>>();
  auto const second = std::make_unique<std::array<std::uint64_t, 2>>();
  TcpMemories const memories{{1, {reinterpret_cast<std::byte*>(first.get()), sizeof *first, {}, false}},
                             {2, {reinterpret_cast<std::byte*>(second.get()) + 3, 9, {}, false}}};
  std::size_t const lanes = 1 + data[0] % 3;
  std::size_t const step = 1 + data[1];
  auto const inbound = std::make_shared<TcpInbound>(memories, static_cast<int>(lanes));
  std::vector<std::unique_ptr<TcpReceiver>> receivers;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    receivers.push_back(std::make_unique<TcpReceiver>(inbound, static_cast<int>(lane)));
  }
  auto rest = bytesOfInput(data + 2, size - 2);
  std::uint64_t frames = 0;
  for (std::size_t turn = 0; !rest.empty(); ++turn) {
    auto& receiver = *receivers[turn % lanes];
    auto const rooms = receiver.rooms();
    if (rooms.empty()) {
      require(receiver.saidGoodbye() || receiver.refusal() != TcpRefusal::none, "a lane stopped without a reason");
      if (receiver.refusal() != TcpRefusal::none)
        require(!receiver.describeRefusal().empty(), "a refusal says nothing");
      break;
    }
    std::size_t taken = 0;
    for (auto const& room : rooms) {
      auto const part = std::min({room.iov_len, rest.size() - taken, step - taken});
      std::memcpy(room.iov_base, rest.data() + taken, part);
      taken += part;
    }
    receiver.advance(taken);
    rest = rest.subspan(taken);
    require(receiver.frames() <= frames + size / sizeof(TcpFrame) + 1, "more frames are done than came");
  }
  return 0;
}
