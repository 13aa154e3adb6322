// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jit/host_compiler.hpp"

#include <vector>

#include "base/format.hpp"
#include "base/read_file.hpp"
#include "jit/command.hpp"
#include "jit/work_folder.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp::jit {
std::string hostCompilerName() {
  auto const named = processVariable("MSCCLPP_CXX").value_or("");
  return named.empty() ? "c++" : named;
}

std::string hostCompiler() {
  static std::string const found = [] {
    WorkFolder const work;
    auto const output = work.path() / "version.txt";
    auto const name = hostCompilerName();
    if (int const status = runCommand({name, "--version"}, output); status != 0) {
      fail(ErrorCode::unsupported,
           "kernels for the simulated machine are compiled by {}, and {} --version ends with status {}; name a C++20 "
           "compiler in MSCCLPP_CXX",
           name, name, status);
    }
    return name + "\n" + readFile(output.string(), "what the compiler says");
  }();
  return found;
}

std::string compileForHost(Request const& request) {
  WorkFolder const work;
  auto const headers = work.path() / "include";
  writeHeaders(headers);
  auto const source = work.path() / "kernel.cpp";
  writeFile(source,
            fmt::format("#line 1 \"{}\"\n{}\nextern \"C\" void {}(mscclpp::Stream const& stream, mscclpp::LaunchShape "
                        "const& shape, void const* arguments) {{ {}(stream, shape, arguments); }}\n",
                        request.source.name, request.text(), lateFunction, request.entry()));
  auto const object = work.path() / "kernel.so";
  auto const output = work.path() / "messages.txt";
  std::vector<std::string> command{
      hostCompilerName(),    "-std=c++20",           "-O1", "-g", "-fPIC", "-shared", "-w", "-Wl,-z,undefs",
      "-DMSCCLPP_HAS_SIM=1", "-I" + headers.string()};
  for (auto const& definition : request.options.definitions) command.push_back("-D" + definition);
  for (auto const& folder : request.options.folders) command.push_back("-I" + folder);
  command.insert(command.end(), {"-o", object.string(), source.string()});
  if (runCommand(command, output) != 0) {
    fail(ErrorCode::invalidUsage, "{} does not compile as kernel {} for the simulated machine:{}", request.source.name,
         request.type, firstErrors(readFile(output.string(), "the compiler's messages")));
  }
  return readFile(object.string(), "a compiled kernel");
}

}  // namespace mscclpp::jit
