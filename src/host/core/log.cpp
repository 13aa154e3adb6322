// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/log.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include <fmt/format.h>

#include "base/file_handle.hpp"
#include "base/process_file.hpp"

namespace mscclpp {
namespace {

constexpr int unread = -1;
std::atomic<int> threshold{unread};
thread_local int threadRank = -1;

std::atomic<unsigned> lost{0};  // lines that nobody had room for

// False where it could not be written now: a log whose reader sleeps must not stop who logs, which may be the only
// thread that serves a rank's sockets.
bool writeAtOnce(int output, std::string_view text) noexcept {
  struct stat status {};
  if (::fstat(output, &status) != 0) return false;
  if (S_ISSOCK(status.st_mode)) {
    return ::send(output, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
  }
  if (S_ISFIFO(status.st_mode)) {
    // Opened anew: whether writing waits is a matter of the open file, which other processes have too.
    char path[32];
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", output);
    FileHandle const pipe(::open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    if (pipe) return ::write(pipe.get(), text.data(), text.size()) >= 0;
  }
  if (!S_ISREG(status.st_mode)) {
    pollfd entry{output, POLLOUT, 0};
    if (::poll(&entry, 1, 0) != 1 || (entry.revents & POLLOUT) == 0) return false;
  }
  return ::write(output, text.data(), text.size()) >= 0;
}

void toStderr(std::string_view text) noexcept {
  // Nothing is left to tell the failure to.
  [[maybe_unused]] bool const written = writeAtOnce(STDERR_FILENO, text);
}

int readThreshold() noexcept {
  int level = static_cast<int>(LogLevel::warn);
  try {
    level = static_cast<int>(environment().logLevel);
  } catch (std::exception const& error) {
    // Whoever reads the environment to act on it gets the exception; the log must still work.
    toStderr(error.what());
    toStderr("\n");
  }
  int expected = unread;
  return threshold.compare_exchange_strong(expected, level) ? level : expected;
}

int openOutput() noexcept {
  try {
    auto const path = ofThisProcess(environment().logFile);
    if (path.empty()) return STDERR_FILENO;
    int const file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file >= 0) return file;
    toStderr(fmt::format("mscclpp: cannot open MSCCLPP_LOG_FILE \"{}\": {}; logging to stderr\n", path,
                         std::strerror(errno)));
  } catch (std::exception const&) {
    // Reported by readThreshold already.
  }
  return STDERR_FILENO;
}

char const* nameOf(LogLevel level) noexcept {
  constexpr char const* names[] = {"trace", "debug", "info", "warn", "error", "off"};
  return names[static_cast<int>(level)];
}

}  // namespace

bool logEnabled(LogLevel level) noexcept {
  int current = threshold.load(std::memory_order_relaxed);
  if (current == unread) current = readThreshold();
  return static_cast<int>(level) >= current && level != LogLevel::off;
}

void setLogLevel(LogLevel level) noexcept { threshold.store(static_cast<int>(level), std::memory_order_relaxed); }

void setLogRank(int rank) noexcept { threadRank = rank; }
int logRank() noexcept { return threadRank; }

void writeLog(LogLevel level, std::string_view text) noexcept {
  static int const output = openOutput();
  try {
    double const now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    std::string const who = threadRank < 0 ? std::string() : fmt::format(" rank {}", threadRank);
    std::string const line = fmt::format("mscclpp {:.6f} {} [{}{}] {}\n", now, nameOf(level), ::getpid(), who, text);
    if (auto const before = lost.exchange(0); before != 0) {
      auto const note = fmt::format("mscclpp {} log lines before this one were lost: nobody read them\n", before);
      if (!writeAtOnce(output, note)) lost += before;
    }
    if (writeAtOnce(output, line)) return;
    if (output != STDERR_FILENO) return toStderr(line);
    ++lost;
  } catch (std::exception const&) {
    toStderr(text);
  }
}

}  // namespace mscclpp
