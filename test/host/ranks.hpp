// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs ranks as threads or as processes, and says what each of them threw.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file_handle.hpp"
#include "mscclpp/host/error.hpp"

namespace mscclpp::test {

// What `call` threw, if anything. Other exceptions than Error pass through: no test expects them.
inline std::optional<Error> errorOf(std::function<void()> const& call) {
  try {
    call();
  } catch (Error const& error) {
    return error;
  }
  return {};
}

inline bool mentions(std::optional<Error> const& error, std::string const& text) {
  return error && std::string(error->what()).find(text) != std::string::npos;
}

inline std::string textOf(std::optional<Error> const& error) { return error ? error->what() : "no error"; }

// One thread per rank; the errors by rank.
inline std::vector<std::optional<Error>> runThreads(int ranks, std::function<void(int)> const& body) {
  std::vector<std::optional<Error>> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { errors[static_cast<std::size_t>(rank)] = errorOf([&] { body(rank); }); });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

// All ranks' errors in one text; empty where all is well.
inline std::string allErrors(std::vector<std::optional<Error>> const& errors) {
  std::string text;
  for (auto const& error : errors) {
    if (error) text += std::string(error->what()) + "\n";
  }
  return text;
}

// One process per rank, forked from here, so before this process makes threads. `body` returns an empty text where all
// is well. A process that takes longer than `limit` is killed. The texts by rank.
inline std::vector<std::string> runProcesses(int ranks, std::function<std::string(int)> const& body,
                                             std::chrono::seconds limit = std::chrono::seconds(40)) {
  struct Child {
    pid_t process;
    int output;
  };
  std::vector<Child> children;
  for (int rank = 0; rank < ranks; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0) throwSystemError("pipe", errno);
    pid_t const process = ::fork();
    if (process == 0) {
      ::close(ends[0]);
      // A child of the rank shall not hold it.
      auto const output = FileHandle::own([&] { return ends[1]; });
      ::alarm(static_cast<unsigned>(limit.count()));
      std::string text;
      try {
        text = body(rank);
      } catch (std::exception const& error) {
        text = error.what();
      }
      [[maybe_unused]] auto const written = ::write(output.get(), text.data(), text.size());
      ::_exit(text.empty() ? 0 : 1);
    }
    ::close(ends[1]);
    children.push_back({process, ends[0]});
  }
  std::vector<std::string> texts;
  for (auto const& child : children) {
    std::string text;
    char part[512];
    for (ssize_t got; (got = ::read(child.output, part, sizeof part)) > 0;) {
      text.append(part, static_cast<std::size_t>(got));
    }
    ::close(child.output);
    int status = 0;
    ::waitpid(child.process, &status, 0);
    if (WIFSIGNALED(status)) text += "killed by signal " + std::to_string(WTERMSIG(status));
    texts.push_back(text);
  }
  return texts;
}

}  // namespace mscclpp::test
