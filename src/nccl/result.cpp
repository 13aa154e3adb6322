// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "nccl/result.hpp"

#include <array>
#include <cstring>
#include <new>

namespace mscclpp::nccl {
namespace {

// Of fixed size, since it must be there when memory is not.
thread_local std::array<char, 2048> last{};

ncclResult_t note(char const* function, ncclResult_t code, char const* text) noexcept {
  std::snprintf(last.data(), last.size(), "mscclpp: %s: %s", function, text);
  try {
    log(LogLevel::info, "{}", last.data());
  } catch (...) {  // it has been noted
  }
  return code;
}

}  // namespace

ncclResult_t codeOf(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalidUsage:
    case ErrorCode::unsupported:
      return ncclInvalidUsage;
    case ErrorCode::systemError:
      return ncclSystemError;
    case ErrorCode::deviceError:
      return ncclUnhandledCudaError;
    case ErrorCode::remoteError:
    case ErrorCode::timeout:
    case ErrorCode::aborted:
      return ncclRemoteError;
    case ErrorCode::internalError:
      break;
  }
  return ncclInternalError;
}

ncclResult_t noteException(char const* function) noexcept {
  try {
    throw;
  } catch (Refusal const& refusal) {
    return note(function, refusal.code(), refusal.what());
  } catch (Error const& error) {
    return note(function, codeOf(error.code()), error.what());
  } catch (std::bad_alloc const&) {
    return note(function, ncclSystemError, "the host has no memory left");
  } catch (std::exception const& error) {
    return note(function, ncclInternalError, error.what());
  } catch (...) {
    return note(function, ncclInternalError, "an exception of unknown kind");
  }
}

char const* lastError() noexcept { return last.data(); }

}  // namespace mscclpp::nccl
