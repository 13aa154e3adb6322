// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How two ends of a bootstrap connection make sure of each other. The accepting end sends a greeting with a nonce; the
// connecting end answers with a hello that says who it is, proved by a keyed hash over the nonce and the hello; the
// accepting end answers with a verdict, proved over the hello's nonce. All parts have fixed sizes.
//
// Between ranks of a bootstrap the connecting end closes by repeating wireMagic: only then the accepting one takes the
// end of the connection for the end of the rank, which may have given up waiting for the verdict.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/random.hpp"
#include "host/net/socket.hpp"

namespace mscclpp {

inline constexpr std::uint64_t wireMagic = 0x6d7363636c707031ull;  // also tells hosts of another byte order
inline constexpr std::uint32_t wireVersion = 3;
// An honest peer answers a greeting at once; whoever takes longer is cut off by the accepting end.
inline constexpr std::chrono::nanoseconds examinationLimit = std::chrono::seconds(10);
// Above this the oldest that has yet to answer is cut off: an honest one is never the oldest for long.
inline constexpr std::size_t mostCandidates = 512;

struct Greeting {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  Key128 nonce;
};
static_assert(sizeof(Greeting) == 32);

enum class Purpose : std::uint32_t { join = 1, peer = 2, lane = 3 };  // the last is for the TCP transport

struct Hello {
  std::uint64_t magic;
  std::uint32_t version;
  Purpose purpose;
  std::int32_t rank;
  std::int32_t ranks;
  Key128 nonce;
  std::uint64_t hostIdentity;
  WireAddress listener;
  std::uint32_t reserved;
  std::uint64_t proof;

  // Of a lane, which belongs to an endpoint: in the places of what only a rank that joins has to say.
  std::uint64_t endpoint() const { return hostIdentity; }
  std::int32_t lane() const { return ranks; }
};
static_assert(sizeof(Hello) == 80);

enum class Admission : std::uint32_t { admitted = 0, wrongSecret, wrongRanks, rankOutOfRange, rankTaken, wrongPurpose };
std::string_view nameOf(Admission admission);

struct Verdict {
  std::uint64_t magic;
  Admission admission;
  std::int32_t ranks;  // as the accepting end has it
  std::uint64_t proof;
};
static_assert(sizeof(Verdict) == 24);

Greeting makeGreeting();
bool proves(Key128 const& key, Greeting const& greeting, Hello const& hello);
Verdict makeVerdict(Key128 const& key, Hello const& hello, Admission admission, int ranks);

// The connecting end. `hello` comes with purpose, rank, ranks, identity and listener filled in.
struct HandshakeResult {
  enum class Kind { admitted, refused, stranger, broken } kind = Kind::broken;
  Verdict verdict{};   // where refused
  std::string reason;  // for people, where not admitted
};
HandshakeResult introduce(int socket, Key128 const& key, Hello hello, Deadline const& deadline);

}  // namespace mscclpp
