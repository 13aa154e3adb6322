// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The one thread of a process that compiles while the program runs. It ends with the process, which does not wait for
// a compiler that can be stopped.
#pragma once

#include <functional>

namespace mscclpp::jit {

// Tasks are done in order, and throw nothing. Whatever library they take has to be loaded before the first of them is
// added, or its own end could come before this thread's. Does nothing in a child that fork() made.
void inBackground(std::function<void()> task);

// Whether the process ends: compilers stop.
bool isEnding() noexcept;

}  // namespace mscclpp::jit
