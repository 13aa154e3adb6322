// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Addresses of verbs endpoints, keys of memory, and the names of devices that a user gives.
#include <cstring>
#include <string>

#include "fuzz.hpp"
#include "host/transport/verbs/verbs_connection.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  auto const bytes = bytesOfInput(data, size);
  attempt([&] {
    auto const address = parseVerbsAddress(0, 1, bytes);
    require(address.rails >= 1 && address.rails <= mostRails, "an impossible number of devices passed");
    auto const again = serialize(address);
    require(std::memcmp(again.data(), bytes.data(), again.size()) == 0, "an address changed on its way");
  });
  attempt([&] {
    auto const key = parseVerbsKey(0, 1, bytes);
    require(key.rails >= 1 && key.rails <= mostRails, "an impossible number of keys passed");
    require(key.address + key.bytes >= key.address, "memory beyond the end of addresses passed");
  });
  attempt([&] {
    for (auto const& name : parseVerbsNames({reinterpret_cast<char const*>(data), size})) {
      require(!name.device.empty() && name.port.value_or(1) >= 1, "a device without name or port passed");
    }
  });
  return 0;
}
