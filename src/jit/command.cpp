// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "jit/command.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/read_file.hpp"
#include "jit/embedded.hpp"
#include "jit/work_folder.hpp"

extern char** environ;

namespace mscclpp::jit {

CommandResult runCommand(std::vector<std::string> const& command, std::filesystem::path const& work) {
  auto const output = work / "messages.txt";
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
  if (error != 0) return {127, {}};
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          readFile(output.string(), "what a compiler printed")};
}

void writeHeaders(std::filesystem::path const& folder) {
  for (auto const& header : embeddedHeaders()) writeFile(folder / header.name, header.text);
}

}  // namespace mscclpp::jit
