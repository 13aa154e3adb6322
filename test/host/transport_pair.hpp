// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two ranks of this process joined by one transport, each with memory of a machine without kernels, and the steps that
// tests take with them.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "fake_runtime.hpp"
#include "host/transport/transport.hpp"
#include "random_bytes.hpp"
#include "ranks.hpp"

namespace mscclpp::test {

inline constexpr Device pairDevice{DeviceKind::sim, 0};

// Registers memory of `inner` so that a test can end a registration while the memory, and what was sent of it, stay.
class LooseContext final : public TransportContext {
 public:
  explicit LooseContext(std::shared_ptr<TransportContext> inner) : inner_(std::move(inner)) {}

  Transport transport() const noexcept override { return inner_->transport(); }
  std::shared_ptr<Registration> registerMemory(int rank, Device device, void* data, std::size_t bytes) override {
    registration_ = inner_->registerMemory(rank, device, data, bytes);
    return std::make_shared<Key>(registration_->key());
  }
  std::unique_ptr<TransportEndpoint> createEndpoint(int rank, Device device) override {
    return inner_->createEndpoint(rank, device);
  }
  // Of the memory registered last.
  void end() { registration_.reset(); }

 private:
  class Key final : public Registration {
   public:
    explicit Key(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
    std::vector<std::byte> key() const override { return bytes_; }

   private:
    std::vector<std::byte> bytes_;
  };
  std::shared_ptr<TransportContext> inner_;
  std::shared_ptr<Registration> registration_;
};

// Host memory of the machine without kernels, registered with one transport.
class Plot {
 public:
  Plot(int rank, std::shared_ptr<TransportContext> const& context, std::size_t bytes)
      : base_(static_cast<std::byte*>(FakeRuntime::instance().allocate(0, bytes, MemoryKind::standard))),
        bytes_(bytes),
        memory_(RegisteredMemory::own(rank, pairDevice, base_, bytes, std::span(&context, 1))) {}
  ~Plot() {
    memory_ = {};
    FakeRuntime::instance().release(base_);
  }
  Plot(Plot const&) = delete;
  Plot& operator=(Plot const&) = delete;

  std::span<std::byte> bytes() const { return {base_, bytes_}; }
  std::uint64_t* words() const { return reinterpret_cast<std::uint64_t*>(base_); }
  RegisteredMemory const& memory() const { return memory_; }
  // As a peer gets it.
  RegisteredMemory sent() const { return RegisteredMemory::deserialize(memory_.serialize(), pairDevice); }

 private:
  std::byte* base_;
  std::size_t bytes_;
  RegisteredMemory memory_;
};

struct Pair {
  std::array<std::shared_ptr<TransportContext>, 2> contexts;
  std::array<std::unique_ptr<TransportEndpoint>, 2> endpoints;
  std::array<std::shared_ptr<Connection>, 2> connections;

  Pair(std::shared_ptr<TransportContext> first, std::shared_ptr<TransportContext> second)
      : contexts{std::move(first), std::move(second)} {
    for (int rank : {0, 1}) endpoints[at(rank)] = contexts[at(rank)]->createEndpoint(rank, pairDevice);
    for (int rank : {0, 1}) {
      connections[at(rank)] = endpoints[at(rank)]->connect(rank, 1 - rank, endpoints[at(1 - rank)]->address());
    }
  }
  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  // Until all posts of `rank` are complete; the other one is served as well.
  void finish(int rank, std::chrono::seconds limit = std::chrono::seconds(30)) const {
    auto const end = std::chrono::steady_clock::now() + limit;
    auto& connection = *connections[at(rank)];
    while (connection.progress() < connection.posted()) {
      connections[at(1 - rank)]->progress();
      REQUIRE_MESSAGE(std::chrono::steady_clock::now() < end, "posts did not complete");
    }
  }
};

// Steps `rank` until it throws, or the limit passes.
inline std::optional<Error> errorOfProgress(Pair const& pair, int rank,
                                            std::chrono::seconds limit = std::chrono::seconds(20)) {
  auto const end = std::chrono::steady_clock::now() + limit;
  return errorOf([&] {
    while (std::chrono::steady_clock::now() < end) {
      pair.connections[Pair::at(rank)]->progress();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
}

// What rank 0 is told that writes to memory of rank 1 which is no longer registered.
inline std::optional<Error> errorOfStaleMemory(Pair const& pair) {
  auto const loose = std::make_shared<LooseContext>(pair.contexts[1]);
  Plot const source(0, pair.contexts[0], 4096);
  Plot const target(1, loose, 4096);
  auto const sent = target.sent();
  loose->end();
  pair.connections[0]->write(sent, 0, source.memory(), 0, 4096);
  return errorOfProgress(pair, 0);
}

// Ends rank 1's side in good order, checks that rank 0 goes on for `idle`, and returns what a post then throws.
inline std::optional<Error> errorAfterGoodbye(Pair& pair, std::chrono::seconds idle) {
  Plot const source(0, pair.contexts[0], 64);
  Plot const target(1, pair.contexts[1], 64);
  auto const sent = target.sent();
  pair.connections[1].reset();
  pair.endpoints[1].reset();
  auto const end = std::chrono::steady_clock::now() + idle;
  while (std::chrono::steady_clock::now() < end) {
    pair.connections[0]->progress();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return errorOf([&] {
    pair.connections[0]->write(sent, 0, source.memory(), 0, 64);
    auto const late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < late) pair.connections[0]->progress();
  });
}

// Ends rank 1's side with a post outstanding, as where its process dies, and returns what rank 0 then learns.
inline std::optional<Error> errorAfterDeath(Pair& pair, bool posting) {
  Plot const source(0, pair.contexts[0], 64);
  Plot const target(1, pair.contexts[1], 64);
  Plot const theirs(1, pair.contexts[1], 64);
  Plot const ours(0, pair.contexts[0], 64);
  auto const sent = target.sent();
  pair.connections[1]->write(ours.sent(), 0, theirs.memory(), 0, 64);
  pair.connections[1].reset();
  pair.endpoints[1].reset();
  if (posting) {
    auto const error = errorOf([&] { pair.connections[0]->write(sent, 0, source.memory(), 0, 64); });
    if (error) return error;  // it was known already
  }
  return errorOfProgress(pair, 0, std::chrono::seconds(15));
}

// Writes of many sizes and alignments in both directions at once, each followed by a signal whose receiver looks at the
// data at once.
inline void exchangeSizes(Pair const& pair, std::vector<std::size_t> const& sizes) {
  std::size_t largest = 0;
  for (auto const size : sizes) largest = std::max(largest, size);
  std::size_t const room = largest + 64;
  std::array<std::unique_ptr<Plot>, 2> sources;
  std::array<std::unique_ptr<Plot>, 2> targets;
  std::array<std::unique_ptr<Plot>, 2> words;
  for (int rank : {0, 1}) {
    auto const i = Pair::at(rank);
    sources[i] = std::make_unique<Plot>(rank, pair.contexts[i], room);
    targets[i] = std::make_unique<Plot>(rank, pair.contexts[i], room);
    words[i] = std::make_unique<Plot>(rank, pair.contexts[i], 64);
    fillRandom(sources[i]->bytes(), 7 + i);
  }
  std::uint64_t count = 0;
  for (auto const size : sizes) {
    ++count;
    std::size_t const srcOffset = count % 13;
    std::size_t const dstOffset = count * 5 % 31;
    for (int rank : {0, 1}) {
      auto const i = Pair::at(rank);
      std::fill(targets[i]->bytes().begin(), targets[i]->bytes().end(), std::byte{0xee});
      auto& connection = *pair.connections[i];
      connection.write(targets[1 - i]->sent(), dstOffset, sources[i]->memory(), srcOffset, size);
      connection.signal(words[1 - i]->sent(), 8, count);
    }
    auto const end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int rank : {0, 1}) {
      auto const i = Pair::at(rank);
      while (std::atomic_ref(words[i]->words()[1]).load(std::memory_order_acquire) < count) {
        pair.connections[0]->progress();
        pair.connections[1]->progress();
        REQUIRE_MESSAGE(std::chrono::steady_clock::now() < end, "no signal after " << size << " bytes");
      }
      CHECK(words[i]->words()[1] == count);
      CHECK(words[i]->words()[0] == 0);
      auto const got = targets[i]->bytes();
      auto const sent = sources[1 - i]->bytes();
      INFO("size ", size);
      CHECK(std::memcmp(got.data() + dstOffset, sent.data() + srcOffset, size) == 0);
      if (dstOffset > 0) CHECK(got[dstOffset - 1] == std::byte{0xee});
      CHECK(got[dstOffset + size] == std::byte{0xee});
    }
    pair.finish(0);
    pair.finish(1);
  }
}

// Many small and large writes in flight together, with a signal now and then; what arrived is compared at the end.
inline void exchangeManyAtOnce(Pair const& pair, int posts, std::size_t largest, std::uint64_t seed) {
  std::size_t const room = std::size_t{4} << 20;
  Plot const source(0, pair.contexts[0], room);
  Plot const target(1, pair.contexts[1], room);
  Plot const word(1, pair.contexts[1], 8);
  fillRandom(source.bytes(), seed);
  std::vector<std::byte> expected(room);
  auto const sentTarget = target.sent();
  auto const sentWord = word.sent();
  std::mt19937_64 random(seed);
  std::size_t at = 0;
  std::uint64_t count = 0;
  auto& connection = *pair.connections[0];
  for (int post = 0; post < posts; ++post) {
    auto const shift = random() % 24;
    auto const size = std::min<std::size_t>(random() % (std::size_t{1} << shift) % largest, room - at);
    auto const from = random() % (room - size + 1);
    connection.write(sentTarget, at, source.memory(), from, size);
    std::memcpy(expected.data() + at, source.bytes().data() + from, size);
    at += size;
    if (random() % 4 == 0) connection.signal(sentWord, 0, ++count);
    if (random() % 64 == 0) connection.progress();
    if (at == room) {  // a write must not overtake an earlier one to the same place
      pair.finish(0);
      at = 0;
    }
  }
  connection.signal(sentWord, 0, ++count);
  pair.finish(0);
  // A signal that comes as a record takes effect when the peer's side looks at it.
  auto const end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::atomic_ref(word.words()[0]).load() != count && std::chrono::steady_clock::now() < end) {
    pair.connections[1]->progress();
  }
  CHECK(word.words()[0] == count);
  CHECK(std::memcmp(target.bytes().data(), expected.data(), room) == 0);
}

}  // namespace mscclpp::test
