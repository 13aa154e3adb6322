// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jit/host_compiler.hpp"

#include <dlfcn.h>

#include <sstream>
#include <vector>

#include "base/format.hpp"
#include "base/read_file.hpp"
#include "base/run_command.hpp"
#include "jit/work_folder.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp::jit {
namespace {

// Options as CMake lists them, with spaces between them.
std::vector<std::string> split(std::string const& options) {
  std::istringstream words(options);
  std::vector<std::string> all;
  for (std::string word; words >> word;) all.push_back(word);
  return all;
}

void append(std::vector<std::string>& to, std::vector<std::string> const& more) {
  to.insert(to.end(), more.begin(), more.end());
}

std::string compilerName() {
  auto const named = processVariable("MSCCLPP_CXX").value_or("");
  return named.empty() ? "c++" : named;
}

// Not seen outside of the kernel: a library that a compiler's own run-time library serves is none of its business.
constexpr char const* misalignedHook = R"(
#include "mscclpp/sim/backend/misaligned.hpp"
extern "C" [[gnu::visibility("hidden")]] void __ubsan_handle_type_mismatch_v1(void* access, void* address) {
  mscclpp::sim::misaligned(access, address);
}
extern "C" [[gnu::visibility("hidden")]] void __ubsan_handle_alignment_assumption(void*, void*, void*, void*) {}
)";

// What this program lends to the kernels that it loads.
bool hasHooks() {
  static bool const has = ::dlsym(RTLD_DEFAULT, "_ZN7mscclpp3sim17instrumentedUnitsEv") != nullptr;
  return has;
}

}  // namespace

std::string hostCompiler() {
  static std::string const found = [] {
    auto const name = compilerName();
    auto const result = runCommand({name, "--version"});
    if (result.status != 0) {
      fail(ErrorCode::unsupported,
           "kernels for the simulated machine are compiled by {}, and {} --version ends with status {}; name a C++20 "
           "compiler in MSCCLPP_CXX",
           name, name, result.status);
    }
    return fmt::format("{}\n{}{}", name, result.said, hasHooks() ? "with the checker's hooks" : "");
  }();
  return found;
}

std::string buildForHost(HostBuild const& build, Options const& options) {
  auto const headers = build.into / "include";
  writeHeaders(headers);
  auto const run = [&](std::vector<std::string> const& command) {
    auto const result = runCommand(command);
    if (result.status != 0) failToCompile(build.what, result.said);
  };
  auto const unit = (build.into / "unit.o").string(), object = (build.into / "unit.so").string();
  std::vector<std::string> compile{
      compilerName(),        "-std=c++20",           "-O1", "-g", "-fPIC", "-w", "-fsanitize=alignment",
      "-DMSCCLPP_HAS_SIM=1", "-I" + headers.string()};
  if (build.hooked) {
    bool const isClang = hostCompiler().find("clang") != std::string::npos;
    append(compile, split(MSCCLPP_CHECK_FLAGS));
    append(compile, split(isClang ? MSCCLPP_CHECK_FLAGS_CLANG : MSCCLPP_CHECK_FLAGS_GNU));
  }
  appendOptions(compile, options);
  append(compile, {"-x", "c++", "-c", build.source, "-o", unit});
  run(compile);
  // Apart, since a link with the hooks' option would bring the sanitizer's own library.
  std::vector<std::string> link{compilerName(), "-shared", "-Wl,-z,undefs", "-o", object, unit};
  if (build.hooked) append(link, split(MSCCLPP_CHECK_LINK_FLAGS));
  run(link);
  return object;
}

std::string compileForHost(Request const& request) {
  WorkFolder const work;
  auto const source = work.path() / "kernel.cpp";
  writeFile(source,
            fmt::format("#line 1 \"{}\"\n{}\nextern \"C\" void {}(mscclpp::Stream const& stream, mscclpp::LaunchShape "
                        "const& shape, void const* arguments) {{ {}(stream, shape, arguments); }}\n{}",
                        request.source.name, request.text(), lateFunction, request.entry(), misalignedHook));
  HostBuild const build{.source = source.string(),
                        .what = request.describe("the simulated machine"),
                        .into = work.path(),
                        .hooked = hasHooks()};
  return readFile(buildForHost(build, request.options), "a compiled kernel");
}

}  // namespace mscclpp::jit
