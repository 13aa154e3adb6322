// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/bootstrap/unique_id.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "base/keyed_hash.hpp"
#include "host/ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

TEST_CASE("bytes and text give the id back") {
  UniqueId const id = UniqueId::create("10.1.2.3", 5000);
  CHECK(id.host() == "10.1.2.3");
  CHECK(id.port() == 5000);
  auto const bytes = id.toBytes();
  CHECK(bytes.size() == 128);
  CHECK(UniqueId::fromBytes(bytes) == id);
  CHECK(UniqueId::fromString(id.toString()) == id);
  UniqueId const longest = UniqueId::create(std::string(63, 'h'), 65535);
  CHECK(UniqueId::fromBytes(longest.toBytes()) == longest);
}

TEST_CASE("each id has a secret of its own") {
  UniqueId const a = UniqueId::create("h", 1);
  UniqueId const b = UniqueId::create("h", 1);
  CHECK(a.secret() != b.secret());
  CHECK(a.secret() != UniqueId::Secret{});
}

TEST_CASE("every altered byte is noticed") {
  auto const good = UniqueId::create("10.1.2.3", 5000).toBytes();
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto bad = good;
    bad[i] ^= std::byte{0x40};
    CAPTURE(i);
    CHECK(errorOf([&] { UniqueId::fromBytes(bad); }).has_value());
  }
}

TEST_CASE("bad input is named") {
  CHECK(mentions(errorOf([] { UniqueId::fromBytes(std::vector<std::byte>(127)); }), "got 127 bytes, expected 128"));
  CHECK(mentions(errorOf([] { UniqueId::fromBytes(std::vector<std::byte>(128)); }), "createUniqueId()"));
  CHECK(mentions(errorOf([] { UniqueId::fromString("abc"); }), "3 characters"));
  CHECK(mentions(errorOf([] { UniqueId::fromString(std::string(256, 'x')); }), "character 0"));
  CHECK(mentions(errorOf([] { UniqueId::create("", 1); }), "1 to 63"));
  CHECK(mentions(errorOf([] { UniqueId::create(std::string(64, 'h'), 1); }), "64 characters"));
  CHECK(mentions(errorOf([] { UniqueId::create("h", 0); }), "port 0"));
}

TEST_CASE("the keyed hash is SipHash-2-4: its published test values") {
  Key128 key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::uint8_t>(i);
  std::vector<std::byte> message;
  CHECK(keyedHash(key, message) == 0x726fdb47dd0e0e31ull);
  for (int i = 0; i < 15; ++i) message.push_back(static_cast<std::byte>(i));
  CHECK(keyedHash(key, message) == 0xa129ca6149be45e5ull);
}
