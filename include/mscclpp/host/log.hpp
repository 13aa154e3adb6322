// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Log lines of the library: level, rank, text, to stderr or MSCCLPP_LOG_FILE. One line is one write, so lines of
// several processes do not mix. A level that is off costs one relaxed load. Logging never waits: lines that a pipe or a
// terminal has no room for are lost, which the next line tells.
#pragma once

#include <string_view>

#include "mscclpp/host/env.hpp"

namespace mscclpp {

bool logEnabled(LogLevel level) noexcept;

// Overrides MSCCLPP_LOG_LEVEL from now on.
void setLogLevel(LogLevel level) noexcept;

// Rank that lines of the calling thread are marked with; -1: none.
void setLogRank(int rank) noexcept;
int logRank() noexcept;

// Writes unconditionally; callers ask logEnabled first. Never throws: a log that cannot be written goes to stderr.
void writeLog(LogLevel level, std::string_view text) noexcept;

}  // namespace mscclpp
