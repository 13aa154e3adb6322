// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mscclpp/host/error.hpp"

#include <cstring>

#include <fmt/format.h>

namespace mscclpp {

std::string_view nameOf(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalidUsage:
      return "invalid usage";
    case ErrorCode::systemError:
      return "system error";
    case ErrorCode::deviceError:
      return "device error";
    case ErrorCode::remoteError:
      return "remote error";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::aborted:
      return "aborted";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::internalError:
      return "internal error";
  }
  return "unknown error code";
}

void throwSystemError(std::string const& what, int errnum) {
  char const* name = ::strerrorname_np(errnum);
  char const* text = ::strerrordesc_np(errnum);
  throw Error(ErrorCode::systemError,
              fmt::format("{}: {} ({}, errno {})", what, text ? text : "unknown error", name ? name : "?", errnum));
}

}  // namespace mscclpp
