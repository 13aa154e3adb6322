// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jit/host_compiler.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/format.hpp"
#include "base/read_file.hpp"
#include "jit/embedded.hpp"
#include "jit/work_folder.hpp"
#include "mscclpp/host/env.hpp"

extern char** environ;

namespace mscclpp::jit {
namespace {

namespace fs = std::filesystem;

std::string compilerName() {
  auto const named = processVariable("MSCCLPP_CXX").value_or("");
  return named.empty() ? "c++" : named;
}

// The exit status; what it prints goes to the file. No shell sees the arguments.
int runCommand(std::vector<std::string> const& command, fs::path const& output) {
  std::vector<char*> arguments;
  for (auto const& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  int const error = ::posix_spawnp(&child, arguments.front(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    fail(ErrorCode::unsupported,
         "kernels for the simulated machine are compiled by {}, which does not run: {}; name a "
         "C++20 compiler in MSCCLPP_CXX",
         command.front(), std::generic_category().message(error));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::string hostCompiler() {
  static std::string const found = [] {
    WorkFolder const work;
    auto const output = work.path() / "version.txt";
    auto const name = compilerName();
    if (int const status = runCommand({name, "--version"}, output); status != 0) {
      fail(ErrorCode::unsupported, "{} --version ends with status {}; name a C++20 compiler in MSCCLPP_CXX", name,
           status);
    }
    return name + "\n" + readFile(output.string(), "what the compiler says");
  }();
  return found;
}

std::string compileForHost(Request const& request) {
  WorkFolder const work;
  auto const headers = work.path() / "include";
  for (auto const& header : embeddedHeaders()) writeFile(headers / header.name, header.text);
  auto const source = work.path() / "kernel.cpp";
  writeFile(source,
            fmt::format("#line 1 \"{}\"\n{}\nextern \"C\" void {}(mscclpp::Stream const& stream, mscclpp::LaunchShape "
                        "const& shape, void const* arguments) {{ {}(stream, shape, arguments); }}\n",
                        request.source.name, request.text(), lateFunction, request.entry()));
  auto const object = work.path() / "kernel.so";
  auto const output = work.path() / "messages.txt";
  std::vector<std::string> command{
      compilerName(),        "-std=c++20",           "-O1", "-g", "-fPIC", "-shared", "-w", "-Wl,-z,undefs",
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
