// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the verbs transport decides without a device: names, GIDs, and whether a peer's bytes make sense.
#include <doctest/doctest.h>

#include <cstring>

#include "host/net/socket.hpp"
#include "host/transport/verbs/verbs_connection.hpp"
#include "ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

ibv_gid gidOf(std::initializer_list<std::uint8_t> first, std::initializer_list<std::uint8_t> last) {
  ibv_gid gid{};
  std::copy(first.begin(), first.end(), gid.raw);
  std::copy(last.begin(), last.end(), gid.raw + 16 - last.size());
  return gid;
}

VerbsAddress goodAddress() {
  VerbsAddress address{};
  address.rails = 2;
  for (auto& queue : address.queues)
    queue = {.queuePair = 17,
             .firstPacket = 5,
             .gid = {},
             .lid = 0,
             .mtu = IBV_MTU_4096,
             .ethernet = 1,
             .responderReads = 16,
             .reserved = {}};
  VerbsAddress wire{};
  auto const bytes = serialize(address);
  std::memcpy(&wire, bytes.data(), sizeof wire);
  return wire;
}

}  // namespace

TEST_CASE("Devices are named with or without port") {
  CHECK(parseVerbsNames("").empty());
  auto const names = parseVerbsNames("mlx5_0,rxe1:2");
  REQUIRE(names.size() == 2);
  CHECK(names[0].device == "mlx5_0");
  CHECK_FALSE(names[0].port);
  CHECK(names[1].device == "rxe1");
  CHECK(names[1].port == 2);
  for (char const* bad : {",", "mlx5_0,", ":1", "mlx5_0:", "mlx5_0:0", "mlx5_0:x", "mlx5_0:256", "a,,b"}) {
    CAPTURE(bad);
    auto const error = errorOf([&] { parseVerbsNames(bad); });
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::invalidUsage);
    CHECK(mentions(error, "MSCCLPP_IB_HCA"));
  }
}

TEST_CASE("IPv4 over RoCE v2 comes first, and an empty GID never") {
  auto const linkLocal = gidOf({0xfe, 0x80}, {1, 2, 3});
  auto const routed = gidOf({0x20, 0x01}, {1});
  auto const mapped = gidOf({}, {0xff, 0xff, 10, 0, 0, 1});
  CHECK(scoreOfGid(ibv_gid{}, true, true) == 0);
  CHECK(scoreOfGid(ibv_gid{}, false, {}) == 0);
  CHECK(scoreOfGid(linkLocal, false, {}) > 0);
  int last = 0;
  for (auto const& [gid, version2] : {std::pair{linkLocal, false}, std::pair{routed, false}, std::pair{mapped, false},
                                      std::pair{linkLocal, true}, std::pair{routed, true}, std::pair{mapped, true}}) {
    int const score = scoreOfGid(gid, true, version2);
    CHECK(score > last);
    last = score;
  }
  CHECK(scoreOfGid(mapped, true, {}) == scoreOfGid(mapped, true, false));
}

TEST_CASE("An address that makes no sense is refused, naming both ranks") {
  CHECK_NOTHROW(parseVerbsAddress(3, 4, bytesOf(goodAddress())));
  auto const refused = [](auto&& change) {
    auto address = goodAddress();
    change(address);
    auto const error = errorOf([&] { parseVerbsAddress(3, 4, bytesOf(address)); });
    return error && error->code() == ErrorCode::remoteError && mentions(error, "rank 3") && mentions(error, "rank 4");
  };
  CHECK(refused([](VerbsAddress& it) { it.magic ^= 1; }));
  CHECK(refused([](VerbsAddress& it) { it.version = 2; }));
  CHECK(refused([](VerbsAddress& it) { it.rails = 0; }));
  CHECK(refused([](VerbsAddress& it) { it.rails = 9; }));
  CHECK(refused([](VerbsAddress& it) { it.queues[1].mtu = 0; }));
  CHECK(refused([](VerbsAddress& it) { it.queues[1].mtu = 6; }));
  CHECK(refused([](VerbsAddress& it) { it.queues[0].queuePair = 1u << 24; }));
  CHECK(refused([](VerbsAddress& it) { it.queues[0].firstPacket = 1u << 24; }));
  CHECK(refused([](VerbsAddress& it) { it.queues[0].ethernet = 2; }));
  CHECK(mentions(errorOf([] { parseVerbsAddress(3, 4, {}); }), "0 bytes, 288 expected"));
}

TEST_CASE("A key that makes no sense is refused") {
  VerbsKey good{.address = 4096, .bytes = 64, .rails = 1, .keys = {}, .reserved = 0};
  CHECK_NOTHROW(parseVerbsKey(0, 1, bytesOf(good)));
  for (auto const& [rails, bytes] : {std::pair{0u, 64ull}, std::pair{9u, 64ull}, std::pair{1u, ~0ull}}) {
    auto bad = good;
    bad.rails = rails;
    bad.bytes = bytes;
    CHECK(mentions(errorOf([&] { parseVerbsKey(0, 1, bytesOf(bad)); }), "memory of rank 1"));
  }
  CHECK(mentions(errorOf([&] { parseVerbsKey(0, 1, bytesOf(good).first(8)); }), "(8 bytes)"));
}
