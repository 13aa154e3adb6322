// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The simulated machine's places of cudaSetDevice and cudaStreamCreate, for programs that call NCCL's interface over
// it. Its memory is the host's, too.
#pragma once

extern "C" {
// The device of the calling thread from now on; 0 before.
void mscclppNcclSimSetDevice(int ordinal);
// Of that device. Null where it could not be made.
void* mscclppNcclSimCreateStream();
// Waits for its work; 0: that is done, and nothing has failed.
int mscclppNcclSimSynchronizeStream(void* stream);
// The same, and then it is gone.
int mscclppNcclSimDestroyStream(void* stream);
}
