// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Additions to memory: one instruction each, for each type.
// ptx-architectures: 90,100
#include "mscclpp/device/tiles/reduce_into.hpp"

using namespace mscclpp;

template <class T>
__device__ __forceinline__ void add(std::byte* dst, std::uint32_t bytes) {
  bulkReduceAdd(reinterpret_cast<T*>(dst), reinterpret_cast<T const*>(arch::dynamicShared()), bytes);
}

// ptx: bulkKernel : cp\.reduce\.async\.bulk\.global\.shared::cta\.bulk_group\.add\.f32 \[
// ptx: bulkKernel : cp\.reduce\.async\.bulk\.global\.shared::cta\.bulk_group\.add\.noftz\.f16 \[
// ptx: bulkKernel : cp\.reduce\.async\.bulk\.global\.shared::cta\.bulk_group\.add\.noftz\.bf16 \[
// ptx: bulkKernel : cp\.reduce\.async\.bulk\.global\.shared::cta\.bulk_group\.add\.u32 \[
// ptx: bulkKernel : cp\.reduce\.async\.bulk\.global\.shared::cta\.bulk_group\.add\.s32 \[
// ptx: bulkKernel : cp\.reduce\.async\.bulk\.global\.shared::cta\.bulk_group\.add\.u64 \[
// ptx: bulkKernel : cp\.async\.bulk\.commit_group;
// ptx: bulkKernel : cp\.async\.bulk\.wait_group 0;
// ptx-not: bulkKernel : trap
__global__ void bulkKernel(std::byte* dst, std::uint32_t bytes) {
  add<float>(dst, bytes);
  add<Half>(dst, bytes);
  add<BFloat16>(dst, bytes);
  add<std::uint32_t>(dst, bytes);
  add<std::int32_t>(dst, bytes);
  add<std::uint64_t>(dst, bytes);
  bulkCommit();
  bulkWait();
}

// ptx: vectorKernel : red\.relaxed\.gpu\.global\.add\.v4\.f32 \[
// ptx: vectorKernel : red\.relaxed\.sys\.global\.add\.v4\.f32 \[
// ptx: vectorKernel : red\.relaxed\.gpu\.global\.add\.noftz\.v4\.f16x2 \[
// ptx: vectorKernel : red\.relaxed\.sys\.global\.add\.noftz\.v4\.f16x2 \[
// ptx: vectorKernel : red\.relaxed\.gpu\.global\.add\.noftz\.v4\.bf16x2 \[
// ptx: vectorKernel : red\.relaxed\.sys\.global\.add\.noftz\.v4\.bf16x2 \[
// ptx-not: vectorKernel : trap
__global__ void vectorKernel(float* floats, Half* halfs, BFloat16* bfloats, Vector<float, 4> f, Vector<Half, 8> h,
                             Vector<BFloat16, 8> b) {
  reduceAdd<Scope::device>(floats, f);
  reduceAdd<Scope::system>(floats, f);
  reduceAdd<Scope::device>(halfs, h);
  reduceAdd<Scope::system>(halfs, h);
  reduceAdd<Scope::device>(bfloats, b);
  reduceAdd<Scope::system>(bfloats, b);
}
