// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How peers say where they are: addresses of TCP endpoints, unique ids, addresses as text.
#include <cstring>
#include <string>

#include "fuzz.hpp"
#include "host/transport/tcp/tcp_frame.hpp"
#include "mscclpp/host/bootstrap/unique_id.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  auto const bytes = bytesOfInput(data, size);
  std::string const text(reinterpret_cast<char const*>(data), size);
  attempt([&] {
    auto const address = parseTcpAddress(0, 1, bytes);
    require(address.lanes >= 1 && address.lanes <= mostTcpLanes, "an impossible number of lanes passed");
    require(!fromWire(address.listener)->toString().empty(), "an address without text passed");
    auto const again = serialize(address);
    require(std::memcmp(again.data(), bytes.data(), again.size()) == 0, "an address changed on its way");
  });
  attempt([&] {
    auto const id = UniqueId::fromBytes(bytes);
    auto const again = id.toBytes();
    require(UniqueId::fromBytes(again) == id && UniqueId::fromString(id.toString()) == id, "a unique id changed");
  });
  attempt([&] { UniqueId::fromString(text); });
  attempt([&] { require(parseEndpoint(text).host.size() <= size, "a host is longer than its text"); });
  return 0;
}
