// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Another program, run to its end. No shell sees its arguments, and it has nothing to read.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/file_handle.hpp"

namespace mscclpp {

struct CommandResult {
  int status;        // 127 where it cannot be run, 128 and the signal's number where one ended it
  std::string said;  // what it printed
};

enum class CommandErrors : std::uint8_t { kept, dropped };  // what it prints as errors

// Found by PATH.
inline CommandResult runCommand(std::vector<std::string> const& command, CommandErrors errors = CommandErrors::kept) {
  std::array<int, 2> ends{-1, -1};
  // A copy in a child that another thread forks would keep it from ending.
  auto to = FileHandle::own([&] { return ::pipe2(ends.data(), O_CLOEXEC) == 0 ? ends[1] : -1; });
  if (!to) return {127, {}};
  FileHandle const from(ends[0]);
  std::vector<char*> arguments;
  for (auto const& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, to.get(), STDOUT_FILENO);
  if (errors == CommandErrors::kept) {
    ::posix_spawn_file_actions_adddup2(&actions, to.get(), STDERR_FILENO);
  } else {
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  ::pid_t child = 0;
  int const refused = ::posix_spawnp(&child, arguments.front(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  to.reset();
  if (refused != 0) return {127, {}};
  std::string said;
  std::array<char, 4096> buffer;
  while (true) {
    auto const got = ::read(from.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    said.append(buffer.data(), static_cast<std::size_t>(got));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), std::move(said)};
}

}  // namespace mscclpp
