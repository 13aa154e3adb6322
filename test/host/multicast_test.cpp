// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Multicast memory against a library in the driver's place (driver/fake_driver.cpp) that writes down how it is called,
// so that no GPU is needed. Started with NCCL_NVLS_ENABLE=0 or MSCCLPP_NVLS=0, the same calls must not reach it.
#include "mscclpp/host/multicast.hpp"

#include <doctest/doctest.h>

#include <dlfcn.h>

#include <functional>

#include "host/cuda/multicast_driver.hpp"
#include "host/fake_runtime.hpp"
#include "host/ranks.hpp"
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/memory_window.hpp"
#include "mscclpp/host/switch_channel.hpp"
#include "mscclpp/host/team.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

constexpr int ranks = 3;
constexpr std::size_t bytes = 200 * 1024;

// A function of the fake driver.
template <class Function>
Function* ofDriver(char const* name) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
  REQUIRE_MESSAGE(library != nullptr, "the fake driver is not there: start the test by ctest, which sets its path");
  auto* const found = reinterpret_cast<Function*>(::dlsym(library, name));
  bool const there = found != nullptr;
  REQUIRE_MESSAGE(there, "libcuda.so.1 is not the fake driver");
  return found;
}
int calls(char const* name) { return ofDriver<int(char const*)>("fakeDriverCalls")(name); }
int multicastCalls() { return ofDriver<int()>("fakeDriverMulticastCalls")(); }
int allCalls() { return ofDriver<int()>("fakeDriverAllCalls")(); }
int left() { return ofDriver<int()>("fakeDriverLeft")(); }

// The next calls of that function fail, after so many that succeed.
class Failing {
 public:
  explicit Failing(char const* name, int after = 0) { ofDriver<void(char const*, int)>("fakeDriverFail")(name, after); }
  ~Failing() { ofDriver<void(char const*, int)>("fakeDriverFail")("", 0); }
};

Device device(int rank) {
  FakeRuntime::instance().wishes.driverMulticast = true;
  return {DeviceKind::sim, rank};
}

// `body` on every rank, a thread each; the errors by rank.
std::vector<std::optional<Error>> onRanks(std::function<void(Communicator const&)> const& body) {
  (void)device(0);
  auto const bootstraps = LocalBootstrap::create(ranks);
  return runThreads(ranks, [&](int rank) {
    Communicator const communicator(bootstraps[static_cast<std::size_t>(rank)], device(rank));
    body(communicator);
  });
}

// Everything of the library that leads to multicast memory.
void everyWay(Communicator const& communicator) {
  auto const device = communicator.device();
  bool const supported = isNvlsSupported(device);
  CHECK(supported == environment().multicast);
  GpuBuffer<std::byte> const memory(device, bytes, MemoryKind::shareable);
  auto const attempt = [&](std::function<void()> const& make) {
    auto const error = errorOf(make);
    CHECK(error.has_value() != supported);
    if (error) CHECK_MESSAGE(mentions(error, "NVLS"), error->what());
  };
  attempt([&] { MulticastWindow const window(communicator, memory.data(), bytes); });
  attempt([&] { MemoryWindow const window(communicator, memory.data(), bytes, {}, WindowUse::multicast); });
  attempt([&] { SwitchChannel const channel(communicator, memory.data(), bytes); });
  attempt([&] { Team const team(communicator, {.blocks = 2, .stageBytes = 4096, .multicast = 1}); });
}

}  // namespace

TEST_CASE("the settings decide whether the driver is asked for anything") {
  auto const before = multicastCalls();
  auto const allBefore = allCalls();
  CHECK(allErrors(onRanks(everyWay)).empty());
  if (environment().multicast) {
    // The same test would notice a call.
    CHECK(multicastCalls() > before);
    for (auto const* name : {"cuMulticastCreate", "cuMulticastAddDevice", "cuMulticastBindAddr", "cuMulticastUnbind",
                             "cuMulticastGetGranularity", "cuDeviceGetAttribute(Multicast)"}) {
      CHECK_MESSAGE(calls(name) > 0, name);
    }
    CHECK(left() == 0);
  } else {
    CHECK(multicastCalls() == 0);
    CHECK(allCalls() == allBefore);
    CHECK(whyNoMulticast(device(0)).find("NCCL_NVLS_ENABLE=0 or MSCCLPP_NVLS=0") != std::string::npos);
  }
}

// What follows is about the driver, which the settings may keep out of reach.
TEST_SUITE_BEGIN("with the driver");

TEST_CASE("one object for all ranks, several buffers in it") {
  if (!environment().multicast) return;
  auto const created = calls("cuMulticastCreate");
  auto const bound = calls("cuMulticastBindAddr");
  auto const errors = onRanks([](Communicator const& communicator) {
    GpuBuffer<std::byte> const a(communicator.device(), bytes, MemoryKind::shareable);
    GpuBuffer<std::byte> const b(communicator.device(), 100, MemoryKind::shareable);
    MulticastWindow window(communicator, {{a.data(), bytes}, {b.data(), 100}});
    CHECK(window.buffers() == 2);
    CHECK(window.bytes(0) == bytes);
    CHECK(window.bytes(1) == 100);
    // The second begins at the next multiple of the granularity.
    CHECK(window.address(1) - window.address(0) == 4 * 65536);
    CHECK(mentions(errorOf([&] { (void)window.address(2); }), "buffer 2, but it has 2"));
    MulticastWindow const moved(std::move(window));
    CHECK(moved.bytes(1) == 100);
    communicator.bootstrap()->barrier();
  });
  CHECK_MESSAGE(allErrors(errors).empty(), allErrors(errors));
  CHECK(calls("cuMulticastCreate") - created == 1);
  CHECK(calls("cuMulticastBindAddr") - bound == 2 * ranks);
  CHECK(left() == 0);
}

TEST_CASE("whatever fails, at whatever rank, all throw and nothing is left") {
  if (!environment().multicast) return;
  struct Case {
    char const* function;
    int times;  // it is called
    char const* says;
  };
  for (auto const& [function, times, says] :
       {Case{"cuDeviceGetAttribute(Multicast)", ranks, "ask whether CUDA device"},
        Case{"cuMulticastGetGranularity", ranks, "granularity of multicast memory of 3 devices"},
        Case{"cuMulticastCreate", 1, "make multicast memory of 262144 bytes for 3 devices"},
        Case{"cuMemExportToShareableHandle", 1, "make a file descriptor"},
        Case{"cuMemImportFromShareableHandle", ranks - 1, "open multicast memory"},
        Case{"cuMulticastAddDevice", ranks, "to multicast memory"},
        Case{"cuMulticastBindAddr", ranks, "bind 262144 bytes"}, Case{"cuMemAddressReserve", ranks, "map 262144 bytes"},
        Case{"cuMemMap", ranks, "map 262144 bytes"}, Case{"cuMemSetAccess", ranks, "map 262144 bytes"}}) {
    for (int after = 0; after < times; ++after) {
      CAPTURE(function);
      CAPTURE(after);
      std::vector<std::optional<Error>> errors;
      {
        Failing const failing(function, after);
        errors = onRanks([](Communicator const& communicator) {
          GpuBuffer<std::byte> const memory(communicator.device(), bytes, MemoryKind::shareable);
          MulticastWindow const window(communicator, memory.data(), bytes);
        });
      }
      int told = 0;
      for (auto const& error : errors) {
        CHECK_MESSAGE(error.has_value(), "a rank did not hear of it");
        told += mentions(error, says) && mentions(error, "CUDA_ERROR_NOT_SUPPORTED") ? 1 : 0;
      }
      CHECK_MESSAGE(told == ranks, allErrors(errors));
      CHECK(left() == 0);
    }
  }
}

TEST_CASE("what cannot be undone is logged, and the rest is undone") {
  if (!environment().multicast) return;
  {
    Failing const failing("cuMulticastUnbind");
    auto const errors = onRanks([](Communicator const& communicator) {
      GpuBuffer<std::byte> const memory(communicator.device(), bytes, MemoryKind::shareable);
      MulticastWindow const window(communicator, memory.data(), bytes);
    });
    CHECK_MESSAGE(allErrors(errors).empty(), allErrors(errors));
  }
  CHECK(left() == ranks);  // the bindings
}

TEST_CASE("devices without a switch say so") {
  if (!environment().multicast) return;
  ofDriver<void(int)>("fakeDriverSupport")(0);
  CHECK_FALSE(isNvlsSupported(device(0)));
  CHECK(whyNoMulticast(device(0)).find("not joined to others by a switch") != std::string::npos);
  ofDriver<void(int)>("fakeDriverSupport")(1);
  CHECK(isNvlsSupported(device(0)));
}

TEST_CASE("bad arguments are refused on every rank, before the driver makes anything") {
  if (!environment().multicast) return;
  auto const created = calls("cuMulticastCreate");
  auto const refused = [](std::function<std::vector<MulticastBuffer>(Communicator const&, std::byte*)> const& of) {
    return onRanks([&](Communicator const& communicator) {
      GpuBuffer<std::byte> const memory(communicator.device(), bytes, MemoryKind::shareable);
      MulticastWindow const window(communicator, of(communicator, memory.data()));
    });
  };
  auto const everybody = [](std::vector<std::optional<Error>> const& errors, char const* text) {
    for (auto const& error : errors) CHECK_MESSAGE(mentions(error, text), textOf(error));
  };
  using Buffers = std::vector<MulticastBuffer>;
  everybody(refused([](auto const&, auto*) { return Buffers{}; }), "no buffers");
  everybody(refused([](auto const& c, auto* p) {
              return c.rank() == 1 ? Buffers{{nullptr, 8}} : Buffers{{p, 8}};
            }),
            "multicast window of 8 bytes at");
  everybody(refused([](auto const& c, auto* p) {
              return Buffers{{p, c.rank() == 2 ? 64u : 128u}};
            }),
            "memory of the same size");
  everybody(refused([](auto const& c, auto* p) {
              return c.rank() == 0 ? Buffers{{p, 8}, {p, 8}} : Buffers{{p, 8}};
            }),
            "as many buffers");
  everybody(refused([](auto const&, auto* p) { return Buffers{{p + 128, 8}}; }), "must begin at a multiple of 65536");
  CHECK(calls("cuMulticastCreate") == created);
}

TEST_SUITE_END();

// Forks, so it must come before this process has threads: ctest starts it alone.
TEST_CASE("ranks in processes of their own" * doctest::skip()) {
  if (!environment().multicast) return;
  (void)device(0);
  auto const id = TcpBootstrap::createUniqueId();
  auto const texts = runProcesses(ranks, [&](int rank) -> std::string {
    auto const bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
    bootstrap->initialize(id);
    {
      Communicator const communicator(bootstrap, device(rank));
      GpuBuffer<std::byte> const memory(communicator.device(), bytes, MemoryKind::shareable);
      MulticastWindow const window(communicator, memory.data(), bytes);
      bootstrap->barrier();
      if (calls("cuMulticastCreate") != (rank == 0 ? 1 : 0)) return "created by the wrong rank";
      if (calls("cuMemImportFromShareableHandle") != (rank == 0 ? 0 : 1)) return "not opened";
    }
    bootstrap->barrier();
    return left() == 0 ? "" : "something is left";
  });
  for (auto const& text : texts) CHECK_MESSAGE(text.empty(), text);
}
