// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The symbolizer, on this very program: mscclpp::check compiles it with line numbers.
#include "sim/report/describe.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <dlfcn.h>
#include <unistd.h>

using namespace mscclpp;

namespace {

struct Here {
  std::uintptr_t address = 0;  // behind the call
  int line = 0;
};

[[gnu::noinline]] std::uintptr_t returnAddress() {
  return reinterpret_cast<std::uintptr_t>(__builtin_extract_return_addr(__builtin_return_address(0)));
}

// For each test another address, since they are remembered.
template <int N>
[[gnu::always_inline]] inline Here inlinedCall() {
  Here here;
  here.address = returnAddress(), here.line = __LINE__;
  return here;
}

template <int N>
[[gnu::noinline]] Here outerCall(int& line) {
  line = __LINE__ + 1;
  auto here = inlinedCall<N>();
  asm volatile("" : "+m"(here) : "i"(N));
  return here;
}

bool contains(std::string const& text, std::string_view part) { return text.find(part) != std::string::npos; }

template <int N>
[[gnu::noinline]] std::uintptr_t fresh() {
  auto const address = returnAddress();
  asm volatile("" : : "i"(N));
  return address;
}

class WithSymbolizer {
 public:
  explicit WithSymbolizer(char const* program) { ::setenv("MSCCLPP_SYMBOLIZER", program, 1); }
  ~WithSymbolizer() { ::unsetenv("MSCCLPP_SYMBOLIZER"); }
};

bool canRun(std::string const& program) {
  return std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) == 0;
}

template <int N>
void checkStack() {
  int outerLine = 0;
  auto const here = outerCall<N>(outerLine);
  sim::Finding finding;
  finding.accesses.resize(2);
  finding.accesses[0].calls = {here.address};
  sim::describe(finding);
  auto const& stack = finding.accesses[0].stack;
  REQUIRE(stack.size() == 2);
  CHECK(!contains(stack[0].function, "outerCall"));
  CHECK(contains(stack[0].file, "test/tools/describe_test.cpp"));
  CHECK(stack[0].line == here.line);
  CHECK(contains(stack[1].function, "outerCall"));
  CHECK(stack[1].line == outerLine);
  CHECK(finding.accesses[1].stack.empty());
}

}  // namespace

TEST_CASE("an access has its line, and the line of the call that was inlined around it") { checkStack<0>(); }

TEST_CASE("each symbolizer that this machine has gives the same lines") {
  REQUIRE((canRun("addr2line") || canRun("llvm-addr2line")));
  if (canRun("addr2line")) {
    WithSymbolizer const use("addr2line");
    checkStack<1>();
  }
  if (canRun("llvm-addr2line")) {
    WithSymbolizer const use("llvm-addr2line");
    checkStack<2>();
  }
}

TEST_CASE("addresses in the time line become places") {
  int outerLine = 0;
  auto const here = outerCall<7>(outerLine);
  char text[64];
  std::snprintf(text, sizeof text, "rank 0: stores 1 @0x%zx, late", static_cast<std::size_t>(here.address));
  sim::Finding finding;
  finding.timeline = {text, "rank 1: waits", "rank 2: @0x11"};
  sim::describe(finding);
  CHECK(finding.timeline[0] == "rank 0: stores 1 at describe_test.cpp:" + std::to_string(here.line) + ", late");
  CHECK(finding.timeline[1] == "rank 1: waits");
  CHECK(finding.timeline[2] == "rank 2: at 0x10");
}

TEST_CASE("what is asked twice is answered from memory") {
  auto const address = fresh<0>();
  auto const first = sim::sourceFrames({&address, 1});
  WithSymbolizer const none("");
  auto const again = sim::sourceFrames({&address, 1});
  REQUIRE(again.size() == first.size());
  CHECK(again[0].line == first[0].line);
  CHECK(again[0].line > 0);
}

TEST_CASE("without a symbolizer, or with one that fails, a frame is a module and an offset") {
  char const* const symbolizers[] = {"", "/nonexistent/symbolizer", "false", "true"};
  std::uintptr_t const addresses[] = {fresh<3>(), fresh<4>(), fresh<5>(), fresh<6>()};
  for (std::size_t i = 0; i < 4; ++i) {
    WithSymbolizer const use(symbolizers[i]);
    auto const frames = sim::sourceFrames({&addresses[i], 1});
    REQUIRE(frames.size() == 1);
    CHECK(contains(frames[0].function, "test_tools_describe+0x"));
    CHECK(frames[0].file.empty());
  }
}

TEST_CASE("addresses of shared libraries and of nothing at all") {
  std::uintptr_t const library = reinterpret_cast<std::uintptr_t>(::dlsym(RTLD_DEFAULT, "fflush")) + 1;
  auto const inLibrary = sim::sourceFrames({&library, 1});
  REQUIRE(!inLibrary.empty());
  CHECK((contains(inLibrary[0].function, "fflush") || contains(inLibrary[0].function, "libc")));
  std::uintptr_t const nowhere = 0x11;
  auto const unknown = sim::sourceFrames({&nowhere, 1});
  REQUIRE(unknown.size() == 1);
  CHECK(unknown[0].function == "0x10");
}
