// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plain accesses that a GPU refuses though the host's processor allows them: at addresses that are no multiple of what
// is accessed. Ordered ones, bulk copies and those by multicast addresses look for themselves.
//
// Code that is compiled with -fsanitize=alignment calls __ubsan_handle_type_mismatch_v1 before each of them. No
// run-time library of the compiler is there to answer: the checker's hooks do, and each kernel that is compiled late
// (src/jit/host_compiler.cpp), both by calling this.
#pragma once

namespace mscclpp::sim {

// `access`: what the compiler says of it. Fails the kernel and ends its thread there, since the access that would come
// next may end the process. Host code goes on: it is its processor's own affair.
void misaligned(void const* access, void const* address) noexcept;

}  // namespace mscclpp::sim
