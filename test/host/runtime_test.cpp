// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Threads that a machine starts for proxies.
#include "mscclpp/host/runtime.hpp"

#include <doctest/doctest.h>
#include <pthread.h>
#include <signal.h>

#include <string>

#include "fake_runtime.hpp"

using namespace mscclpp;

TEST_CASE("a thread of the library takes no signals, and says its name") {
  sigset_t taken, after;
  sigemptyset(&taken);
  std::string name;
  (void)test::FakeRuntime::instance().startThread(0, "mscclpp proxy 12 of rank 3", [&] {
    ::pthread_sigmask(SIG_SETMASK, nullptr, &taken);
    char text[32]{};
    ::pthread_getname_np(::pthread_self(), text, sizeof text);
    name = text;
  });  // joined here
  for (int const signal : {SIGINT, SIGTERM, SIGALRM, SIGUSR1, SIGCHLD}) CHECK(sigismember(&taken, signal) == 1);
  CHECK(name == "mscclpp proxy 1");
  // The caller's own are as they were.
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  CHECK(sigismember(&after, SIGINT) == 0);
}
