// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a step of a proxy costs, counted; test/host/CMakeLists.txt has the linker lead every lock through here.
#include <doctest/doctest.h>
#include <pthread.h>

#include "host/fake_runtime.hpp"
#include "host/ranks.hpp"
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/port_channel.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

thread_local int locks = 0;  // that this thread took

}  // namespace

extern "C" {
int __real_pthread_mutex_lock(pthread_mutex_t* mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t* mutex) {
  ++locks;
  return __real_pthread_mutex_lock(mutex);
}
}

namespace {

template <class Act>
int locksOf(Act&& act) {
  int const before = locks;
  act();
  return locks - before;
}

}  // namespace

TEST_CASE("An idle step of a proxy takes no lock for its channels and connections") {
  FakeRuntime::instance();
  auto const world = LocalBootstrap::create(2, std::chrono::seconds(20));
  auto const errors = runThreads(2, [&](int rank) {
    Communicator communicator(world[static_cast<std::size_t>(rank)], {DeviceKind::sim, rank});
    {
      ProxyService service(communicator);
      service.progress();
      int const empty = locksOf([&] { service.progress(); });
      for (int i = 0; i < 4; ++i) {
        auto const connection = communicator.connect(1 - rank, {.transport = Transport::tcp});
        for (int j = 0; j < 40; ++j) service.buildAndAddSemaphore(connection);
      }
      GpuBuffer<int> const buffer(communicator.device(), 1);
      auto const memory = communicator.registerMemory(buffer.data(), buffer.bytes());
      // The library's locks are seen at all.
      CHECK(locksOf([&] { service.addMemory(memory); }) >= 1);
      service.progress();
      int const full = locksOf([&] { CHECK_FALSE(service.progress()); });
      CHECK(full <= 1);
      CHECK(full == empty);
      communicator.bootstrap()->barrier();
    }
    communicator.bootstrap()->barrier();
  });
  CHECK_MESSAGE(allErrors(errors).empty(), allErrors(errors));
}
