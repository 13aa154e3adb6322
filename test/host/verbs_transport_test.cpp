// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What needs no device runs everywhere; the rest where there is one: an HCA of this machine, or the software devices of
// the guest that test/softroce starts, where MSCCLPP_TEST_VERBS=1 makes their lack a failure.
#include "host/transport/verbs/verbs_transport.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

#include "transport_pair.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

bool lacksVerbs() { return std::getenv("MSCCLPP_TEST_VERBS") == nullptr && !missingVerbs().empty(); }

// The devices of the two ranks; MSCCLPP_TEST_VERBS_DEVICES may name them, as "rxe0;rxe1".
std::string devicesOf(int rank) {
  char const* const text = std::getenv("MSCCLPP_TEST_VERBS_DEVICES");
  if (text == nullptr) return "";
  std::string const both = text;
  auto const middle = both.find(';');
  return rank == 0 ? both.substr(0, middle) : both.substr(middle + 1);
}

VerbsOptions optionsOf(int rank) {
  VerbsOptions options;
  options.devices = devicesOf(rank);
  options.timeout = std::chrono::seconds(10);
  return options;
}

Pair pairOf(bool atomics = true) {
  auto first = optionsOf(0);
  auto second = optionsOf(1);
  first.atomics = second.atomics = atomics;
  return {makeVerbsTransport(first), makeVerbsTransport(second)};
}

// MSCCLPP_TEST_VERBS_LARGEST leaves out larger ones, which take long where packets are lost.
std::vector<std::size_t> someSizes() {
  char const* const largest = std::getenv("MSCCLPP_TEST_VERBS_LARGEST");
  std::vector<std::size_t> sizes{0, 1, 7, 8, 4095, 4096, 65537, (1u << 20) + 1, (17u << 20) + 3};
  if (largest != nullptr)
    std::erase_if(sizes, [&](std::size_t size) { return size > std::strtoull(largest, nullptr, 10); });
  return sizes;
}

}  // namespace

TEST_CASE("Where there is no device, the error says what is missing and what there is") {
  auto options = optionsOf(0);
  options.devices = "nothere_0";
  auto const error = errorOf([&] { makeVerbsTransport(options); });
  REQUIRE(error);
  bool const named = mentions(error, "nothere_0") && mentions(error, "this host has");
  bool const absent = error->code() == ErrorCode::unsupported;
  CHECK_MESSAGE((named || absent), textOf(error));
  options.devices = "";
  options.rails = 0;
  CHECK(mentions(errorOf([&] { makeVerbsTransport(options); }), "1 to 8"));
}

TEST_SUITE_BEGIN("device");

TEST_CASE("RDMA writes with atomic signals arrive whole, in both directions" * doctest::skip(lacksVerbs())) {
  exchangeSizes(pairOf(), someSizes());
}

TEST_CASE("Signals by immediate data arrive behind their writes" * doctest::skip(lacksVerbs())) {
  exchangeSizes(pairOf(false), someSizes());
  exchangeManyAtOnce(pairOf(false), 1500, 1u << 14, 2);
}

TEST_CASE("One side with atomics and one without signal each other" * doctest::skip(lacksVerbs())) {
  auto first = optionsOf(0);
  first.atomics = false;
  exchangeSizes({makeVerbsTransport(first), makeVerbsTransport(optionsOf(1))}, {1, 4096, 100000});
}

TEST_CASE("More posts than the send queue holds stay in order" * doctest::skip(lacksVerbs())) {
  exchangeManyAtOnce(pairOf(), 3000, 1u << 14, 4);
}

TEST_CASE("Several devices share large writes, and a signal waits for all" * doctest::skip(lacksVerbs())) {
  auto first = optionsOf(0);
  auto second = optionsOf(1);
  if (first.devices == second.devices) {
    MESSAGE("one device in two places");
    first.devices = second.devices = first.devices.empty() ? "" : first.devices + "," + second.devices;
    if (first.devices.empty()) return;
  } else {
    std::swap(first.devices, second.devices);
    auto const both = first.devices + "," + second.devices;
    second.devices = second.devices + "," + first.devices;
    first.devices = both;
  }
  exchangeSizes({makeVerbsTransport(first), makeVerbsTransport(second)}, {1, 4096, 600000, (9u << 20) + 1});
  exchangeManyAtOnce({makeVerbsTransport(first), makeVerbsTransport(second)}, 300, 4u << 20, 9);
  // The other side has only one.
  exchangeSizes({makeVerbsTransport(first), makeVerbsTransport(optionsOf(1))}, {1, 600000});
}

TEST_CASE("Memory that is no longer registered ends the connection with device, queue pair and status" *
          doctest::skip(lacksVerbs())) {
  for (bool const atomics : {true, false}) {  // without, receives fail with the queue pair, and must not hide why
    CAPTURE(atomics);
    auto const pair = pairOf(atomics);
    auto const error = errorOfStaleMemory(pair);
    REQUIRE(error);
    CHECK(error->code() == ErrorCode::remoteError);
    for (auto const* text : {"rank 0", "rank 1", "queue pair", "port 1", "status", "RegisteredMemory", "4096 bytes"}) {
      CHECK_MESSAGE(mentions(error, text), textOf(error));
    }
    // Every later call says the same.
    CHECK(textOf(errorOf([&] { pair.connections[0]->progress(); })) == textOf(error));
  }
}

TEST_CASE("A peer that leaves in good order is no failure until something is posted" * doctest::skip(lacksVerbs())) {
  auto first = optionsOf(0);
  first.timeout = std::chrono::seconds(2);
  Pair pair(makeVerbsTransport(first), makeVerbsTransport(first.devices == devicesOf(1) ? first : optionsOf(1)));
  auto const error = errorAfterGoodbye(pair, std::chrono::seconds(4));
  CHECK_MESSAGE(mentions(error, "rank 1 has closed the connection"), textOf(error));
}

TEST_CASE("A peer that is gone is noticed within the limit, also while nothing is posted" *
          doctest::skip(lacksVerbs())) {
  for (bool const posting : {true, false}) {
    CAPTURE(posting);
    auto first = optionsOf(0);
    auto second = optionsOf(1);
    first.timeout = second.timeout = std::chrono::seconds(2);
    Pair pair(makeVerbsTransport(first), makeVerbsTransport(second));
    auto const start = std::chrono::steady_clock::now();
    auto const error = errorAfterDeath(pair, posting);
    REQUIRE(error);
    CHECK_MESSAGE(mentions(error, "rank 1"), textOf(error));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(8));
  }
}

TEST_SUITE_END();
