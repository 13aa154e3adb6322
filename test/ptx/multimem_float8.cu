// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The instruction of each multicast reduction of FP8, which only code for one family of GPUs may hold. In a kernel's
// directives the instructions follow each other as the calls do: orders outside, then scopes, then widths.
// ptx-architectures: 100a 100f
#include "multimem_accesses.hpp"

using namespace mscclpp_test;

// ptx: loadsE4m3Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.v2\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.v4\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.v2\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.v4\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v2\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v4\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.v2\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.v4\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.v2\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.v4\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.v2\.e4m3x4
// ptx: loadsE4m3Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.v4\.e4m3x4
__global__ void loadsE4m3Sum(Float8E4M3* p, Float8E4M3* out) { loads<Sum, void, Float8E4M3, 4, 8, 16>(p, out); }

// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.acc::f16\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.acc::f16\.v2\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.acc::f16\.v4\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.acc::f16\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.acc::f16\.v2\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.acc::f16\.v4\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.v2\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.v4\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.acquire\.cta\.global\.add\.acc::f16\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.acquire\.cta\.global\.add\.acc::f16\.v2\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.acquire\.cta\.global\.add\.acc::f16\.v4\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.acc::f16\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.acc::f16\.v2\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.acc::f16\.v4\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.acquire\.sys\.global\.add\.acc::f16\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.acquire\.sys\.global\.add\.acc::f16\.v2\.e4m3x4
// ptx: loadsE4m3SumInHalf : multimem\.ld_reduce\.acquire\.sys\.global\.add\.acc::f16\.v4\.e4m3x4
__global__ void loadsE4m3SumInHalf(Float8E4M3* p, Float8E4M3* out) { loads<Sum, Half, Float8E4M3, 4, 8, 16>(p, out); }

// ptx: loadsE4m3Min : multimem\.ld_reduce\.relaxed\.cta\.global\.min\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.relaxed\.cta\.global\.min\.v2\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.relaxed\.cta\.global\.min\.v4\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.relaxed\.gpu\.global\.min\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.relaxed\.gpu\.global\.min\.v2\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.relaxed\.gpu\.global\.min\.v4\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.relaxed\.sys\.global\.min\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v2\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v4\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.acquire\.cta\.global\.min\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.acquire\.cta\.global\.min\.v2\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.acquire\.cta\.global\.min\.v4\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.acquire\.gpu\.global\.min\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.acquire\.gpu\.global\.min\.v2\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.acquire\.gpu\.global\.min\.v4\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.acquire\.sys\.global\.min\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.acquire\.sys\.global\.min\.v2\.e4m3x4
// ptx: loadsE4m3Min : multimem\.ld_reduce\.acquire\.sys\.global\.min\.v4\.e4m3x4
__global__ void loadsE4m3Min(Float8E4M3* p, Float8E4M3* out) { loads<Min, void, Float8E4M3, 4, 8, 16>(p, out); }

// ptx: loadsE4m3Max : multimem\.ld_reduce\.relaxed\.cta\.global\.max\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.relaxed\.cta\.global\.max\.v2\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.relaxed\.cta\.global\.max\.v4\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.relaxed\.gpu\.global\.max\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.relaxed\.gpu\.global\.max\.v2\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.relaxed\.gpu\.global\.max\.v4\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.relaxed\.sys\.global\.max\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v2\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v4\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.acquire\.cta\.global\.max\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.acquire\.cta\.global\.max\.v2\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.acquire\.cta\.global\.max\.v4\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.acquire\.gpu\.global\.max\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.acquire\.gpu\.global\.max\.v2\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.acquire\.gpu\.global\.max\.v4\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.acquire\.sys\.global\.max\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.acquire\.sys\.global\.max\.v2\.e4m3x4
// ptx: loadsE4m3Max : multimem\.ld_reduce\.acquire\.sys\.global\.max\.v4\.e4m3x4
__global__ void loadsE4m3Max(Float8E4M3* p, Float8E4M3* out) { loads<Max, void, Float8E4M3, 4, 8, 16>(p, out); }

// ptx: loadsE5m2Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.v2\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.v4\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.v2\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.v4\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v2\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v4\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.v2\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.v4\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.v2\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.v4\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.v2\.e5m2x4
// ptx: loadsE5m2Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.v4\.e5m2x4
__global__ void loadsE5m2Sum(Float8E5M2* p, Float8E5M2* out) { loads<Sum, void, Float8E5M2, 4, 8, 16>(p, out); }

// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.acc::f16\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.acc::f16\.v2\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.acc::f16\.v4\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.acc::f16\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.acc::f16\.v2\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.acc::f16\.v4\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.v2\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f16\.v4\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.acquire\.cta\.global\.add\.acc::f16\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.acquire\.cta\.global\.add\.acc::f16\.v2\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.acquire\.cta\.global\.add\.acc::f16\.v4\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.acc::f16\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.acc::f16\.v2\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.acc::f16\.v4\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.acquire\.sys\.global\.add\.acc::f16\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.acquire\.sys\.global\.add\.acc::f16\.v2\.e5m2x4
// ptx: loadsE5m2SumInHalf : multimem\.ld_reduce\.acquire\.sys\.global\.add\.acc::f16\.v4\.e5m2x4
__global__ void loadsE5m2SumInHalf(Float8E5M2* p, Float8E5M2* out) { loads<Sum, Half, Float8E5M2, 4, 8, 16>(p, out); }

// ptx: loadsE5m2Min : multimem\.ld_reduce\.relaxed\.cta\.global\.min\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.relaxed\.cta\.global\.min\.v2\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.relaxed\.cta\.global\.min\.v4\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.relaxed\.gpu\.global\.min\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.relaxed\.gpu\.global\.min\.v2\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.relaxed\.gpu\.global\.min\.v4\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.relaxed\.sys\.global\.min\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v2\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v4\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.acquire\.cta\.global\.min\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.acquire\.cta\.global\.min\.v2\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.acquire\.cta\.global\.min\.v4\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.acquire\.gpu\.global\.min\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.acquire\.gpu\.global\.min\.v2\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.acquire\.gpu\.global\.min\.v4\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.acquire\.sys\.global\.min\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.acquire\.sys\.global\.min\.v2\.e5m2x4
// ptx: loadsE5m2Min : multimem\.ld_reduce\.acquire\.sys\.global\.min\.v4\.e5m2x4
__global__ void loadsE5m2Min(Float8E5M2* p, Float8E5M2* out) { loads<Min, void, Float8E5M2, 4, 8, 16>(p, out); }

// ptx: loadsE5m2Max : multimem\.ld_reduce\.relaxed\.cta\.global\.max\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.relaxed\.cta\.global\.max\.v2\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.relaxed\.cta\.global\.max\.v4\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.relaxed\.gpu\.global\.max\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.relaxed\.gpu\.global\.max\.v2\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.relaxed\.gpu\.global\.max\.v4\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.relaxed\.sys\.global\.max\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v2\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v4\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.acquire\.cta\.global\.max\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.acquire\.cta\.global\.max\.v2\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.acquire\.cta\.global\.max\.v4\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.acquire\.gpu\.global\.max\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.acquire\.gpu\.global\.max\.v2\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.acquire\.gpu\.global\.max\.v4\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.acquire\.sys\.global\.max\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.acquire\.sys\.global\.max\.v2\.e5m2x4
// ptx: loadsE5m2Max : multimem\.ld_reduce\.acquire\.sys\.global\.max\.v4\.e5m2x4
__global__ void loadsE5m2Max(Float8E5M2* p, Float8E5M2* out) { loads<Max, void, Float8E5M2, 4, 8, 16>(p, out); }
