// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which machine this translation unit is compiled for, and the function markers that follow from it.
//
// The choice is the compiler's: nvcc compiles for NVIDIA GPUs, every other C++20 compiler for the simulated machine.
// Everything that differs between the two lives in one inline namespace per machine, so that objects of both link
// into one program.
#pragma once

// MSCCLPP_COLD_DEVICE keeps rare work out of hot code. Threads that branch away from each other share the registers of
// their warp, and nvcc 13.0 does not see that a function called on one side overwrites what the other side still needs
// there (sm_90: stores went to address 0 and up). Therefore
// - all threads of a warp that are together call it, or none; a thread that calls alone does so in an `if` without
// else;
// - it returns, as far as the compiler can tell, so that what the others need afterwards outlives the call.

#if defined(__CUDACC__)
#define MSCCLPP_BACKEND cuda_backend
#define MSCCLPP_DEVICE __device__ __forceinline__
#define MSCCLPP_HOST_DEVICE __host__ __device__ __forceinline__
#define MSCCLPP_COLD_DEVICE __device__ __noinline__ inline
#ifdef __CUDA_ARCH__
#define MSCCLPP_UNROLL _Pragma("unroll")
#else
#define MSCCLPP_UNROLL  // the host's compiler would warn of it
#endif
#else
#define MSCCLPP_BACKEND sim_backend
#define MSCCLPP_DEVICE inline
#define MSCCLPP_HOST_DEVICE inline
#define MSCCLPP_COLD_DEVICE inline
#define MSCCLPP_UNROLL
#endif

namespace mscclpp {

// Ranks that one team may hold: a full NVLink rack. Handles carry a pointer per rank up to this number.
inline constexpr int maxTeamSize = 72;

}  // namespace mscclpp
