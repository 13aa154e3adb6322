// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the host helper throws. Every message names rank, peer, operation, value and limit where they apply, and what
// to do about it. `code()` is for programs, `what()` for people.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace mscclpp {

// What went wrong, as programs tell it apart.
enum class ErrorCode {
  invalidUsage,   // the caller's argument or call order is wrong
  systemError,    // the operating system refused; the message holds errno's text
  deviceError,    // the CUDA runtime or driver, or the simulated machine, refused
  remoteError,    // another rank failed or left
  timeout,        // a time limit passed; the message says who waited for what
  aborted,        // another waiter gave up first
  unsupported,    // this machine or build lacks what was asked for
  internalError,  // a defect of this library
};

// Not called toString: doctest would find it by argument-dependent lookup and could not use it.
std::string_view nameOf(ErrorCode code) noexcept;

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string const& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// Throws Error with errno's name and text appended to `what`.
[[noreturn]] void throwSystemError(std::string const& what, int errnum);

}  // namespace mscclpp
