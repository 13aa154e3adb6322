// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/transport/tcp/tcp_transport.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <vector>

#include "host/transport/tcp/tcp_frame.hpp"
#include "host/transport/tcp/tcp_outbound.hpp"
#include "host/transport/tcp/tcp_service.hpp"
#include "transport_pair.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

TcpOptions loopback() {
  TcpOptions options;
  options.interfaceName = "lo";
  options.timeout = std::chrono::seconds(5);
  return options;
}

Pair pairOf(TcpOptions const& options) { return {makeTcpTransport(options), makeTcpTransport(options)}; }

std::vector<std::size_t> const someSizes{
    0, 1, 7, 8, 4095, 4096, 65536, 65537, (4u << 20) - 1, 4u << 20, (9u << 20) + 5};

}  // namespace

TEST_CASE("What is written and signalled over TCP arrives whole, in both directions") {
  exchangeSizes(pairOf(loopback()), someSizes);
}

TEST_CASE("Several sockets in each direction keep a signal behind the writes before it") {
  auto options = loopback();
  options.lanes = 3;
  exchangeSizes(pairOf(options), someSizes);
  exchangeManyAtOnce(pairOf(options), 4000, 1u << 20, 3);
}

TEST_CASE("Without zero-copy the same arrives") {
  auto options = loopback();
  options.zeroCopy = false;
  exchangeSizes(pairOf(options), someSizes);
}

TEST_CASE("Memory that only the device can use goes through staging") {
  auto options = loopback();
  options.stageAll = true;
  exchangeSizes(pairOf(options), someSizes);
  options.lanes = 2;
  exchangeManyAtOnce(pairOf(options), 2000, 3u << 20, 5);
}

TEST_CASE("Once a registration has ended, nothing is copied into the memory any more") {
  auto& machine = FakeRuntime::instance();
  machine.wishes.lateCopies = true;
  constexpr std::size_t bytes = 8 * StagingSlots::slotBytes;
  auto receives = loopback();
  receives.stageAll = true;
  {
    Pair const pair(makeTcpTransport(loopback()), makeTcpTransport(receives));
    auto const loose = std::make_shared<LooseContext>(pair.contexts[1]);
    Plot const source(0, pair.contexts[0], bytes);
    Plot const target(1, loose, bytes);
    fillRandom(source.bytes(), 3);
    pair.connections[0]->write(target.sent(), 0, source.memory(), 0, bytes);
    auto const end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (machine.copiesUnderWay() < StagingSlots::count && std::chrono::steady_clock::now() < end) {
      pair.connections[0]->progress();
    }
    REQUIRE(machine.copiesUnderWay() == StagingSlots::count);
    loose->end();
    CHECK(machine.copiesUnderWay() == 0);
    constexpr auto came = StagingSlots::count * StagingSlots::slotBytes;
    CHECK(std::memcmp(target.bytes().data(), source.bytes().data(), came) == 0);
    std::fill(target.bytes().begin(), target.bytes().end(), std::byte{0xee});
    auto const error = errorOfProgress(pair, 0);
    CHECK_MESSAGE(mentions(error, "not registered there"), textOf(error));
    CHECK(std::all_of(target.bytes().begin(), target.bytes().end(), [](auto each) { return each == std::byte{0xee}; }));
    CHECK(machine.copiesUnderWay() == 0);
  }
  machine.wishes.lateCopies = false;
}

TEST_CASE("Ranks may use different numbers of sockets") {
  auto one = loopback();
  auto four = loopback();
  four.lanes = 4;
  exchangeSizes({makeTcpTransport(one), makeTcpTransport(four)}, {1, 100000, 5u << 20});
}

TEST_CASE("Thousands of posts in flight stay in order") { exchangeManyAtOnce(pairOf(loopback()), 20000, 1u << 16, 11); }

TEST_CASE("More than 4 GiB in one write") {
  constexpr std::size_t part = std::size_t{64} << 20;
  constexpr std::size_t parts = 65;
  auto& machine = FakeRuntime::instance();
  auto* const source = static_cast<std::byte*>(machine.repeat(0, part, parts));
  auto* const target = static_cast<std::byte*>(machine.repeat(0, part, parts));
  std::byte* const sourceEnd = source + (parts - 1) * part;
  std::byte* const targetEnd = target + (parts - 1) * part;
  fillRandom({source, part}, 21);
  fillRandom({sourceEnd, part}, 22);
  {
    auto const pair = pairOf(loopback());
    auto const own = RegisteredMemory::own(0, pairDevice, source, parts * part, std::span(&pair.contexts[0], 1));
    auto const theirs = RegisteredMemory::own(1, pairDevice, target, parts * part, std::span(&pair.contexts[1], 1));
    auto& connection = *pair.connections[0];
    connection.write(RegisteredMemory::deserialize(theirs.serialize(), pairDevice), 0, own, 0, parts * part - 5);
    CHECK(connection.posted() == 1);
    pair.finish(0, std::chrono::seconds(100));
  }
  CHECK(std::memcmp(source, target, part) == 0);
  CHECK(std::memcmp(sourceEnd, targetEnd, part - 5) == 0);
  CHECK(targetEnd[part - 5] == std::byte{0});
  machine.release(source);
  machine.release(target);
}

TEST_CASE("Memory that is no longer registered ends the connection with a sentence on both sides") {
  auto const pair = pairOf(loopback());
  auto const error = errorOfStaleMemory(pair);
  REQUIRE(error);
  CHECK(error->code() == ErrorCode::remoteError);
  for (auto const* text : {"rank 0", "rank 1", "TCP", "127.0.0.1", "not registered there", "4096 bytes", "post 0"}) {
    CHECK_MESSAGE(mentions(error, text), textOf(error));
  }
  CHECK(textOf(errorOf([&] { pair.connections[0]->progress(); })) == textOf(error));
  auto const theirs = errorOfProgress(pair, 1);
  CHECK_MESSAGE(mentions(theirs, "frame 0 (write of 4096 bytes at offset 0) was refused"), textOf(theirs));
}

TEST_CASE("A peer that leaves in good order is no failure until something is posted") {
  auto pair = pairOf(loopback());
  auto const error = errorAfterGoodbye(pair, std::chrono::seconds(1));
  REQUIRE(error);
  CHECK(error->code() == ErrorCode::remoteError);
  CHECK_MESSAGE(mentions(error, "write of 64 bytes"), textOf(error));
}

TEST_CASE("A peer that is gone is noticed, also while nothing is posted") {
  for (bool const posting : {true, false}) {
    CAPTURE(posting);
    auto pair = pairOf(loopback());
    auto const start = std::chrono::steady_clock::now();
    auto const error = errorAfterDeath(pair, posting);
    REQUIRE(error);
    CHECK_MESSAGE(mentions(error, "TCP connection to rank 1"), textOf(error));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(3));
  }
}

TEST_CASE("A peer that is stopped is given up when the limit passes") {
  auto options = loopback();
  options.timeout = std::chrono::seconds(1);
  // In place of a peer: a listener that completes the handshake and then falls silent.
  TcpService service("lo", 1, std::chrono::seconds(30));
  auto const address = service.addEndpoint(1, std::make_shared<TcpLink>());
  auto const context = makeTcpTransport(options);
  auto const endpoint = context->createEndpoint(0, pairDevice);
  auto const connection = endpoint->connect(0, 1, serialize(address));
  auto const other = makeTcpTransport(options);
  auto const loose = std::make_shared<LooseContext>(other);
  Plot const source(0, context, std::size_t{16} << 20);
  Plot const target(1, loose, std::size_t{16} << 20);
  auto const sent = target.sent();
  auto const stalled = service.pause();
  connection->write(sent, 0, source.memory(), 0, std::size_t{16} << 20);
  int steps = 0;
  auto const error = errorOf([&] {
    for (std::array<Connection const*, 1> const waiting{connection.get()};; ++steps) {
      connection->progress();
      restUntilReady(waiting, std::chrono::milliseconds(1));
    }
  });
  CHECK_MESSAGE(steps < 3000, steps);  // without a rest some hundred thousand
  REQUIRE(error);
  CHECK(error->code() == ErrorCode::timeout);
  CHECK_MESSAGE(mentions(error, "no answer within 1.0 s"), textOf(error));
  CHECK_MESSAGE(mentions(error, "write of 16777216 bytes"), textOf(error));
}

TEST_CASE("Addresses that make no sense, strangers and wrong secrets are refused") {
  auto const context = makeTcpTransport(loopback());
  auto const endpoint = context->createEndpoint(0, pairDevice);
  auto const good = endpoint->address();
  REQUIRE(good.size() == sizeof(TcpAddress));
  TcpAddress address{};
  std::memcpy(&address, good.data(), sizeof address);
  auto const errorWith = [&](auto&& change) {
    TcpAddress changed = address;
    change(changed);
    auto const bytes = bytesOf(changed);
    auto const error = errorOf([&] { context->createEndpoint(1, pairDevice)->connect(1, 0, bytes); });
    CHECK_MESSAGE(
        (error && error->code() == ErrorCode::remoteError && mentions(error, "rank 1") && mentions(error, "rank 0")),
        textOf(error));
    return error;
  };
  CHECK(mentions(errorWith([](TcpAddress& it) { it.magic ^= 1; }), "not that of a TCP endpoint"));
  CHECK(mentions(errorWith([](TcpAddress& it) { it.version = 9; }), "version 9, 2 expected"));
  CHECK(mentions(errorWith([](TcpAddress& it) { it.lanes = 0; }), "0 sockets, 1 to 16"));
  CHECK(mentions(errorWith([](TcpAddress& it) { it.lanes = 17; }), "17 sockets"));
  CHECK(mentions(errorWith([](TcpAddress& it) { it.listener.family = 5; }), "names no IPv4 or IPv6 address"));
  CHECK(mentions(errorWith([](TcpAddress& it) { it.secret[3] ^= 1; }), "the secret differs"));
  CHECK(mentions(errorWith([](TcpAddress& it) { it.endpoint ^= 1; }), "is for another rank"));
  CHECK(mentions(errorWith([](TcpAddress& it) { it.lanes = 2; }), "out of range"));
  CHECK(mentions(errorWith([](TcpAddress& it) { it.listener.port = 1; }), "Connection refused"));
  auto const tooShort = errorOf([&] { endpoint->connect(0, 1, std::span(good).first(10)); });
  CHECK(mentions(tooShort, "10 bytes, 64 expected"));
  // Whoever sends garbage to the listener harms nobody.
  int error = 0;
  FileHandle const stranger = connectTo(*fromWire(address.listener), Deadline(std::chrono::seconds(5)), error);
  REQUIRE(stranger);
  std::vector<std::byte> garbage(100, std::byte{0x5a});
  CHECK(sendAll(stranger.get(), garbage, Deadline(std::chrono::seconds(5))) == 0);
  exchangeSizes({context, makeTcpTransport(loopback())}, {1000});
}

TEST_CASE("Impossible options are refused") {
  auto options = loopback();
  options.lanes = 17;
  CHECK(mentions(errorOf([&] { makeTcpTransport(options); }), "17 sockets per direction: use 1 to 16"));
  options = loopback();
  options.interfaceName = "nothere0";
  CHECK(mentions(errorOf([&] { makeTcpTransport(options); }), "no usable network interface \"nothere0\""));
}

// ---- the sending end
// ------------------------------------------------------------------------------------------------

namespace {

// A sender with two lanes and a post, and the peer's ends of the lanes.
struct Sender {
  std::array<std::byte, 64> bytes{};
  std::array<FileHandle, 2> peer;
  TcpOutbound out;

  Sender() : out(lanes(peer), false, std::chrono::seconds(30)) {
    out.write(7, 0, bytes.data(), bytes.size(), pairDevice, false);
  }

  static std::vector<FileHandle> lanes(std::array<FileHandle, 2>& peer) {
    std::vector<FileHandle> own;
    for (auto& theirs : peer) {
      std::array<int, 2> ends{};
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()) == 0);
      own.emplace_back(ends[0]);
      theirs = FileHandle(ends[1]);
    }
    return own;
  }
};

}  // namespace

TEST_CASE("A peer that closes before a frame is sent is told of by that name") {
  Sender sender;
  for (auto& lane : sender.peer) lane.reset();
  CHECK(sender.out.step() == "it closed the connection");
  CHECK_FALSE(sender.out.timedOut());
}

TEST_CASE("A refusal in one lane is told, though the peer has closed both since") {
  for (std::size_t const refusing : {0, 1}) {
    CAPTURE(refusing);
    Sender sender;
    TcpAnswer const answer{tcpFrameMagic, TcpRefusal::outOfRange, 0};
    auto const sent = ::send(sender.peer[refusing].get(), &answer, sizeof answer, 0);
    REQUIRE(sent == static_cast<ssize_t>(sizeof answer));
    for (auto& lane : sender.peer) lane.reset();
    auto const reason = sender.out.step();
    CHECK_MESSAGE(reason.starts_with("it refused a post: "), reason);
  }
}

TEST_CASE("A sender waits for the sockets that are full, and for answers to what is large") {
  Sender sender;
  auto const waits = [&] {
    std::vector<pollfd> sockets;
    bool const patient = sender.out.waitsFor(sockets);
    CHECK(patient == !sockets.empty());
    return sockets;
  };
  auto const ready = [&] {
    auto sockets = waits();
    return ::poll(sockets.data(), sockets.size(), 0);
  };
  REQUIRE(sender.out.step().empty());
  CHECK_MESSAGE(waits().empty(), "the answer to a small frame comes too soon to sleep");

  std::vector<std::byte> const large(std::size_t{16} << 20);
  sender.out.write(7, 0, large.data(), large.size(), pairDevice, false);
  REQUIRE(sender.out.step().empty());
  REQUIRE(waits().size() == 2);
  for (auto const& socket : waits()) CHECK(socket.events == (POLLIN | POLLOUT));
  CHECK(ready() == 0);
  // There is room, once the peer has read.
  std::vector<std::byte> room(large.size());
  auto const drain = [&] {
    for (auto const& lane : sender.peer) {
      while (::recv(lane.get(), room.data(), room.size(), MSG_DONTWAIT) > 0) {
      }
    }
  };
  drain();
  CHECK(ready() == 2);
  for (int step = 0; step < 10000 && !waits().empty() && waits()[0].events != POLLIN; ++step) {
    REQUIRE(sender.out.step().empty());
    drain();
  }
  REQUIRE(sender.out.step().empty());
  REQUIRE_FALSE(waits().empty());
  for (auto const& socket : waits()) CHECK(socket.events == POLLIN);
  CHECK(ready() == 0);
  // The peer has done all of it: then there is nothing to wait for.
  for (std::uint64_t lane = 0; lane < 2; ++lane) {
    TcpAnswer const answer{tcpFrameMagic, TcpRefusal::none, lane == 0 ? 3u : 2u};
    REQUIRE(::send(sender.peer[lane].get(), &answer, sizeof answer, 0) == static_cast<ssize_t>(sizeof answer));
  }
  CHECK(ready() == 2);
  REQUIRE(sender.out.step().empty());
  CHECK(sender.out.idle());
  std::vector<pollfd> sockets;
  CHECK(sender.out.waitsFor(sockets));
  CHECK(sockets.empty());
}

// ---- frames
// ----------------------------------------------------------------------------------------------------------

namespace {

// A receiver over 64 bytes of memory with key 7, and bytes put through it in pieces of `step`.
struct Bench {
  alignas(8) std::array<std::byte, 64> memory{};
  TcpMemories memories{{7, {memory.data(), memory.size(), pairDevice, false}}};
  std::shared_ptr<TcpInbound> inbound;
  std::vector<TcpReceiver> lanes;

  explicit Bench(int count = 1) : inbound(std::make_shared<TcpInbound>(memories, count)) {
    for (int lane = 0; lane < count; ++lane) lanes.emplace_back(inbound, lane);
  }
  void feed(std::size_t lane, std::span<std::byte const> bytes, std::size_t step = 1000) {
    auto& receiver = lanes[lane];
    while (!bytes.empty()) {
      auto const rooms = receiver.rooms();
      if (rooms.empty()) return;
      std::size_t taken = 0;
      for (auto const& room : rooms) {
        auto const part = std::min({room.iov_len, bytes.size() - taken, step - taken});
        std::memcpy(room.iov_base, bytes.data() + taken, part);
        taken += part;
      }
      receiver.advance(taken);
      bytes = bytes.subspan(taken);
    }
  }
  void feed(std::size_t lane, TcpFrame const& frame) { feed(lane, bytesOf(frame)); }
  std::uint64_t word(std::size_t at) const {
    std::uint64_t value = 0;
    std::memcpy(&value, memory.data() + at, sizeof value);
    return value;
  }
};

TcpFrame frameOf(TcpFrameKind kind, std::uint64_t offset, std::uint64_t bytes, std::uint64_t value = 0) {
  return {tcpFrameMagic, kind, 7, offset, bytes, value};
}

}  // namespace

TEST_CASE("Frames may be cut anywhere") {
  for (std::size_t step = 1; step < 200; ++step) {
    Bench bench;
    std::vector<std::byte> stream;
    auto const append = [&](std::span<std::byte const> bytes) {
      stream.insert(stream.end(), bytes.begin(), bytes.end());
    };
    for (std::uint64_t i = 0; i < 40; ++i) {
      std::array<std::byte, 16> content{};
      content.fill(static_cast<std::byte>(i + 1));
      append(bytesOf(frameOf(TcpFrameKind::write, i % 32, 16)));
      append(content);
      append(bytesOf(frameOf(TcpFrameKind::signal, 56, 0, i + 1)));
    }
    append(bytesOf(frameOf(TcpFrameKind::goodbye, 0, 0)));
    bench.feed(0, stream, step);
    CHECK(bench.lanes[0].frames() == 80);
    CHECK(bench.lanes[0].saidGoodbye());
    CHECK(bench.lanes[0].refusal() == TcpRefusal::none);
    CHECK(bench.word(56) == 40);
    CHECK(bench.memory[7] == std::byte{40});
  }
}

TEST_CASE("What does not fit the registered memory is refused, and nothing is touched") {
  auto const refusalOf = [](TcpFrame const& frame) {
    Bench bench;
    bench.feed(0, frame);
    CHECK(bench.lanes[0].rooms().empty());
    CHECK(bench.lanes[0].frames() == 0);
    CHECK(bench.memory == decltype(bench.memory){});
    return bench.lanes[0].refusal();
  };
  auto const most = ~std::uint64_t{0};
  CHECK(refusalOf(frameOf(TcpFrameKind::write, 0, 65)) == TcpRefusal::outOfRange);
  CHECK(refusalOf(frameOf(TcpFrameKind::write, 65, 0)) == TcpRefusal::outOfRange);
  CHECK(refusalOf(frameOf(TcpFrameKind::write, most, 2)) == TcpRefusal::outOfRange);
  CHECK(refusalOf(frameOf(TcpFrameKind::write, 2, most)) == TcpRefusal::outOfRange);
  CHECK(refusalOf(frameOf(TcpFrameKind::signal, 57, 0)) == TcpRefusal::outOfRange);
  CHECK(refusalOf(frameOf(TcpFrameKind::signal, most - 3, 0)) == TcpRefusal::outOfRange);
  CHECK(refusalOf(frameOf(TcpFrameKind::signal, 4, 0, 1)) == TcpRefusal::misaligned);
  CHECK(refusalOf(frameOf(static_cast<TcpFrameKind>(9), 0, 0)) == TcpRefusal::malformed);
  auto frame = frameOf(TcpFrameKind::write, 0, 8);
  frame.memory = 8;
  CHECK(refusalOf(frame) == TcpRefusal::unknownMemory);
  frame = frameOf(TcpFrameKind::write, 0, 8);
  frame.magic = 1;
  CHECK(refusalOf(frame) == TcpRefusal::malformed);
}

TEST_CASE("A signal takes effect when it has come out of every lane") {
  Bench bench(3);
  auto const first = frameOf(TcpFrameKind::signal, 0, 0, 1);
  auto const second = frameOf(TcpFrameKind::signal, 0, 0, 2);
  bench.feed(0, first);
  bench.feed(0, second);
  bench.feed(2, first);
  CHECK(bench.word(0) == 0);
  bench.feed(1, first);
  CHECK(bench.word(0) == 1);
  bench.feed(1, second);
  CHECK(bench.word(0) == 1);
  bench.feed(2, second);
  CHECK(bench.word(0) == 2);
}

TEST_CASE("Lanes that disagree about a signal are refused") {
  Bench bench(2);
  bench.feed(0, frameOf(TcpFrameKind::signal, 0, 0, 1));
  bench.feed(1, frameOf(TcpFrameKind::signal, 8, 0, 1));
  CHECK(bench.lanes[1].refusal() == TcpRefusal::malformed);
  CHECK(bench.word(0) == 0);
}

TEST_CASE("Memory that goes while a frame comes in is not written any more") {
  Bench bench;
  bench.feed(0, frameOf(TcpFrameKind::write, 0, 64));
  std::array<std::byte, 64> content{};
  content.fill(std::byte{1});
  bench.feed(0, std::span<std::byte const>(content).first(32));
  bench.memories.clear();
  bench.feed(0, std::span<std::byte const>(content).last(32));
  CHECK(bench.lanes[0].refusal() == TcpRefusal::unknownMemory);
  CHECK(bench.memory[31] == std::byte{1});
  CHECK(bench.memory[32] == std::byte{0});
}

TEST_CASE("Memory that goes while a frame waits for staging is not written any more") {
  auto& machine = FakeRuntime::instance();
  machine.wishes.lateCopies = true;
  {
    Bench bench;
    bench.memories.at(7).staged = true;
    std::vector<std::byte> stream;
    for (std::uint64_t i = 0; i <= StagingSlots::count; ++i) {
      auto const frame = frameOf(TcpFrameKind::write, i * 8, 8);
      auto const header = bytesOf(frame);
      stream.insert(stream.end(), header.begin(), header.end());
      stream.insert(stream.end(), 8, std::byte{1});
    }
    bench.feed(0, stream);
    REQUIRE(machine.copiesUnderWay() == StagingSlots::count);
    bench.memories.clear();
    bench.lanes[0].withdraw(7, Deadline(std::chrono::seconds(1)));
    CHECK(machine.copiesUnderWay() == 0);
    CHECK(bench.lanes[0].rooms().empty());
    CHECK(bench.lanes[0].refusal() == TcpRefusal::unknownMemory);
    CHECK(machine.copiesUnderWay() == 0);
    CHECK(bench.memory[StagingSlots::count * 8 - 1] == std::byte{1});
    CHECK(bench.memory[StagingSlots::count * 8] == std::byte{0});
  }
  machine.wishes.lateCopies = false;
}
