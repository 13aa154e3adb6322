// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the forms of shared objects (access_forms.cpp) and compares the bytes that the compiler's hooks were told of
// with those that each form touches. In place of the checker behind the hooks stands a list of bytes.
//
//   test_tools_access_recorder OBJECT...
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <dlfcn.h>

#include "forms/access_forms.hpp"
#include "mscclpp/sim/backend/misaligned.hpp"
#include "sim/checker/hook_calls.hpp"

namespace {

constexpr std::size_t size = 256;

struct Memory {
  alignas(64) char bytes[size];
  std::array<bool, size> read;
  std::array<bool, size> written;

  void note(void const* address, std::size_t count, bool write) {
    auto const first = static_cast<std::size_t>(static_cast<char const*>(address) - bytes);
    if (first >= size) return;
    for (auto i = first; i < first + count && i < size; ++i) (write ? written : read)[i] = true;
  }
};

Memory from;
Memory to;

void note(void const* address, std::size_t bytes, bool write) {
  from.note(address, bytes, write);
  to.note(address, bytes, write);
}

void begin(Memory& memory) {
  std::memset(memory.bytes, 'a', size);
  memory.bytes[40] = 0;
  memory.read.fill(false);
  memory.written.fill(false);
}

std::string rangesOf(std::array<bool, size> const& seen) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    if (seen[i] && (i == 0 || !seen[i - 1])) text += (text.empty() ? "" : ", ") + std::to_string(i) + "-";
    if (seen[i] && (i + 1 == size || !seen[i + 1])) text += std::to_string(i);
  }
  return text.empty() ? "nothing" : text;
}

bool isWhole(char const* form, char const* what, std::array<bool, size> const& seen, std::size_t bytes) {
  if (std::all_of(seen.begin(), seen.begin() + bytes, [](bool s) { return s; }) &&
      std::none_of(seen.begin() + bytes, seen.end(), [](bool s) { return s; })) {
    return true;
  }
  std::printf("  %s: %s of %zu bytes, seen of them: %s\n", form, what, bytes, rangesOf(seen).c_str());
  return false;
}

int unseenForms(char const* object) {
  auto* const handle = ::dlopen(object, RTLD_NOW | RTLD_LOCAL);
  auto const* form = handle == nullptr ? nullptr : static_cast<AccessForm const*>(::dlsym(handle, "accessForms"));
  if (form == nullptr) {
    std::printf("%s\n", ::dlerror());
    return 1;
  }
  int unseen = 0;
  for (; form->name != nullptr; ++form) {
    begin(from);
    begin(to);
    static_cast<void>(form->run(to.bytes, from.bytes, 64));
    unseen += !isWhole(form->name, "read", from.read, form->read);
    unseen += !isWhole(form->name, "write", to.written, form->written);
  }
  return unseen;
}

}  // namespace

namespace mscclpp::sim {

void hookAccess(void const* address, std::size_t bytes, bool write, void const*) noexcept {
  note(address, bytes, write);
}
void hookEnter(void const*) noexcept {}
void hookLeave() noexcept {}
std::uint64_t hookLoad(void const* address, unsigned bytes, Order, void const*) {
  note(address, bytes, false);
  return 0;
}
void hookStore(void* address, unsigned bytes, std::uint64_t, Order, void const*) { note(address, bytes, true); }
// Every exchange succeeds, so that loops around it end.
std::uint64_t hookUpdate(void* address, unsigned bytes, UpdateKind, std::uint64_t, std::uint64_t expected, Order,
                         void const*) {
  note(address, bytes, true);
  return expected;
}
void hookFence(Order, void const*) {}
void hookOddAtomic(void const* address, std::size_t bytes) { note(address, bytes, true); }
void misaligned(void const*, void const*) noexcept {}

}  // namespace mscclpp::sim

int main(int argc, char** argv) {
  int unseen = 0;
  for (int i = 1; i < argc; ++i) unseen += unseenForms(argv[i]);
  return unseen == 0 && argc > 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
