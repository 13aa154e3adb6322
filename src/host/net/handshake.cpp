// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/net/handshake.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>

#include "base/keyed_hash.hpp"

namespace mscclpp {
namespace {

constexpr std::chrono::nanoseconds leastAnsweringTime = std::chrono::milliseconds(500);

template <std::size_t N>
bool sameHash(std::uint64_t a, std::uint64_t b) {
  std::array<std::uint8_t, N> left{};
  std::array<std::uint8_t, N> right{};
  std::memcpy(left.data(), &a, N);
  std::memcpy(right.data(), &b, N);
  return equalConstantTime(left, right);
}

std::uint64_t proofOf(Key128 const& key, Key128 const& nonce, std::span<std::byte const> message) {
  auto const first = std::as_bytes(std::span(nonce));
  std::vector<std::byte> text(first.begin(), first.end());
  text.insert(text.end(), message.begin(), message.end());
  return keyedHash(key, text);
}

std::uint64_t proofOf(Key128 const& key, Greeting const& greeting, Hello const& hello) {
  return proofOf(key, greeting.nonce, bytesOf(hello).first(offsetof(Hello, proof)));
}

std::uint64_t proofOf(Key128 const& key, Hello const& hello, Verdict const& verdict) {
  return proofOf(key, hello.nonce, bytesOf(verdict).first(offsetof(Verdict, proof)));
}

std::string brokenReason(int error, char const* awaited) {
  if (error == ETIMEDOUT) return fmt::format("it accepted the connection but sent no {}", awaited);
  return fmt::format("it closed the connection before its {} ({})", awaited, std::strerror(error));
}

}  // namespace

std::string_view nameOf(Admission admission) {
  switch (admission) {
    case Admission::admitted:
      return "admitted";
    case Admission::wrongSecret:
      return "the secret differs";
    case Admission::wrongRanks:
      return "the number of ranks differs";
    case Admission::rankOutOfRange:
      return "the rank is out of range";
    case Admission::rankTaken:
      return "the rank has joined already";
    case Admission::wrongPurpose:
      return "the connection is for another rank";
  }
  return "unknown refusal";
}

Greeting makeGreeting() { return {wireMagic, wireVersion, 0, randomKey()}; }

bool proves(Key128 const& key, Greeting const& greeting, Hello const& hello) {
  return sameHash<8>(hello.proof, proofOf(key, greeting, hello));
}

Verdict makeVerdict(Key128 const& key, Hello const& hello, Admission admission, int ranks) {
  Verdict verdict{wireMagic, admission, ranks, 0};
  verdict.proof = proofOf(key, hello, verdict);
  return verdict;
}

HandshakeResult introduce(int socket, Key128 const& key, Hello hello, Deadline const& deadline) {
  using Kind = HandshakeResult::Kind;
  Greeting greeting{};
  if (int const error = recvAll(socket, writableBytesOf(greeting), deadline); error != 0) {
    return {Kind::broken, {}, brokenReason(error, "greeting")};
  }
  if (greeting.magic != wireMagic) return {Kind::stranger, {}, "what listens there is another program"};
  if (greeting.version != wireVersion) {
    return {Kind::stranger,
            {},
            fmt::format("it speaks version {} of the bootstrap, this rank version {}", greeting.version, wireVersion)};
  }
  // Once the other knows who this is, it takes the end of the connection for the end of this rank.
  if (deadline.expired()) return {Kind::broken, {}, brokenReason(ETIMEDOUT, "greeting in time")};
  Deadline const answering(std::max<std::chrono::nanoseconds>(deadline.left(), leastAnsweringTime));
  hello.magic = wireMagic;
  hello.version = wireVersion;
  hello.nonce = randomKey();
  hello.proof = proofOf(key, greeting, hello);
  if (int const error = sendAll(socket, bytesOf(hello), answering); error != 0) {
    return {Kind::broken, {}, brokenReason(error, "greeting")};
  }
  Verdict verdict{};
  if (int const error = recvAll(socket, writableBytesOf(verdict), answering); error != 0) {
    return {Kind::broken, {}, brokenReason(error, "verdict")};
  }
  if (verdict.magic != wireMagic) return {Kind::stranger, {}, "what listens there is another program"};
  if (verdict.admission == Admission::wrongSecret || !sameHash<8>(verdict.proof, proofOf(key, hello, verdict))) {
    verdict.admission = Admission::wrongSecret;
  }
  if (verdict.admission != Admission::admitted) return {Kind::refused, verdict, std::string(nameOf(verdict.admission))};
  if (hello.purpose != Purpose::lane) {
    if (int const error = sendAll(socket, bytesOf(wireMagic), answering); error != 0) {
      return {Kind::broken, {}, fmt::format("it closed the connection after its verdict ({})", std::strerror(error))};
    }
  }
  return {Kind::admitted, verdict, {}};
}

}  // namespace mscclpp
