// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// RegisteredMemory::deserialize: bytes as they come, and those of a real memory with some changed and the check sum
// made right again, which gets further.
#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "../host/fake_runtime.hpp"
#include "base/keyed_hash.hpp"
#include "fuzz.hpp"
#include "host/transport/tcp/tcp_transport.hpp"
#include "mscclpp/host/memory.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr Device device{DeviceKind::sim, 0};
// Where the record ends, with the check sum; a record of another form makes the deeper way a shallow one, and the first
// run complains.
constexpr std::size_t recordBytes = 264;

void correctSum(std::vector<std::byte>& bytes) {
  if (bytes.size() < recordBytes) return;
  std::vector<std::byte> text(bytes.begin(), bytes.begin() + recordBytes - 8);
  text.insert(text.end(), bytes.begin() + recordBytes, bytes.end());
  auto const sum = keyedHash(Key128{}, text);
  std::memcpy(bytes.data() + recordBytes - 8, &sum, sizeof sum);
}

struct Original {
  std::shared_ptr<TransportContext> transport;
  RegisteredMemory memory;
  std::vector<std::byte> bytes;

  Original() {
    setLogLevel(LogLevel::off);
    auto& machine = FakeRuntime::instance();
    TcpOptions options;
    options.interfaceName = "lo";
    options.timeout = std::chrono::seconds(1);
    transport = makeTcpTransport(options);
    auto* const base = machine.allocate(0, 4096, MemoryKind::standard);
    memory = RegisteredMemory::own(0, device, base, 4096, std::span(&transport, 1));
    bytes = memory.serialize();
    auto again = bytes;
    correctSum(again);
    require(again == bytes, "the check sum is made otherwise now: correct this test");
  }
};

void take(std::vector<std::byte> const& bytes) {
  attempt([&] {
    auto const memory = RegisteredMemory::deserialize(bytes, device);
    auto const set = memory.transports();
    for (auto const transport : allTransports) {
      if (set.has(transport) && transport != Transport::memory) memory.key(transport);
    }
    if (memory.reach() != MemoryReach::otherHost) require(memory.data() != nullptr, "mapped memory has no address");
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  static Original const original;
  auto const bytes = bytesOfInput(data, size);
  take({bytes.begin(), bytes.end()});
  // Pairs of place and change; the rest is appended.
  auto changed = original.bytes;
  auto rest = bytes;
  for (int i = 0; i < 8 && rest.size() >= 3; ++i, rest = rest.subspan(3)) {
    auto const at = (static_cast<std::size_t>(rest[0]) << 8 | static_cast<std::size_t>(rest[1])) % changed.size();
    changed[at] ^= rest[2];
  }
  if (!rest.empty() && rest[0] == std::byte{1}) changed.insert(changed.end(), rest.begin() + 1, rest.end());
  if (!rest.empty() && rest[0] == std::byte{2}) changed.resize(changed.size() - std::min(changed.size(), rest.size()));
  correctSum(changed);
  take(changed);
  return 0;
}
