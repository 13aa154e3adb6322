// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ways in which a proxy moves data to a peer, and sets of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace mscclpp {

// What a connection moves data by.
enum class Transport : std::uint8_t {
  memory,  // mapped memory, by copy engines; on the simulated machine by its own copies, also between its nodes
  ib,      // InfiniBand or RoCE verbs
  tcp,
};
inline constexpr std::array allTransports{Transport::memory, Transport::ib, Transport::tcp};

// "memory", "ib", "tcp": the words of MSCCLPP_TRANSPORT.
std::string_view nameOf(Transport transport) noexcept;

class TransportSet {
 public:
  constexpr TransportSet() = default;
  constexpr TransportSet(Transport one) noexcept : bits_(bitOf(one)) {}
  constexpr TransportSet(std::initializer_list<Transport> several) noexcept {
    for (auto one : several) bits_ |= bitOf(one);
  }
  // The set whose bits() these are, as messages between processes carry it: has(t) is bit number t. Bits of no known
  // transport are dropped.
  static constexpr TransportSet ofBits(std::uint32_t bits) noexcept {
    TransportSet set;
    for (auto one : allTransports) set.bits_ |= bits & bitOf(one);
    return set;
  }

  constexpr bool has(Transport one) const noexcept { return (bits_ & bitOf(one)) != 0; }
  constexpr bool empty() const noexcept { return bits_ == 0; }
  constexpr std::uint32_t bits() const noexcept { return bits_; }
  friend constexpr TransportSet operator|(TransportSet a, TransportSet b) noexcept { return ofBits(a.bits_ | b.bits_); }
  friend constexpr TransportSet operator&(TransportSet a, TransportSet b) noexcept { return ofBits(a.bits_ & b.bits_); }
  friend constexpr bool operator==(TransportSet, TransportSet) = default;

 private:
  static constexpr std::uint32_t bitOf(Transport one) noexcept { return 1u << static_cast<unsigned>(one); }
  std::uint32_t bits_ = 0;
};

}  // namespace mscclpp
