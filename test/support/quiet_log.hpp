// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// For tests in which ranks fail on purpose: nothing is logged in a program that includes this.
#pragma once

#include "mscclpp/host/log.hpp"

namespace mscclpp::test {

struct QuietLog {
  QuietLog() { setLogLevel(LogLevel::off); }
};
inline QuietLog const quietLog;

}  // namespace mscclpp::test
