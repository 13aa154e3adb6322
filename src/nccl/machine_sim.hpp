// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The simulated machine's place of cudaSetDevice, for programs that call NCCL's interface over it.
#pragma once

extern "C" {
// The device of the calling thread from now on; 0 before.
void mscclppNcclSimSetDevice(int ordinal);
}
