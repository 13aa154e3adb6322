// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/bootstrap/unique_id.hpp"

#include <cstring>

#include "base/format.hpp"
#include "base/random.hpp"

namespace mscclpp {
namespace {

// As carried: fixed places and byte order, so that hosts of different kinds agree.
constexpr std::array<std::uint8_t, 8> magic{'m', 's', 'c', 'c', 'l', 'p', 'p', 1};
constexpr std::size_t secretAt = 8;
constexpr std::size_t portAt = 24;
constexpr std::size_t hostAt = 26;
constexpr std::size_t hostBytes = 64;
constexpr std::size_t checkAt = 124;

// FNV-1a: finds truncated or altered text, which is not a matter of secrecy here.
std::uint32_t checksum(std::array<std::byte, uniqueIdBytes> const& bytes) {
  std::uint32_t hash = 2166136261u;
  for (std::size_t i = 0; i < checkAt; ++i) hash = (hash ^ std::to_integer<std::uint32_t>(bytes[i])) * 16777619u;
  return hash;
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

UniqueId UniqueId::create(std::string const& host, std::uint16_t port) {
  if (host.empty() || host.size() >= hostBytes) {
    fail(ErrorCode::invalidUsage, "unique id: host \"{}\" has {} characters, allowed are 1 to {}", host, host.size(),
         hostBytes - 1);
  }
  if (port == 0) fail(ErrorCode::invalidUsage, "unique id: port 0 of host {} cannot be connected to", host);
  UniqueId id;
  id.host_ = host;
  id.port_ = port;
  id.secret_ = randomKey();
  return id;
}

std::array<std::byte, uniqueIdBytes> UniqueId::toBytes() const {
  std::array<std::byte, uniqueIdBytes> bytes{};
  std::memcpy(bytes.data(), magic.data(), magic.size());
  std::memcpy(bytes.data() + secretAt, secret_.data(), secret_.size());
  bytes[portAt] = static_cast<std::byte>(port_ & 0xff);
  bytes[portAt + 1] = static_cast<std::byte>(port_ >> 8);
  std::memcpy(bytes.data() + hostAt, host_.data(), host_.size());
  std::uint32_t const check = checksum(bytes);
  for (std::size_t i = 0; i < 4; ++i) bytes[checkAt + i] = static_cast<std::byte>((check >> (8 * i)) & 0xff);
  return bytes;
}

UniqueId UniqueId::fromBytes(std::span<std::byte const> bytes) {
  if (bytes.size() != uniqueIdBytes) {
    fail(ErrorCode::invalidUsage, "unique id: got {} bytes, expected {}", bytes.size(), uniqueIdBytes);
  }
  std::array<std::byte, uniqueIdBytes> copy{};
  std::memcpy(copy.data(), bytes.data(), copy.size());
  if (std::memcmp(copy.data(), magic.data(), magic.size()) != 0) {
    fail(ErrorCode::invalidUsage,
         "unique id: the bytes do not begin with this version's mark; were they made by "
         "TcpBootstrap::createUniqueId() of the same library version, and carried unchanged to this rank?");
  }
  std::uint32_t check = 0;
  for (std::size_t i = 0; i < 4; ++i) check |= std::to_integer<std::uint32_t>(copy[checkAt + i]) << (8 * i);
  if (check != checksum(copy)) {
    fail(ErrorCode::invalidUsage, "unique id: the bytes were altered on their way (their checksum does not match)");
  }
  UniqueId id;
  std::memcpy(id.secret_.data(), copy.data() + secretAt, id.secret_.size());
  id.port_ = static_cast<std::uint16_t>(std::to_integer<unsigned>(copy[portAt]) |
                                        (std::to_integer<unsigned>(copy[portAt + 1]) << 8));
  auto const* host = reinterpret_cast<char const*>(copy.data() + hostAt);
  id.host_.assign(host, ::strnlen(host, hostBytes));
  if (id.host_.empty() || id.host_.size() == hostBytes || id.port_ == 0) {
    fail(ErrorCode::invalidUsage, "unique id: the bytes hold no usable address (host \"{}\", port {})", id.host_,
         id.port_);
  }
  return id;
}

std::string UniqueId::toString() const {
  auto const bytes = toBytes();
  std::string text;
  text.reserve(2 * bytes.size());
  for (std::byte b : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

UniqueId UniqueId::fromString(std::string_view hex) {
  if (hex.size() != 2 * uniqueIdBytes) {
    fail(ErrorCode::invalidUsage, "unique id: the text has {} characters, expected {} hexadecimal digits", hex.size(),
         2 * uniqueIdBytes);
  }
  std::array<std::byte, uniqueIdBytes> bytes{};
  for (std::size_t i = 0; i < hex.size(); ++i) {
    int const value = digit(hex[i]);
    if (value < 0) {
      fail(ErrorCode::invalidUsage, "unique id: character {} of the text, '{}', is no hexadecimal digit", i, hex[i]);
    }
    bytes[i / 2] = static_cast<std::byte>((std::to_integer<int>(bytes[i / 2]) << 4) | value);
  }
  return fromBytes(bytes);
}

}  // namespace mscclpp
