// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/memory.hpp"

#include <doctest/doctest.h>

#include <unistd.h>

#include <cstring>
#include <numeric>

#include "base/keyed_hash.hpp"
#include "host/fake_runtime.hpp"
#include "host/ranks.hpp"
#include "host/transport/tcp/tcp_transport.hpp"
#include "mscclpp/host/stream.hpp"

using namespace mscclpp;
using namespace mscclpp::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t recordBytes = 264;  // of RegisteredMemory::serialize()
constexpr std::size_t pieceBytes = 24;    // for each descriptor

struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() { REQUIRE(::pipe(ends) == 0); }
  ~Pipe() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  void put(std::vector<std::byte> const& bytes) {
    if (::write(ends[1], bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
  }
  std::vector<std::byte> get(std::size_t count) {
    std::vector<std::byte> bytes(count);
    if (::read(ends[0], bytes.data(), count) != static_cast<ssize_t>(count)) std::abort();
    return bytes;
  }
};

// What a rank elsewhere has written.
std::vector<std::byte> asOfAnotherHost(std::vector<std::byte> record) {
  constexpr std::size_t identityAt = 24, sumAt = recordBytes - sizeof(std::uint64_t);
  record[identityAt] ^= std::byte{1};
  std::vector<std::byte> text(record.begin(), record.begin() + sumAt);
  text.insert(text.end(), record.begin() + recordBytes, record.end());
  auto const sum = keyedHash(Key128{}, text);
  std::memcpy(record.data() + sumAt, &sum, sizeof sum);
  return record;
}

bool contains(std::string const& text, char const* part) { return text.find(part) != std::string::npos; }

}  // namespace

// First, while this process has no threads.
TEST_CASE("another process maps the same memory, with its offset, and later finds it withdrawn") {
  fake(0);
  Pipe toReader;
  Pipe toOwner;
  auto const texts = runProcesses(2, [&](int rank) -> std::string {
    if (rank == 0) {
      GpuBuffer<int> const buffer(fake(1), 1024);
      std::vector<int> values(1024);
      std::iota(values.begin(), values.end(), 0);
      copyToDevice(buffer, values);
      {
        auto const memory = RegisteredMemory::own(0, fake(1), buffer.data() + 16, 64);
        auto const record = memory.serialize();
        if (record.size() != recordBytes + pieceBytes) return "record of " + std::to_string(record.size()) + " bytes";
        toReader.put(record);
        toOwner.get(1);
      }
      toReader.put(std::vector<std::byte>(1));
      toOwner.get(1);
      return copyToHost(buffer)[17] == -5 ? "" : "the peer's store did not arrive";
    }
    auto const record = toReader.get(recordBytes + pieceBytes);
    auto const before = FakeRuntime::instance().liveBlocks();
    {
      auto const memory = RegisteredMemory::deserialize(record, fake(2));
      if (memory.rank() != 0 || memory.size() != 64 || memory.device() != fake(2)) return "wrong description";
      if (memory.reach() != MemoryReach::descriptor) return "reached in another way";
      auto* const words = reinterpret_cast<int*>(memory.data());
      if (words[0] != 16 || words[15] != 31) return "other content";
      words[1] = -5;
      auto const passedOn = errorOf([&] { memory.serialize(); });
      if (!mentions(passedOn, "cannot be passed on")) return textOf(passedOn);
    }
    if (FakeRuntime::instance().liveBlocks() != before) return "a mapping leaked";
    toOwner.put(std::vector<std::byte>(1));
    toReader.get(1);
    auto const error = errorOf([&] { RegisteredMemory::deserialize(record, fake(2)); });
    toOwner.put(std::vector<std::byte>(1));
    if (!error || error->code() != ErrorCode::remoteError || !mentions(error, "memory of rank 0")) return textOf(error);
    return "";
  });
  CHECK(texts[0] == "");
  CHECK(texts[1] == "");
}

// As tensors of PyTorch's expandable segments are.
TEST_CASE("memory of several allocations side by side is one to another process") {
  fake(0);
  constexpr std::size_t page = 4096;
  Pipe toReader;
  Pipe toOwner;
  auto const texts = runProcesses(2, [&](int rank) -> std::string {
    auto& machine = FakeRuntime::instance();
    machine.wishes.sideBySide = true;
    auto const before = machine.liveBlocks();
    std::size_t const bytes = recordBytes + 3 * pieceBytes;
    if (rank == 0) {
      auto const bases = machine.allocateSideBySide(1, {page, 2 * page, page, page});
      for (std::size_t i = 0; i < 5 * page; ++i) bases[0][i] = static_cast<std::byte>(i / 16);
      {
        // From within the first to within the third.
        auto const memory = RegisteredMemory::own(0, fake(1), bases[0] + 64, 3 * page + 16);
        auto const record = memory.serialize();
        if (record.size() != bytes) return "record of " + std::to_string(record.size()) + " bytes";
        toReader.put(record);
        toOwner.get(1);
      }
      toReader.put(std::vector<std::byte>(1));
      toOwner.get(1);
      if (bases[0][64] != std::byte{0xe0} || bases[2][79] != std::byte{0xe1}) return "the peer's stores did not arrive";
      for (auto* const base : bases) machine.release(base);
      return machine.liveBlocks() == before ? "" : "memory is left";
    }
    auto const record = toReader.get(bytes);
    {
      auto const memory = RegisteredMemory::deserialize(record, fake(2));
      if (memory.reach() != MemoryReach::descriptor) return "reached in another way";
      if (memory.size() != 3 * page + 16) return "other size";
      for (std::size_t i = 0; i < memory.size(); ++i) {
        if (memory.data()[i] != static_cast<std::byte>((i + 64) / 16)) return "other content at " + std::to_string(i);
      }
      memory.data()[0] = std::byte{0xe0};
      memory.data()[memory.size() - 1] = std::byte{0xe1};
    }
    if (machine.liveBlocks() != before) return "a mapping leaked";
    toOwner.put(std::vector<std::byte>(1));
    toReader.get(1);
    auto const error = errorOf([&] { RegisteredMemory::deserialize(record, fake(2)); });
    toOwner.put(std::vector<std::byte>(1));
    return mentions(error, "that process no longer shares it") ? "" : textOf(error);
  });
  CHECK(texts[0] == "");
  CHECK(texts[1] == "");
}

// A handle is closed by the last that has it, while others ask for it anew.
TEST_CASE("a handle of another process is opened once at a time") {
  fake(0);
  Pipe toReader;
  Pipe toOwner;
  auto const texts = runProcesses(2, [&](int rank) -> std::string {
    FakeRuntime::instance().wishes.ipc = true;
    FakeRuntime::instance().wishes.exportable = false;
    if (rank == 0) {
      GpuBuffer<int> const buffer(fake(1), 64);
      auto const memory = RegisteredMemory::own(0, fake(1), buffer.data(), 64);
      toReader.put(memory.serialize());
      toOwner.get(1);
      return "";
    }
    auto const record = toReader.get(recordBytes);
    auto const errors = runThreads(4, [&](int) {
      for (int i = 0; i < 2000; ++i) (void)RegisteredMemory::deserialize(record, fake(0));
    });
    toOwner.put({std::byte{1}});
    return allErrors(errors) + (FakeRuntime::instance().handleOpen ? "the handle was left open" : "");
  });
  CHECK(texts[0] == "");
  CHECK(texts[1] == "");
}

TEST_CASE("memory of a process that has ended") {
  fake(0);
  Pipe pipe;
  auto const texts = runProcesses(1, [&](int) -> std::string {
    GpuBuffer<int> const buffer(fake(0), 4);
    pipe.put(RegisteredMemory::own(3, fake(0), buffer.data(), 16).serialize());
    return "";
  });
  REQUIRE(texts[0] == "");
  auto const record = pipe.get(recordBytes + pieceBytes);
  auto const error = errorOf([&] { RegisteredMemory::deserialize(record, fake(1)); });
  REQUIRE(error.has_value());
  CHECK(error->code() == ErrorCode::remoteError);
  CHECK_MESSAGE(mentions(error, "memory of rank 3 (16 bytes): its process does not answer"), error->what());
}

TEST_CASE("buffers are zero, typed and freed") {
  auto const before = (fake(0), FakeRuntime::instance().liveBlocks());
  {
    GpuBuffer<float> buffer(fake(0), 10);
    CHECK(buffer.size() == 10);
    CHECK(buffer.bytes() == 40);
    CHECK(copyToHost(buffer) == std::vector<float>(10, 0.0f));
    copyToDevice(buffer, std::vector<float>{1, 2}, 8);
    CHECK(copyToHost(buffer)[9] == 2.0f);
    std::vector<float> two(2);
    copyToHost(two, buffer, 8);
    CHECK(two == std::vector<float>{1, 2});
    CHECK(mentions(errorOf([&] { copyToDevice(buffer, std::vector<float>(3), 8); }),
                   "12 bytes at offset 32 do not fit the buffer of 40 bytes"));
    CHECK(mentions(errorOf([&] { copyToHost(two, buffer, 11); }), "offset 44"));
    buffer.fill(0xff);
    GpuBuffer<float> moved = std::move(buffer);
    CHECK(moved.data() != nullptr);
    moved = GpuBuffer<float>(fake(1), 1);
    CHECK(moved.device().ordinal == 1);
    GpuBuffer<float> const empty(fake(0), 0);
    CHECK(copyToHost(empty).empty());
  }
  CHECK(FakeRuntime::instance().liveBlocks() == before);
  CHECK(mentions(errorOf([] { GpuBuffer<double>(fake(0), ~std::size_t{0} / 2); }), "more than memory can be"));
  CHECK(mentions(errorOf([] { GpuBuffer<int>(fake(8), 1); }), "device 8 does not exist"));
  CHECK(mentions(errorOf([] { GpuBuffer<int>(fake(-1), 1); }), "device -1 does not exist"));
}

TEST_CASE("within one process the pointer itself is used, and other devices are let in") {
  auto& machine = (fake(0), FakeRuntime::instance());
  GpuBuffer<int> const buffer(fake(0), 64);
  auto const own = RegisteredMemory::own(5, fake(0), buffer.data() + 8, 32);
  auto const record = own.serialize(false);
  int const before = machine.peersEnabled;
  auto const same = RegisteredMemory::deserialize(record, fake(0));
  CHECK(machine.peersEnabled == before);
  auto const other = RegisteredMemory::deserialize(record, fake(3));
  CHECK(machine.peersEnabled == before + 1);
  CHECK(same.data() == own.data());
  CHECK(other.data() == own.data());
  CHECK(other.size() == 32);
  CHECK(other.rank() == 5);
  CHECK(other.reach() == MemoryReach::sameProcess);
  CHECK(other.device() == fake(3));
}

TEST_CASE("allocations side by side: which belong together, and who is let in") {
  auto& machine = (fake(0), FakeRuntime::instance());
  constexpr std::size_t page = 4096;
  auto const bases = machine.allocateSideBySide(0, {page, page, page});
  machine.wishes.sideBySide = true;
  auto const own = RegisteredMemory::own(5, fake(0), bases[0], 2 * page);
  int const before = machine.peersEnabled;
  auto const other = RegisteredMemory::deserialize(own.serialize(false), fake(3));
  CHECK(machine.peersEnabled == before + 2);
  CHECK(other.data() == bases[0]);
  CHECK(other.size() == 2 * page);
  CHECK(RegisteredMemory::own(5, fake(0), bases[1] + 8, page - 8).serialize().size() == recordBytes + pieceBytes);
  // One of them cannot be shared.
  machine.wishes.exportable = false;
  auto const none = errorOf([&] { own.serialize(); });
  machine.wishes.exportable = true;
  REQUIRE(none.has_value());
  CHECK(none->code() == ErrorCode::unsupported);
  CHECK(own.serialize().size() == recordBytes + 2 * pieceBytes);
  // No further than they go, and not where the machine has no such memory.
  CHECK(mentions(errorOf([&] { RegisteredMemory::own(2, fake(0), bases[1], 2 * page + 1); }),
                 "its allocation ends 4096 bytes after that address"));
  machine.wishes.sideBySide = false;
  CHECK(mentions(errorOf([&] { RegisteredMemory::own(2, fake(0), bases[0], page + 1); }),
                 "its allocation ends 4096 bytes after that address"));
  machine.wishes = {};
  for (auto* const base : bases) machine.release(base);
}

TEST_CASE("stale, foreign and altered bytes") {
  std::vector<std::byte> record;
  {
    GpuBuffer<int> const buffer(fake(0), 64);
    record = RegisteredMemory::own(1, fake(0), buffer.data(), 256).serialize(false);
  }
  auto const stale = errorOf([&] { RegisteredMemory::deserialize(record, fake(0)); });
  REQUIRE(stale.has_value());
  CHECK(stale->code() == ErrorCode::remoteError);
  CHECK_MESSAGE(mentions(stale, "memory of rank 1 is no longer registered"), stale->what());
  for (std::size_t i = 0; i < record.size(); ++i) {
    auto altered = record;
    altered[i] ^= std::byte{1};
    CAPTURE(i);
    CHECK(mentions(errorOf([&] { RegisteredMemory::deserialize(altered, fake(0)); }), "altered"));
  }
  record.pop_back();
  CHECK(mentions(errorOf([&] { RegisteredMemory::deserialize(record, fake(0)); }), "the 263 bytes"));
}

TEST_CASE("memory of another host is mapped where NVLink goes there and it was made for that") {
  auto& machine = (fake(0), FakeRuntime::instance());
  FabricClique const clique{.cluster = {1}, .clique = 2};
  GpuBuffer<int> const standard(fake(0), 64), shareable(fake(0), 64, MemoryKind::shareable);
  auto const transport = makeTcpTransport({.interfaceName = "lo"});
  auto const recordOf = [&](GpuBuffer<int> const& buffer, FabricClique const& of, bool registered = false) {
    machine.wishes.clique = of;
    auto const contexts = std::span(&transport, registered ? 1 : 0);
    return asOfAnotherHost(RegisteredMemory::own(1, fake(0), buffer.data() + 2, 16, contexts).serialize());
  };
  auto const near = recordOf(shareable, clique), far = recordOf(shareable, {.cluster = {1}, .clique = 3});
  auto const kept = recordOf(standard, clique), proxied = recordOf(standard, clique, true);
  auto const blocks = machine.liveBlocks();
  machine.wishes.clique = clique;
  {
    auto const memory = RegisteredMemory::deserialize(near, fake(3));
    CHECK(memory.reach() == MemoryReach::fabric);
    CHECK(nameOf(memory.reach()) == "fabric handle");
    CHECK(memory.transports().has(Transport::memory));
    std::memset(shareable.data() + 2, 0x5a, 16);
    CHECK(memory.data() != reinterpret_cast<std::byte*>(shareable.data() + 2));
    CHECK(std::memcmp(memory.data(), shareable.data() + 2, 16) == 0);
    CHECK(machine.liveBlocks() == blocks + 1);
  }
  CHECK(machine.liveBlocks() == blocks);
  auto const refusal = [](std::vector<std::byte> const& record) {
    auto const error = errorOf([&] { RegisteredMemory::deserialize(record, fake(3)); });
    return error && error->code() == ErrorCode::unsupported ? std::string(error->what()) : "none";
  };
  CHECK(contains(refusal(far), "memory of rank 1 is on another host"));
  CHECK_FALSE(contains(refusal(far), "NVLink"));
  CHECK(contains(refusal(kept),
                 "NVLink goes there, but it was not allocated for other hosts; make it MemoryKind::share"));
  // A proxy reaches it; kernels are told why they do not.
  auto const memory = RegisteredMemory::deserialize(proxied, fake(3));
  CHECK(memory.reach() == MemoryReach::otherHost);
  CHECK(
      mentions(errorOf([&] { (void)memory.data(); }), "use a port channel, whose proxy reaches it; NVLink goes there"));
  machine.wishes.fabricRefused = true;
  CHECK(contains(refusal(near), "the fake fabric is torn"));
  machine.wishes = {};
  CHECK_FALSE(contains(refusal(near), "NVLink"));
}

TEST_CASE("what cannot be registered or shared is named") {
  auto& machine = (fake(0), FakeRuntime::instance());
  GpuBuffer<int> const buffer(fake(0), 64);
  CHECK(mentions(errorOf([&] { RegisteredMemory::own(2, fake(0), buffer.data() + 60, 32); }),
                 "its allocation ends 16 bytes after that address"));
  CHECK(mentions(errorOf([&] { RegisteredMemory::own(2, fake(1), buffer.data(), 32); }), "on simulated device 0"));
  CHECK(mentions(errorOf([&] { RegisteredMemory::own(2, fake(0), nullptr, 32); }), "nothing to register"));
  CHECK(mentions(errorOf([&] { RegisteredMemory::own(2, fake(0), buffer.data(), 0); }), "nothing to register"));
  int onHost = 0;
  CHECK(errorOf([&] { RegisteredMemory::own(2, fake(0), &onHost, 4); })->code() == ErrorCode::invalidUsage);
  CHECK(mentions(errorOf([] { RegisteredMemory().data(); }), "used while empty"));
  machine.wishes.exportable = false;
  auto const memory = RegisteredMemory::own(2, fake(0), buffer.data(), 32);
  auto const error = errorOf([&] { memory.serialize(); });
  machine.wishes = {};
  REQUIRE(error.has_value());
  CHECK(error->code() == ErrorCode::unsupported);
  CHECK(memory.serialize().size() == recordBytes + pieceBytes);
}

TEST_CASE("streams") {
  Stream stream(fake(2));
  CHECK(stream.device() == fake(2));
  CHECK(stream.native() != nullptr);
  stream.synchronize();
  CHECK(stream.idle());
  Stream moved = std::move(stream);
  CHECK(moved.native() != nullptr);
  Stream const borrowed = Stream::borrow(fake(2), moved.native());
  CHECK(borrowed.native() == moved.native());
  CHECK(mentions(errorOf([] { Stream(fake(99)); }), "device 99"));
}

TEST_CASE("a machine that is not there is named, with what is missing") {
  if (hasRuntime(DeviceKind::cuda)) return;
  auto const error = errorOf([] { runtime(DeviceKind::cuda); });
  REQUIRE(error.has_value());
  CHECK(error->code() == ErrorCode::unsupported);
  CHECK_MESSAGE(mentions(error, "no CUDA devices"), error->what());
  CHECK(Device::count(DeviceKind::cuda) == 0);
  fake(0);
  CHECK(mentions(errorOf([] { registerRuntime(std::make_unique<FakeRuntime>()); }), "has a simulated machine already"));
}
