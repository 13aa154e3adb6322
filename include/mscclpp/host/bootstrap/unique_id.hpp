// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the ranks of one job must know to find each other: where rank 0 listens, and a secret that only they have. It is
// made on rank 0's host (TcpBootstrap::createUniqueId); the program carries its 128 bytes, or its text, to the others.
// Whoever holds it can join, so it should not be printed in shared logs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mscclpp {

inline constexpr std::size_t uniqueIdBytes = 128;

class UniqueId {
 public:
  using Secret = std::array<std::uint8_t, 16>;

  UniqueId() = default;
  // `host` is an address or host name of at most 63 characters; the secret is fresh from the operating system.
  static UniqueId create(std::string const& host, std::uint16_t port);

  // Throws invalidUsage for bytes or text that no UniqueId wrote.
  static UniqueId fromBytes(std::span<std::byte const> bytes);
  static UniqueId fromString(std::string_view hex);

  // With a checksum, by which fromBytes() knows it again. The secret lies open in it.
  std::array<std::byte, uniqueIdBytes> toBytes() const;
  std::string toString() const;  // 256 hexadecimal digits

  // Rank 0 listens at port() of host().
  std::string const& host() const noexcept { return host_; }
  std::uint16_t port() const noexcept { return port_; }
  Secret const& secret() const noexcept { return secret_; }

  friend bool operator==(UniqueId const&, UniqueId const&) = default;

 private:
  std::string host_;
  std::uint16_t port_ = 0;
  Secret secret_{};
};

}  // namespace mscclpp
