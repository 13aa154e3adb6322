// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How NCCL is called, with a library in its place that writes the calls down (nccl/recorder.cpp), in a version of today
// and in an older one. CTest runs this program once with each.
#include "session/nccl_peer.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <string>

#include "machine/machine.hpp"
#include "mscclpp/host/error.hpp"

using namespace mscclpp;
using namespace mscclpp::bench;

namespace {

template <class F>
F* function(char const* name) {
  static void* const library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  bool const there = library != nullptr;
  REQUIRE(there);
  auto* const found = reinterpret_cast<F*>(::dlsym(library, name));
  bool const recorder = found != nullptr;
  REQUIRE_MESSAGE(recorder, "this is NCCL itself, not the recorder; run this test by ctest");
  return found;
}

std::string calls() {
  std::string text = function<char const*()>("recordedCalls")();
  function<void()>("forgetCalls")();
  return text;
}

Stream const& stream() {
  static Stream const instance = [] {
    machine(DeviceKind::sim)->prepare(1);
    return Stream(Device{DeviceKind::sim, 0});
  }();
  return instance;
}

// What rank 1 of 3 calls, with root 2 unless told otherwise, for 5 elements.
std::string callsOf(NcclCommunicator const& communicator, Collective collective, int root = 2) {
  calls();
  communicator.start({.collective = collective,
                      .in = reinterpret_cast<void const*>(std::size_t{1000}),
                      .out = reinterpret_cast<void*>(std::size_t{2000}),
                      .count = 5,
                      .type = DataType::bfloat16,
                      .op = reduces(collective) ? ReduceOp::max : ReduceOp::none,
                      .root = root},
                     stream());
  return calls();
}

bool isOld(NcclLibrary const& library) { return library.version() == "2.22.5"; }

}  // namespace

TEST_CASE("every collective reaches the function that is meant, with its arguments in order") {
  using enum Collective;
  NcclLibrary const library;
  NcclCommunicator const communicator(library, library.makeUniqueId(), 1, 3);
  CHECK(calls() == "init 3 7 1\n");
  CHECK(callsOf(communicator, allReduce) == "allReduce 1000 2000 5 9 2 901\n");
  CHECK(callsOf(communicator, reduceScatter) == "reduceScatter 1000 2000 5 9 2 901\n");
  CHECK(callsOf(communicator, reduce) == "reduce 1000 2000 5 9 2 2 901\n");
  CHECK(callsOf(communicator, allGather) == "allGather 1000 2000 5 9 901\n");
  CHECK(callsOf(communicator, broadcast) == "broadcast 1000 2000 5 9 2 901\n");
  if (isOld(library)) {
    CHECK(callsOf(communicator, allToAll) ==
          "{\nsend 1000 5 9 0 901\nreceive 2000 5 9 0 901\nsend 1010 5 9 1 901\nreceive 2010 5 9 1 901\n"
          "send 1020 5 9 2 901\nreceive 2020 5 9 2 901\n}\n");
    CHECK(callsOf(communicator, gather) == "{\nsend 1000 5 9 2 901\n}\n");
    CHECK(callsOf(communicator, gather, 1) ==
          "{\nreceive 2000 5 9 0 901\nreceive 2010 5 9 1 901\nreceive 2020 5 9 2 901\nsend 1000 5 9 1 901\n}\n");
    CHECK(callsOf(communicator, scatter) == "{\nreceive 2000 5 9 2 901\n}\n");
    CHECK(callsOf(communicator, scatter, 1) ==
          "{\nsend 1000 5 9 0 901\nsend 1010 5 9 1 901\nsend 1020 5 9 2 901\nreceive 2000 5 9 1 901\n}\n");
  } else {
    CHECK(callsOf(communicator, allToAll) == "allToAll 1000 2000 5 9 901\n");
    CHECK(callsOf(communicator, gather) == "gather 1000 2000 5 9 2 901\n");
    CHECK(callsOf(communicator, scatter) == "scatter 1000 2000 5 9 2 901\n");
  }
  CHECK_THROWS_WITH_AS(callsOf(communicator, barrier), "NCCL is not asked for barrier here", Error);
}

TEST_CASE("versions have the types and windows that they have") {
  NcclLibrary const library;
  CHECK(library.hasWindows() == !isOld(library));
  CHECK(library.supports(DataType::float8E4M3) == !isOld(library));
  CHECK(library.supports(DataType::bfloat16));
}

TEST_CASE("a communicator ends once, and is aborted instead where it failed") {
  NcclLibrary const library;
  calls();
  { NcclCommunicator const communicator(library, library.makeUniqueId(), 0, 3); }
  CHECK(calls() == "init 3 7 0\ndestroy 900\n");
  {
    NcclCommunicator communicator(library, library.makeUniqueId(), 2, 3);
    communicator.abort();
    communicator.abort();
  }
  CHECK(calls() == "init 3 7 2\nabort 902\n");
}

TEST_CASE("windows are registered as symmetric and end before their memory") {
  NcclLibrary const library;
  if (isOld(library)) return;
  NcclCommunicator communicator(library, library.makeUniqueId(), 1, 3);
  calls();
  {
    NcclWindow const window(communicator, 512);
    CHECK(window.data() == reinterpret_cast<std::byte*>(std::size_t{4096}));
    CHECK(calls() == "alloc 512\nregister 901 4096 512 1\n");
  }
  CHECK(calls() == "deregister 901 77\nfree 4096\n");
  CHECK_THROWS_WITH_AS(NcclWindow(communicator, 511),
                       "rank 1: ncclCommWindowRegister: NCCL has no symmetric memory here; leave nccl-symmetric out of "
                       "--peers, or see NCCL_CUMEM_ENABLE and NCCL_WIN_ENABLE",
                       Error);
  CHECK(calls() == "alloc 511\nregister 901 4096 511 1\nfree 4096\n");
  {
    NcclWindow const window(communicator, 512);
    calls();
    communicator.abort();
  }
  CHECK(calls() == "abort 901\nfree 4096\n");
}

TEST_CASE("errors name the rank, the call and NCCL's reason") {
  NcclLibrary const library;
  NcclCommunicator const communicator(library, library.makeUniqueId(), 1, 3);
  function<void(int)>("failFromNowOn")(5);
  CHECK_THROWS_WITH_AS(callsOf(communicator, Collective::broadcast),
                       "rank 1: ncclBroadcast: invalid usage; NCCL_DEBUG=WARN tells more", Error);
  CHECK_THROWS_AS(library.makeUniqueId(), Error);
  function<void(int)>("failFromNowOn")(0);
}
