// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "crash_report.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <ucontext.h>
#include <unistd.h>

#include "sim/machine/host_task.hpp"
#include "sim/machine/kernel.hpp"
#include "sim/report/describe.hpp"
#include "sim/report/frames.hpp"

namespace mscclpp::tools {
namespace {

constexpr std::size_t stackBytes = std::size_t{1} << 20;  // a report needs more than a signal's usual stack
constexpr unsigned secondsToReport = 30;

int status = 1;
std::function<void(sim::Finding const&)> reporter;

struct Registers {
  std::uintptr_t code = 0;
  std::uintptr_t stack = 0;
};

Registers registersOf(void const* context) {
  [[maybe_unused]] auto const& machine = static_cast<ucontext_t const*>(context)->uc_mcontext;
#if defined(__x86_64__)
  return {static_cast<std::uintptr_t>(machine.gregs[REG_RIP]), static_cast<std::uintptr_t>(machine.gregs[REG_RSP])};
#elif defined(__aarch64__)
  return {machine.pc, machine.sp};
#else
  return {};
#endif
}

void const* moduleOf(std::uintptr_t address) {
  Dl_info info{};
  return ::dladdr(reinterpret_cast<void*>(address), &info) == 0 ? nullptr : info.dli_fbase;
}

// From the place of the fault outwards, in the form that describe() takes. Where the C library was at work (abort,
// memcpy), it begins with the library's caller.
std::vector<std::uintptr_t> callsFrom(std::uintptr_t fault) {
  std::array<void*, 64> frames;
  auto const count = static_cast<std::size_t>(::backtrace(frames.data(), static_cast<int>(frames.size())));
  std::vector<std::uintptr_t> calls;
  for (std::size_t i = 0; i < count; ++i) {
    auto const address = reinterpret_cast<std::uintptr_t>(frames[i]);
    if (address == fault)
      calls.assign(1, fault + 1);  // not a return address; before it stands the handler
    else
      calls.push_back(address);
  }
  auto const* const library = moduleOf(reinterpret_cast<std::uintptr_t>(&::abort));
  auto const outside =
      std::find_if(calls.begin(), calls.end(), [&](std::uintptr_t call) { return moduleOf(call) != library; });
  if (outside != calls.end()) calls.erase(calls.begin(), outside);
  return calls;
}

struct Cause {
  std::string what;
  std::string explanation;
};

Cause causeOf(int signal, siginfo_t const& info, std::uintptr_t stack) {
  auto const address = reinterpret_cast<std::uintptr_t>(info.si_addr);
  // For addresses of no valid form the processor does not say which it was.
  auto const where = info.si_code == SI_KERNEL ? std::string("an address") : fmt::format("address {:#x}", address);
  switch (signal) {
    case SIGSEGV:
    case SIGBUS:
      if (address + 65536 >= stack && address < stack + 4096) {
        return {"stack overflow",
                "A kernel's thread has MachineOptions::threadStackBytes, a rank's host code 1 MiB: make its variables "
                "smaller, or raise the first."};
      }
      return {fmt::format("plain access of {} outside of all memory", where),
              "Compare the index with the size of the allocation, and see that a pointer of another device was mapped "
              "here."};
    case SIGFPE:
      return {"integer division by zero or overflow", "Look at the divisor in this line."};
    case SIGABRT:
      return {"abort", "A failed assert or std::terminate; its own message stands above."};
    default:
      return {"illegal instruction", "The compiler puts one where code must never come, as after a missing return."};
  }
}

sim::AccessRecord currentThread() {
  sim::AccessRecord record;
  if (sim::insideKernel()) {
    auto& thread = sim::currentGpuThread("a crash report");
    record.rank = thread.context.device;  // rank r of a checked run uses device r
    record.kernel = thread.block->kernel().name();
    record.block = thread.context.block;
    record.thread = thread.context.thread;
  } else {
    record.host = true;
    if (auto const* task = sim::currentHostTask(); task != nullptr) record.rank = task->rank();
  }
  return record;
}

sim::Finding findingOf(int signal, siginfo_t const& info, Registers const& registers) {
  auto const cause = causeOf(signal, info, registers.stack);
  auto access = currentThread();
  access.what = cause.what;
  access.calls = callsFrom(registers.code);
  sim::Finding finding;
  finding.kind = access.host ? sim::FindingKind::hostFailure : sim::FindingKind::kernelFailure;
  finding.summary = cause.what;
  finding.explanation = cause.explanation +
                        "\nThe machine could not go on; what schedules before this one have found is not in this "
                        "report. The same command shows it again.";
  finding.accesses.push_back(std::move(access));
  sim::describe(finding);
  return finding;
}

void onSignal(int signal, siginfo_t* info, void* context) {
  ::alarm(secondsToReport);
  try {
    reporter(findingOf(signal, *info, registersOf(context)));
  } catch (std::exception const& error) {  // must not reach the frames below, which are the crashed code's
    fmt::print(stderr, "mscclpp-check: {}\n", error.what());
  }
  ::_exit(status);
}

}  // namespace

void reportCrashes(int exitStatus, std::function<void(sim::Finding const&)> report) {
  status = exitStatus;
  reporter = std::move(report);
  // The first call loads the unwinder, which must not happen in the handler.
  std::array<void*, 1> unused;
  ::backtrace(unused.data(), 1);

  static auto const stack = std::make_unique<char[]>(stackBytes);
  stack_t alternate{};
  alternate.ss_sp = stack.get();
  alternate.ss_size = stackBytes;
  ::sigaltstack(&alternate, nullptr);
  struct sigaction action {};
  action.sa_sigaction = onSignal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | static_cast<int>(SA_RESETHAND);
  for (int const signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigaction(signal, &action, nullptr);
}

}  // namespace mscclpp::tools
