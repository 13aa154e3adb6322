// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The instruction of each multicast access, for each type, width, operation, order and scope. In a kernel's directives
// the instructions follow each other as the calls do: orders outside, then scopes, then widths.
// ptx-architectures: 90 100
#include "multimem_accesses.hpp"

using namespace mscclpp_test;

template <class T, unsigned... N>
__device__ __forceinline__ void stores(T* p, T const* in) {
  forOrders<Order::relaxed, Order::release>([&]<Order O, Scope S>() {
    (multimemStore<O, S>(reinterpret_cast<Vector<T, N>*>(p), *reinterpret_cast<Vector<T, N> const*>(in)), ...);
  });
}

template <class Op, class T, unsigned... N>
__device__ __forceinline__ void reductions(T* p, T const* in) {
  forOrders<Order::relaxed, Order::release>([&]<Order O, Scope S>() {
    (multimemStoreReduce<O, S, Op>(reinterpret_cast<Vector<T, N>*>(p), *reinterpret_cast<Vector<T, N> const*>(in)),
     ...);
  });
}

// ptx: loadsF32Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.v2\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.v4\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.v2\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.v4\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v2\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v4\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.v2\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.v4\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.v2\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.v4\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.v2\.f32
// ptx: loadsF32Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.v4\.f32
__global__ void loadsF32Sum(float* p, float* out) { loads<Sum, void, float, 1, 2, 4>(p, out); }

// ptx: reductionsF32Sum : multimem\.red\.relaxed\.cta\.global\.add\.f32
// ptx: reductionsF32Sum : multimem\.red\.relaxed\.cta\.global\.add\.v2\.f32
// ptx: reductionsF32Sum : multimem\.red\.relaxed\.cta\.global\.add\.v4\.f32
// ptx: reductionsF32Sum : multimem\.red\.relaxed\.gpu\.global\.add\.f32
// ptx: reductionsF32Sum : multimem\.red\.relaxed\.gpu\.global\.add\.v2\.f32
// ptx: reductionsF32Sum : multimem\.red\.relaxed\.gpu\.global\.add\.v4\.f32
// ptx: reductionsF32Sum : multimem\.red\.relaxed\.sys\.global\.add\.f32
// ptx: reductionsF32Sum : multimem\.red\.relaxed\.sys\.global\.add\.v2\.f32
// ptx: reductionsF32Sum : multimem\.red\.relaxed\.sys\.global\.add\.v4\.f32
// ptx: reductionsF32Sum : multimem\.red\.release\.cta\.global\.add\.f32
// ptx: reductionsF32Sum : multimem\.red\.release\.cta\.global\.add\.v2\.f32
// ptx: reductionsF32Sum : multimem\.red\.release\.cta\.global\.add\.v4\.f32
// ptx: reductionsF32Sum : multimem\.red\.release\.gpu\.global\.add\.f32
// ptx: reductionsF32Sum : multimem\.red\.release\.gpu\.global\.add\.v2\.f32
// ptx: reductionsF32Sum : multimem\.red\.release\.gpu\.global\.add\.v4\.f32
// ptx: reductionsF32Sum : multimem\.red\.release\.sys\.global\.add\.f32
// ptx: reductionsF32Sum : multimem\.red\.release\.sys\.global\.add\.v2\.f32
// ptx: reductionsF32Sum : multimem\.red\.release\.sys\.global\.add\.v4\.f32
__global__ void reductionsF32Sum(float* p, float const* in) { reductions<Sum, float, 1, 2, 4>(p, in); }

// ptx: storesF32 : multimem\.st\.relaxed\.cta\.global\.b32
// ptx: storesF32 : multimem\.st\.relaxed\.cta\.global\.v2\.f32
// ptx: storesF32 : multimem\.st\.relaxed\.cta\.global\.v4\.f32
// ptx: storesF32 : multimem\.st\.relaxed\.gpu\.global\.b32
// ptx: storesF32 : multimem\.st\.relaxed\.gpu\.global\.v2\.f32
// ptx: storesF32 : multimem\.st\.relaxed\.gpu\.global\.v4\.f32
// ptx: storesF32 : multimem\.st\.relaxed\.sys\.global\.b32
// ptx: storesF32 : multimem\.st\.relaxed\.sys\.global\.v2\.f32
// ptx: storesF32 : multimem\.st\.relaxed\.sys\.global\.v4\.f32
// ptx: storesF32 : multimem\.st\.release\.cta\.global\.b32
// ptx: storesF32 : multimem\.st\.release\.cta\.global\.v2\.f32
// ptx: storesF32 : multimem\.st\.release\.cta\.global\.v4\.f32
// ptx: storesF32 : multimem\.st\.release\.gpu\.global\.b32
// ptx: storesF32 : multimem\.st\.release\.gpu\.global\.v2\.f32
// ptx: storesF32 : multimem\.st\.release\.gpu\.global\.v4\.f32
// ptx: storesF32 : multimem\.st\.release\.sys\.global\.b32
// ptx: storesF32 : multimem\.st\.release\.sys\.global\.v2\.f32
// ptx: storesF32 : multimem\.st\.release\.sys\.global\.v4\.f32
__global__ void storesF32(float* p, float const* in) { stores<float, 1, 2, 4>(p, in); }

// ptx: loadsF64Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.f64
// ptx: loadsF64Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.f64
// ptx: loadsF64Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.f64
// ptx: loadsF64Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.f64
// ptx: loadsF64Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.f64
// ptx: loadsF64Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.f64
__global__ void loadsF64Sum(double* p, double* out) { loads<Sum, void, double, 1>(p, out); }

// ptx: reductionsF64Sum : multimem\.red\.relaxed\.cta\.global\.add\.f64
// ptx: reductionsF64Sum : multimem\.red\.relaxed\.gpu\.global\.add\.f64
// ptx: reductionsF64Sum : multimem\.red\.relaxed\.sys\.global\.add\.f64
// ptx: reductionsF64Sum : multimem\.red\.release\.cta\.global\.add\.f64
// ptx: reductionsF64Sum : multimem\.red\.release\.gpu\.global\.add\.f64
// ptx: reductionsF64Sum : multimem\.red\.release\.sys\.global\.add\.f64
__global__ void reductionsF64Sum(double* p, double const* in) { reductions<Sum, double, 1>(p, in); }

// ptx: storesF64 : multimem\.st\.relaxed\.cta\.global\.b64
// ptx: storesF64 : multimem\.st\.relaxed\.gpu\.global\.b64
// ptx: storesF64 : multimem\.st\.relaxed\.sys\.global\.b64
// ptx: storesF64 : multimem\.st\.release\.cta\.global\.b64
// ptx: storesF64 : multimem\.st\.release\.gpu\.global\.b64
// ptx: storesF64 : multimem\.st\.release\.sys\.global\.b64
__global__ void storesF64(double* p, double const* in) { stores<double, 1>(p, in); }

// ptx: loadsF16Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.acc::f32\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.acc::f32\.v2\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.acc::f32\.v4\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.acc::f32\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.acc::f32\.v2\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.acc::f32\.v4\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f32\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f32\.v2\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f32\.v4\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.acc::f32\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.acc::f32\.v2\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.acc::f32\.v4\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.acc::f32\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.acc::f32\.v2\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.acc::f32\.v4\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.acc::f32\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.acc::f32\.v2\.f16x2
// ptx: loadsF16Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.acc::f32\.v4\.f16x2
__global__ void loadsF16Sum(Half* p, Half* out) { loads<Sum, void, Half, 2, 4, 8>(p, out); }

// ptx: loadsF16SumOwn : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.v2\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.v4\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.v2\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.v4\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v2\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v4\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.acquire\.cta\.global\.add\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.acquire\.cta\.global\.add\.v2\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.acquire\.cta\.global\.add\.v4\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.v2\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.v4\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.acquire\.sys\.global\.add\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.acquire\.sys\.global\.add\.v2\.f16x2
// ptx: loadsF16SumOwn : multimem\.ld_reduce\.acquire\.sys\.global\.add\.v4\.f16x2
__global__ void loadsF16SumOwn(Half* p, Half* out) { loads<Sum, Half, Half, 2, 4, 8>(p, out); }

// ptx: reductionsF16Sum : multimem\.red\.relaxed\.cta\.global\.add\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.relaxed\.cta\.global\.add\.v2\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.relaxed\.cta\.global\.add\.v4\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.relaxed\.gpu\.global\.add\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.relaxed\.gpu\.global\.add\.v2\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.relaxed\.gpu\.global\.add\.v4\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.relaxed\.sys\.global\.add\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.relaxed\.sys\.global\.add\.v2\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.relaxed\.sys\.global\.add\.v4\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.release\.cta\.global\.add\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.release\.cta\.global\.add\.v2\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.release\.cta\.global\.add\.v4\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.release\.gpu\.global\.add\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.release\.gpu\.global\.add\.v2\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.release\.gpu\.global\.add\.v4\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.release\.sys\.global\.add\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.release\.sys\.global\.add\.v2\.f16x2
// ptx: reductionsF16Sum : multimem\.red\.release\.sys\.global\.add\.v4\.f16x2
__global__ void reductionsF16Sum(Half* p, Half const* in) { reductions<Sum, Half, 2, 4, 8>(p, in); }

// ptx: loadsF16Min : multimem\.ld_reduce\.relaxed\.cta\.global\.min\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.relaxed\.cta\.global\.min\.v2\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.relaxed\.cta\.global\.min\.v4\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.relaxed\.gpu\.global\.min\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.relaxed\.gpu\.global\.min\.v2\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.relaxed\.gpu\.global\.min\.v4\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.relaxed\.sys\.global\.min\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v2\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v4\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.acquire\.cta\.global\.min\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.acquire\.cta\.global\.min\.v2\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.acquire\.cta\.global\.min\.v4\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.acquire\.gpu\.global\.min\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.acquire\.gpu\.global\.min\.v2\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.acquire\.gpu\.global\.min\.v4\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.acquire\.sys\.global\.min\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.acquire\.sys\.global\.min\.v2\.f16x2
// ptx: loadsF16Min : multimem\.ld_reduce\.acquire\.sys\.global\.min\.v4\.f16x2
__global__ void loadsF16Min(Half* p, Half* out) { loads<Min, void, Half, 2, 4, 8>(p, out); }

// ptx: loadsF16Max : multimem\.ld_reduce\.relaxed\.cta\.global\.max\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.relaxed\.cta\.global\.max\.v2\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.relaxed\.cta\.global\.max\.v4\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.relaxed\.gpu\.global\.max\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.relaxed\.gpu\.global\.max\.v2\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.relaxed\.gpu\.global\.max\.v4\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.relaxed\.sys\.global\.max\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v2\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v4\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.acquire\.cta\.global\.max\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.acquire\.cta\.global\.max\.v2\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.acquire\.cta\.global\.max\.v4\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.acquire\.gpu\.global\.max\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.acquire\.gpu\.global\.max\.v2\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.acquire\.gpu\.global\.max\.v4\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.acquire\.sys\.global\.max\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.acquire\.sys\.global\.max\.v2\.f16x2
// ptx: loadsF16Max : multimem\.ld_reduce\.acquire\.sys\.global\.max\.v4\.f16x2
__global__ void loadsF16Max(Half* p, Half* out) { loads<Max, void, Half, 2, 4, 8>(p, out); }

// ptx: storesF16 : multimem\.st\.relaxed\.cta\.global\.b32
// ptx: storesF16 : multimem\.st\.relaxed\.cta\.global\.v2\.f32
// ptx: storesF16 : multimem\.st\.relaxed\.cta\.global\.v4\.f32
// ptx: storesF16 : multimem\.st\.relaxed\.gpu\.global\.b32
// ptx: storesF16 : multimem\.st\.relaxed\.gpu\.global\.v2\.f32
// ptx: storesF16 : multimem\.st\.relaxed\.gpu\.global\.v4\.f32
// ptx: storesF16 : multimem\.st\.relaxed\.sys\.global\.b32
// ptx: storesF16 : multimem\.st\.relaxed\.sys\.global\.v2\.f32
// ptx: storesF16 : multimem\.st\.relaxed\.sys\.global\.v4\.f32
// ptx: storesF16 : multimem\.st\.release\.cta\.global\.b32
// ptx: storesF16 : multimem\.st\.release\.cta\.global\.v2\.f32
// ptx: storesF16 : multimem\.st\.release\.cta\.global\.v4\.f32
// ptx: storesF16 : multimem\.st\.release\.gpu\.global\.b32
// ptx: storesF16 : multimem\.st\.release\.gpu\.global\.v2\.f32
// ptx: storesF16 : multimem\.st\.release\.gpu\.global\.v4\.f32
// ptx: storesF16 : multimem\.st\.release\.sys\.global\.b32
// ptx: storesF16 : multimem\.st\.release\.sys\.global\.v2\.f32
// ptx: storesF16 : multimem\.st\.release\.sys\.global\.v4\.f32
__global__ void storesF16(Half* p, Half const* in) { stores<Half, 2, 4, 8>(p, in); }

// ptx: loadsBf16Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.acc::f32\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.acc::f32\.v2\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.acc::f32\.v4\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.acc::f32\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.acc::f32\.v2\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.acc::f32\.v4\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f32\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f32\.v2\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.acc::f32\.v4\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.acc::f32\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.acc::f32\.v2\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.acc::f32\.v4\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.acc::f32\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.acc::f32\.v2\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.acc::f32\.v4\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.acc::f32\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.acc::f32\.v2\.bf16x2
// ptx: loadsBf16Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.acc::f32\.v4\.bf16x2
__global__ void loadsBf16Sum(BFloat16* p, BFloat16* out) { loads<Sum, void, BFloat16, 2, 4, 8>(p, out); }

// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.v2\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.v4\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.v2\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.v4\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v2\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.v4\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.acquire\.cta\.global\.add\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.acquire\.cta\.global\.add\.v2\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.acquire\.cta\.global\.add\.v4\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.v2\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.v4\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.acquire\.sys\.global\.add\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.acquire\.sys\.global\.add\.v2\.bf16x2
// ptx: loadsBf16SumOwn : multimem\.ld_reduce\.acquire\.sys\.global\.add\.v4\.bf16x2
__global__ void loadsBf16SumOwn(BFloat16* p, BFloat16* out) { loads<Sum, BFloat16, BFloat16, 2, 4, 8>(p, out); }

// ptx: reductionsBf16Sum : multimem\.red\.relaxed\.cta\.global\.add\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.relaxed\.cta\.global\.add\.v2\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.relaxed\.cta\.global\.add\.v4\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.relaxed\.gpu\.global\.add\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.relaxed\.gpu\.global\.add\.v2\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.relaxed\.gpu\.global\.add\.v4\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.relaxed\.sys\.global\.add\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.relaxed\.sys\.global\.add\.v2\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.relaxed\.sys\.global\.add\.v4\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.release\.cta\.global\.add\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.release\.cta\.global\.add\.v2\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.release\.cta\.global\.add\.v4\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.release\.gpu\.global\.add\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.release\.gpu\.global\.add\.v2\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.release\.gpu\.global\.add\.v4\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.release\.sys\.global\.add\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.release\.sys\.global\.add\.v2\.bf16x2
// ptx: reductionsBf16Sum : multimem\.red\.release\.sys\.global\.add\.v4\.bf16x2
__global__ void reductionsBf16Sum(BFloat16* p, BFloat16 const* in) { reductions<Sum, BFloat16, 2, 4, 8>(p, in); }

// ptx: loadsBf16Min : multimem\.ld_reduce\.relaxed\.cta\.global\.min\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.relaxed\.cta\.global\.min\.v2\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.relaxed\.cta\.global\.min\.v4\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.relaxed\.gpu\.global\.min\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.relaxed\.gpu\.global\.min\.v2\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.relaxed\.gpu\.global\.min\.v4\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.relaxed\.sys\.global\.min\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v2\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.relaxed\.sys\.global\.min\.v4\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.acquire\.cta\.global\.min\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.acquire\.cta\.global\.min\.v2\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.acquire\.cta\.global\.min\.v4\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.acquire\.gpu\.global\.min\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.acquire\.gpu\.global\.min\.v2\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.acquire\.gpu\.global\.min\.v4\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.acquire\.sys\.global\.min\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.acquire\.sys\.global\.min\.v2\.bf16x2
// ptx: loadsBf16Min : multimem\.ld_reduce\.acquire\.sys\.global\.min\.v4\.bf16x2
__global__ void loadsBf16Min(BFloat16* p, BFloat16* out) { loads<Min, void, BFloat16, 2, 4, 8>(p, out); }

// ptx: loadsBf16Max : multimem\.ld_reduce\.relaxed\.cta\.global\.max\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.relaxed\.cta\.global\.max\.v2\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.relaxed\.cta\.global\.max\.v4\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.relaxed\.gpu\.global\.max\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.relaxed\.gpu\.global\.max\.v2\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.relaxed\.gpu\.global\.max\.v4\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.relaxed\.sys\.global\.max\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v2\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.relaxed\.sys\.global\.max\.v4\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.acquire\.cta\.global\.max\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.acquire\.cta\.global\.max\.v2\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.acquire\.cta\.global\.max\.v4\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.acquire\.gpu\.global\.max\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.acquire\.gpu\.global\.max\.v2\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.acquire\.gpu\.global\.max\.v4\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.acquire\.sys\.global\.max\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.acquire\.sys\.global\.max\.v2\.bf16x2
// ptx: loadsBf16Max : multimem\.ld_reduce\.acquire\.sys\.global\.max\.v4\.bf16x2
__global__ void loadsBf16Max(BFloat16* p, BFloat16* out) { loads<Max, void, BFloat16, 2, 4, 8>(p, out); }

// ptx: storesBf16 : multimem\.st\.relaxed\.cta\.global\.b32
// ptx: storesBf16 : multimem\.st\.relaxed\.cta\.global\.v2\.f32
// ptx: storesBf16 : multimem\.st\.relaxed\.cta\.global\.v4\.f32
// ptx: storesBf16 : multimem\.st\.relaxed\.gpu\.global\.b32
// ptx: storesBf16 : multimem\.st\.relaxed\.gpu\.global\.v2\.f32
// ptx: storesBf16 : multimem\.st\.relaxed\.gpu\.global\.v4\.f32
// ptx: storesBf16 : multimem\.st\.relaxed\.sys\.global\.b32
// ptx: storesBf16 : multimem\.st\.relaxed\.sys\.global\.v2\.f32
// ptx: storesBf16 : multimem\.st\.relaxed\.sys\.global\.v4\.f32
// ptx: storesBf16 : multimem\.st\.release\.cta\.global\.b32
// ptx: storesBf16 : multimem\.st\.release\.cta\.global\.v2\.f32
// ptx: storesBf16 : multimem\.st\.release\.cta\.global\.v4\.f32
// ptx: storesBf16 : multimem\.st\.release\.gpu\.global\.b32
// ptx: storesBf16 : multimem\.st\.release\.gpu\.global\.v2\.f32
// ptx: storesBf16 : multimem\.st\.release\.gpu\.global\.v4\.f32
// ptx: storesBf16 : multimem\.st\.release\.sys\.global\.b32
// ptx: storesBf16 : multimem\.st\.release\.sys\.global\.v2\.f32
// ptx: storesBf16 : multimem\.st\.release\.sys\.global\.v4\.f32
__global__ void storesBf16(BFloat16* p, BFloat16 const* in) { stores<BFloat16, 2, 4, 8>(p, in); }

// ptx: loadsI32Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.s32
// ptx: loadsI32Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.s32
// ptx: loadsI32Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.s32
// ptx: loadsI32Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.s32
// ptx: loadsI32Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.s32
// ptx: loadsI32Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.s32
__global__ void loadsI32Sum(std::int32_t* p, std::int32_t* out) { loads<Sum, void, std::int32_t, 1>(p, out); }

// ptx: reductionsI32Sum : multimem\.red\.relaxed\.cta\.global\.add\.s32
// ptx: reductionsI32Sum : multimem\.red\.relaxed\.gpu\.global\.add\.s32
// ptx: reductionsI32Sum : multimem\.red\.relaxed\.sys\.global\.add\.s32
// ptx: reductionsI32Sum : multimem\.red\.release\.cta\.global\.add\.s32
// ptx: reductionsI32Sum : multimem\.red\.release\.gpu\.global\.add\.s32
// ptx: reductionsI32Sum : multimem\.red\.release\.sys\.global\.add\.s32
__global__ void reductionsI32Sum(std::int32_t* p, std::int32_t const* in) { reductions<Sum, std::int32_t, 1>(p, in); }

// ptx: loadsI32Min : multimem\.ld_reduce\.relaxed\.cta\.global\.min\.s32
// ptx: loadsI32Min : multimem\.ld_reduce\.relaxed\.gpu\.global\.min\.s32
// ptx: loadsI32Min : multimem\.ld_reduce\.relaxed\.sys\.global\.min\.s32
// ptx: loadsI32Min : multimem\.ld_reduce\.acquire\.cta\.global\.min\.s32
// ptx: loadsI32Min : multimem\.ld_reduce\.acquire\.gpu\.global\.min\.s32
// ptx: loadsI32Min : multimem\.ld_reduce\.acquire\.sys\.global\.min\.s32
__global__ void loadsI32Min(std::int32_t* p, std::int32_t* out) { loads<Min, void, std::int32_t, 1>(p, out); }

// ptx: reductionsI32Min : multimem\.red\.relaxed\.cta\.global\.min\.s32
// ptx: reductionsI32Min : multimem\.red\.relaxed\.gpu\.global\.min\.s32
// ptx: reductionsI32Min : multimem\.red\.relaxed\.sys\.global\.min\.s32
// ptx: reductionsI32Min : multimem\.red\.release\.cta\.global\.min\.s32
// ptx: reductionsI32Min : multimem\.red\.release\.gpu\.global\.min\.s32
// ptx: reductionsI32Min : multimem\.red\.release\.sys\.global\.min\.s32
__global__ void reductionsI32Min(std::int32_t* p, std::int32_t const* in) { reductions<Min, std::int32_t, 1>(p, in); }

// ptx: loadsI32Max : multimem\.ld_reduce\.relaxed\.cta\.global\.max\.s32
// ptx: loadsI32Max : multimem\.ld_reduce\.relaxed\.gpu\.global\.max\.s32
// ptx: loadsI32Max : multimem\.ld_reduce\.relaxed\.sys\.global\.max\.s32
// ptx: loadsI32Max : multimem\.ld_reduce\.acquire\.cta\.global\.max\.s32
// ptx: loadsI32Max : multimem\.ld_reduce\.acquire\.gpu\.global\.max\.s32
// ptx: loadsI32Max : multimem\.ld_reduce\.acquire\.sys\.global\.max\.s32
__global__ void loadsI32Max(std::int32_t* p, std::int32_t* out) { loads<Max, void, std::int32_t, 1>(p, out); }

// ptx: reductionsI32Max : multimem\.red\.relaxed\.cta\.global\.max\.s32
// ptx: reductionsI32Max : multimem\.red\.relaxed\.gpu\.global\.max\.s32
// ptx: reductionsI32Max : multimem\.red\.relaxed\.sys\.global\.max\.s32
// ptx: reductionsI32Max : multimem\.red\.release\.cta\.global\.max\.s32
// ptx: reductionsI32Max : multimem\.red\.release\.gpu\.global\.max\.s32
// ptx: reductionsI32Max : multimem\.red\.release\.sys\.global\.max\.s32
__global__ void reductionsI32Max(std::int32_t* p, std::int32_t const* in) { reductions<Max, std::int32_t, 1>(p, in); }

// ptx: storesI32 : multimem\.st\.relaxed\.cta\.global\.b32
// ptx: storesI32 : multimem\.st\.relaxed\.gpu\.global\.b32
// ptx: storesI32 : multimem\.st\.relaxed\.sys\.global\.b32
// ptx: storesI32 : multimem\.st\.release\.cta\.global\.b32
// ptx: storesI32 : multimem\.st\.release\.gpu\.global\.b32
// ptx: storesI32 : multimem\.st\.release\.sys\.global\.b32
__global__ void storesI32(std::int32_t* p, std::int32_t const* in) { stores<std::int32_t, 1>(p, in); }

// ptx: loadsU32Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.u32
// ptx: loadsU32Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.u32
// ptx: loadsU32Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.u32
// ptx: loadsU32Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.u32
// ptx: loadsU32Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.u32
// ptx: loadsU32Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.u32
__global__ void loadsU32Sum(std::uint32_t* p, std::uint32_t* out) { loads<Sum, void, std::uint32_t, 1>(p, out); }

// ptx: reductionsU32Sum : multimem\.red\.relaxed\.cta\.global\.add\.u32
// ptx: reductionsU32Sum : multimem\.red\.relaxed\.gpu\.global\.add\.u32
// ptx: reductionsU32Sum : multimem\.red\.relaxed\.sys\.global\.add\.u32
// ptx: reductionsU32Sum : multimem\.red\.release\.cta\.global\.add\.u32
// ptx: reductionsU32Sum : multimem\.red\.release\.gpu\.global\.add\.u32
// ptx: reductionsU32Sum : multimem\.red\.release\.sys\.global\.add\.u32
__global__ void reductionsU32Sum(std::uint32_t* p, std::uint32_t const* in) {
  reductions<Sum, std::uint32_t, 1>(p, in);
}

// ptx: loadsU32Min : multimem\.ld_reduce\.relaxed\.cta\.global\.min\.u32
// ptx: loadsU32Min : multimem\.ld_reduce\.relaxed\.gpu\.global\.min\.u32
// ptx: loadsU32Min : multimem\.ld_reduce\.relaxed\.sys\.global\.min\.u32
// ptx: loadsU32Min : multimem\.ld_reduce\.acquire\.cta\.global\.min\.u32
// ptx: loadsU32Min : multimem\.ld_reduce\.acquire\.gpu\.global\.min\.u32
// ptx: loadsU32Min : multimem\.ld_reduce\.acquire\.sys\.global\.min\.u32
__global__ void loadsU32Min(std::uint32_t* p, std::uint32_t* out) { loads<Min, void, std::uint32_t, 1>(p, out); }

// ptx: reductionsU32Min : multimem\.red\.relaxed\.cta\.global\.min\.u32
// ptx: reductionsU32Min : multimem\.red\.relaxed\.gpu\.global\.min\.u32
// ptx: reductionsU32Min : multimem\.red\.relaxed\.sys\.global\.min\.u32
// ptx: reductionsU32Min : multimem\.red\.release\.cta\.global\.min\.u32
// ptx: reductionsU32Min : multimem\.red\.release\.gpu\.global\.min\.u32
// ptx: reductionsU32Min : multimem\.red\.release\.sys\.global\.min\.u32
__global__ void reductionsU32Min(std::uint32_t* p, std::uint32_t const* in) {
  reductions<Min, std::uint32_t, 1>(p, in);
}

// ptx: loadsU32Max : multimem\.ld_reduce\.relaxed\.cta\.global\.max\.u32
// ptx: loadsU32Max : multimem\.ld_reduce\.relaxed\.gpu\.global\.max\.u32
// ptx: loadsU32Max : multimem\.ld_reduce\.relaxed\.sys\.global\.max\.u32
// ptx: loadsU32Max : multimem\.ld_reduce\.acquire\.cta\.global\.max\.u32
// ptx: loadsU32Max : multimem\.ld_reduce\.acquire\.gpu\.global\.max\.u32
// ptx: loadsU32Max : multimem\.ld_reduce\.acquire\.sys\.global\.max\.u32
__global__ void loadsU32Max(std::uint32_t* p, std::uint32_t* out) { loads<Max, void, std::uint32_t, 1>(p, out); }

// ptx: reductionsU32Max : multimem\.red\.relaxed\.cta\.global\.max\.u32
// ptx: reductionsU32Max : multimem\.red\.relaxed\.gpu\.global\.max\.u32
// ptx: reductionsU32Max : multimem\.red\.relaxed\.sys\.global\.max\.u32
// ptx: reductionsU32Max : multimem\.red\.release\.cta\.global\.max\.u32
// ptx: reductionsU32Max : multimem\.red\.release\.gpu\.global\.max\.u32
// ptx: reductionsU32Max : multimem\.red\.release\.sys\.global\.max\.u32
__global__ void reductionsU32Max(std::uint32_t* p, std::uint32_t const* in) {
  reductions<Max, std::uint32_t, 1>(p, in);
}

// ptx: storesU32 : multimem\.st\.relaxed\.cta\.global\.b32
// ptx: storesU32 : multimem\.st\.relaxed\.gpu\.global\.b32
// ptx: storesU32 : multimem\.st\.relaxed\.sys\.global\.b32
// ptx: storesU32 : multimem\.st\.release\.cta\.global\.b32
// ptx: storesU32 : multimem\.st\.release\.gpu\.global\.b32
// ptx: storesU32 : multimem\.st\.release\.sys\.global\.b32
__global__ void storesU32(std::uint32_t* p, std::uint32_t const* in) { stores<std::uint32_t, 1>(p, in); }

// ptx: loadsI64Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.u64
// ptx: loadsI64Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.u64
// ptx: loadsI64Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.u64
// ptx: loadsI64Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.u64
// ptx: loadsI64Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.u64
// ptx: loadsI64Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.u64
__global__ void loadsI64Sum(std::int64_t* p, std::int64_t* out) { loads<Sum, void, std::int64_t, 1>(p, out); }

// ptx: reductionsI64Sum : multimem\.red\.relaxed\.cta\.global\.add\.u64
// ptx: reductionsI64Sum : multimem\.red\.relaxed\.gpu\.global\.add\.u64
// ptx: reductionsI64Sum : multimem\.red\.relaxed\.sys\.global\.add\.u64
// ptx: reductionsI64Sum : multimem\.red\.release\.cta\.global\.add\.u64
// ptx: reductionsI64Sum : multimem\.red\.release\.gpu\.global\.add\.u64
// ptx: reductionsI64Sum : multimem\.red\.release\.sys\.global\.add\.u64
__global__ void reductionsI64Sum(std::int64_t* p, std::int64_t const* in) { reductions<Sum, std::int64_t, 1>(p, in); }

// ptx: loadsI64Min : multimem\.ld_reduce\.relaxed\.cta\.global\.min\.s64
// ptx: loadsI64Min : multimem\.ld_reduce\.relaxed\.gpu\.global\.min\.s64
// ptx: loadsI64Min : multimem\.ld_reduce\.relaxed\.sys\.global\.min\.s64
// ptx: loadsI64Min : multimem\.ld_reduce\.acquire\.cta\.global\.min\.s64
// ptx: loadsI64Min : multimem\.ld_reduce\.acquire\.gpu\.global\.min\.s64
// ptx: loadsI64Min : multimem\.ld_reduce\.acquire\.sys\.global\.min\.s64
__global__ void loadsI64Min(std::int64_t* p, std::int64_t* out) { loads<Min, void, std::int64_t, 1>(p, out); }

// ptx: reductionsI64Min : multimem\.red\.relaxed\.cta\.global\.min\.s64
// ptx: reductionsI64Min : multimem\.red\.relaxed\.gpu\.global\.min\.s64
// ptx: reductionsI64Min : multimem\.red\.relaxed\.sys\.global\.min\.s64
// ptx: reductionsI64Min : multimem\.red\.release\.cta\.global\.min\.s64
// ptx: reductionsI64Min : multimem\.red\.release\.gpu\.global\.min\.s64
// ptx: reductionsI64Min : multimem\.red\.release\.sys\.global\.min\.s64
__global__ void reductionsI64Min(std::int64_t* p, std::int64_t const* in) { reductions<Min, std::int64_t, 1>(p, in); }

// ptx: loadsI64Max : multimem\.ld_reduce\.relaxed\.cta\.global\.max\.s64
// ptx: loadsI64Max : multimem\.ld_reduce\.relaxed\.gpu\.global\.max\.s64
// ptx: loadsI64Max : multimem\.ld_reduce\.relaxed\.sys\.global\.max\.s64
// ptx: loadsI64Max : multimem\.ld_reduce\.acquire\.cta\.global\.max\.s64
// ptx: loadsI64Max : multimem\.ld_reduce\.acquire\.gpu\.global\.max\.s64
// ptx: loadsI64Max : multimem\.ld_reduce\.acquire\.sys\.global\.max\.s64
__global__ void loadsI64Max(std::int64_t* p, std::int64_t* out) { loads<Max, void, std::int64_t, 1>(p, out); }

// ptx: reductionsI64Max : multimem\.red\.relaxed\.cta\.global\.max\.s64
// ptx: reductionsI64Max : multimem\.red\.relaxed\.gpu\.global\.max\.s64
// ptx: reductionsI64Max : multimem\.red\.relaxed\.sys\.global\.max\.s64
// ptx: reductionsI64Max : multimem\.red\.release\.cta\.global\.max\.s64
// ptx: reductionsI64Max : multimem\.red\.release\.gpu\.global\.max\.s64
// ptx: reductionsI64Max : multimem\.red\.release\.sys\.global\.max\.s64
__global__ void reductionsI64Max(std::int64_t* p, std::int64_t const* in) { reductions<Max, std::int64_t, 1>(p, in); }

// ptx: storesI64 : multimem\.st\.relaxed\.cta\.global\.b64
// ptx: storesI64 : multimem\.st\.relaxed\.gpu\.global\.b64
// ptx: storesI64 : multimem\.st\.relaxed\.sys\.global\.b64
// ptx: storesI64 : multimem\.st\.release\.cta\.global\.b64
// ptx: storesI64 : multimem\.st\.release\.gpu\.global\.b64
// ptx: storesI64 : multimem\.st\.release\.sys\.global\.b64
__global__ void storesI64(std::int64_t* p, std::int64_t const* in) { stores<std::int64_t, 1>(p, in); }

// ptx: loadsU64Sum : multimem\.ld_reduce\.relaxed\.cta\.global\.add\.u64
// ptx: loadsU64Sum : multimem\.ld_reduce\.relaxed\.gpu\.global\.add\.u64
// ptx: loadsU64Sum : multimem\.ld_reduce\.relaxed\.sys\.global\.add\.u64
// ptx: loadsU64Sum : multimem\.ld_reduce\.acquire\.cta\.global\.add\.u64
// ptx: loadsU64Sum : multimem\.ld_reduce\.acquire\.gpu\.global\.add\.u64
// ptx: loadsU64Sum : multimem\.ld_reduce\.acquire\.sys\.global\.add\.u64
__global__ void loadsU64Sum(std::uint64_t* p, std::uint64_t* out) { loads<Sum, void, std::uint64_t, 1>(p, out); }

// ptx: reductionsU64Sum : multimem\.red\.relaxed\.cta\.global\.add\.u64
// ptx: reductionsU64Sum : multimem\.red\.relaxed\.gpu\.global\.add\.u64
// ptx: reductionsU64Sum : multimem\.red\.relaxed\.sys\.global\.add\.u64
// ptx: reductionsU64Sum : multimem\.red\.release\.cta\.global\.add\.u64
// ptx: reductionsU64Sum : multimem\.red\.release\.gpu\.global\.add\.u64
// ptx: reductionsU64Sum : multimem\.red\.release\.sys\.global\.add\.u64
__global__ void reductionsU64Sum(std::uint64_t* p, std::uint64_t const* in) {
  reductions<Sum, std::uint64_t, 1>(p, in);
}

// ptx: loadsU64Min : multimem\.ld_reduce\.relaxed\.cta\.global\.min\.u64
// ptx: loadsU64Min : multimem\.ld_reduce\.relaxed\.gpu\.global\.min\.u64
// ptx: loadsU64Min : multimem\.ld_reduce\.relaxed\.sys\.global\.min\.u64
// ptx: loadsU64Min : multimem\.ld_reduce\.acquire\.cta\.global\.min\.u64
// ptx: loadsU64Min : multimem\.ld_reduce\.acquire\.gpu\.global\.min\.u64
// ptx: loadsU64Min : multimem\.ld_reduce\.acquire\.sys\.global\.min\.u64
__global__ void loadsU64Min(std::uint64_t* p, std::uint64_t* out) { loads<Min, void, std::uint64_t, 1>(p, out); }

// ptx: reductionsU64Min : multimem\.red\.relaxed\.cta\.global\.min\.u64
// ptx: reductionsU64Min : multimem\.red\.relaxed\.gpu\.global\.min\.u64
// ptx: reductionsU64Min : multimem\.red\.relaxed\.sys\.global\.min\.u64
// ptx: reductionsU64Min : multimem\.red\.release\.cta\.global\.min\.u64
// ptx: reductionsU64Min : multimem\.red\.release\.gpu\.global\.min\.u64
// ptx: reductionsU64Min : multimem\.red\.release\.sys\.global\.min\.u64
__global__ void reductionsU64Min(std::uint64_t* p, std::uint64_t const* in) {
  reductions<Min, std::uint64_t, 1>(p, in);
}

// ptx: loadsU64Max : multimem\.ld_reduce\.relaxed\.cta\.global\.max\.u64
// ptx: loadsU64Max : multimem\.ld_reduce\.relaxed\.gpu\.global\.max\.u64
// ptx: loadsU64Max : multimem\.ld_reduce\.relaxed\.sys\.global\.max\.u64
// ptx: loadsU64Max : multimem\.ld_reduce\.acquire\.cta\.global\.max\.u64
// ptx: loadsU64Max : multimem\.ld_reduce\.acquire\.gpu\.global\.max\.u64
// ptx: loadsU64Max : multimem\.ld_reduce\.acquire\.sys\.global\.max\.u64
__global__ void loadsU64Max(std::uint64_t* p, std::uint64_t* out) { loads<Max, void, std::uint64_t, 1>(p, out); }

// ptx: reductionsU64Max : multimem\.red\.relaxed\.cta\.global\.max\.u64
// ptx: reductionsU64Max : multimem\.red\.relaxed\.gpu\.global\.max\.u64
// ptx: reductionsU64Max : multimem\.red\.relaxed\.sys\.global\.max\.u64
// ptx: reductionsU64Max : multimem\.red\.release\.cta\.global\.max\.u64
// ptx: reductionsU64Max : multimem\.red\.release\.gpu\.global\.max\.u64
// ptx: reductionsU64Max : multimem\.red\.release\.sys\.global\.max\.u64
__global__ void reductionsU64Max(std::uint64_t* p, std::uint64_t const* in) {
  reductions<Max, std::uint64_t, 1>(p, in);
}

// ptx: storesU64 : multimem\.st\.relaxed\.cta\.global\.b64
// ptx: storesU64 : multimem\.st\.relaxed\.gpu\.global\.b64
// ptx: storesU64 : multimem\.st\.relaxed\.sys\.global\.b64
// ptx: storesU64 : multimem\.st\.release\.cta\.global\.b64
// ptx: storesU64 : multimem\.st\.release\.gpu\.global\.b64
// ptx: storesU64 : multimem\.st\.release\.sys\.global\.b64
__global__ void storesU64(std::uint64_t* p, std::uint64_t const* in) { stores<std::uint64_t, 1>(p, in); }

// A fence of its own kind, and nothing more.
// ptx: aliasFence : fence\.proxy\.alias
// ptx-not: aliasFence : fence\.acq_rel|fence\.sc|membar
__global__ void aliasFence() { multimemFence(); }
