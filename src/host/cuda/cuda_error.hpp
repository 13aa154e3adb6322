// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a failed call of CUDA becomes: an Error, and news for all who use the device (Runtime::onLoss) where no other
// call would succeed any more, as after an illegal address in any kernel of this process. Nothing of it is left behind
// for later, unrelated calls.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

namespace mscclpp {

class Runtime;

std::string describe(cudaError_t code);
// Throws deviceError. A view, so that a call that succeeds allocates nothing for the sentence.
void check(cudaError_t code, std::string_view operation);
// The same where nothing can be thrown.
void logFailure(cudaError_t code, std::string_view operation) noexcept;
// Makes it the current one, or throws as check() does.
void selectDevice(int device);
// Throws it, of a call for the current device.
[[noreturn]] void failCall(std::string const& text);
// Who has the listeners; not before it is complete.
void reportLossesTo(Runtime& machine) noexcept;

}  // namespace mscclpp
