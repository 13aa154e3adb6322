// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From exceptions to NCCL's result codes and its last error. Nothing is thrown through the C interface.
#pragma once

#include <string>
#include <utility>

#include "base/format.hpp"
#include "nccl/abi.hpp"

namespace mscclpp::nccl {

// A call that cannot be right, with the code that NCCL has for it.
class Refusal : public std::exception {
 public:
  Refusal(ncclResult_t code, std::string text) : code_(code), text_(std::move(text)) {}
  char const* what() const noexcept override { return text_.c_str(); }
  ncclResult_t code() const noexcept { return code_; }

 private:
  ncclResult_t code_;
  std::string text_;
};

template <class... Args>
[[noreturn]] void refuse(ncclResult_t code, fmt::format_string<Args...> text, Args&&... args) {
  throw Refusal(code, fmt::format(text, std::forward<Args>(args)...));
}

ncclResult_t codeOf(ErrorCode code) noexcept;
// The code of the exception that is being handled; its text, behind the function's name, becomes the last error.
ncclResult_t noteException(char const* function) noexcept;
// Of this thread, never null.
char const* lastError() noexcept;

// Runs what a function of the interface does.
template <class F>
ncclResult_t guarded(char const* function, F&& body) noexcept {
  try {
    return static_cast<F&&>(body)();
  } catch (...) {
    return noteException(function);
  }
}

}  // namespace mscclpp::nccl
