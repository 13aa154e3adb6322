// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The instructions behind signals, waits and packets. A weaker order here is a lost signal or stale data on a GPU.
#include "mscclpp/mscclpp.hpp"

using namespace mscclpp;

// ptx: signalKernel : red\.release\.sys\.global\.add\.u64
__global__ void signalKernel(layout::SemaphoreHandle handle) {
  MemoryDevice2DeviceSemaphoreDeviceHandle(handle).signal();
}

// ptx: relaxedSignalKernel : red\.relaxed\.sys\.global\.add\.u64
// ptx-not: relaxedSignalKernel : release|fence
__global__ void relaxedSignalKernel(layout::SemaphoreHandle handle) {
  MemoryDevice2DeviceSemaphoreDeviceHandle(handle).relaxedSignal();
}

// ptx: waitKernel : ld\.acquire\.sys\.global\.b64
// ptx-not: waitKernel : ld\.relaxed\.sys\.global\.b64 .*ld\.relaxed\.sys\.global\.b64 .*ld\.relaxed\.sys\.global\.b64
__global__ void waitKernel(layout::SemaphoreHandle handle) { MemoryDevice2DeviceSemaphoreDeviceHandle(handle).wait(); }

// ptx: relaxedWaitKernel : ld\.relaxed\.sys\.global\.b64
// ptx-not: relaxedWaitKernel : ld\.acquire
__global__ void relaxedWaitKernel(layout::SemaphoreHandle handle) {
  MemoryDevice2DeviceSemaphoreDeviceHandle(handle).relaxedWait();
}

// ptx: publishKernel : bar\.red\.popc|barrier(\.cta)?\.red\.popc
// ptx: publishKernel : st\.release\.sys\.global\.b64
__global__ void publishKernel(const __grid_constant__ DeviceTeam team) { publishPhase(team, thisGrid(), 0, 7); }

// ptx: awaitKernel : ld\.acquire\.sys\.global\.b64
// ptx: awaitKernel : bar\.red\.popc|barrier(\.cta)?\.red\.popc
__global__ void awaitKernel(const __grid_constant__ DeviceTeam team) { awaitPhase(team, thisGrid(), 0, 7); }

// ptx: gridBarrierKernel : atom\.acq_rel\.gpu\.global\.add\.u32
// ptx: gridBarrierKernel : st\.release\.gpu\.global\.b32
__global__ void gridBarrierKernel(const __grid_constant__ DeviceTeam team) { gridBarrier(team, thisGrid()); }
// The same once more: who waits is in another branch, which may stand before or behind that of who comes last.
// ptx: gridBarrierAgain : atom\.acq_rel\.gpu\.global\.add\.u32
// ptx: gridBarrierAgain : ld\.acquire\.gpu\.global\.b32
__global__ void gridBarrierAgain(const __grid_constant__ DeviceTeam team) { gridBarrier(team, thisGrid()); }

// One instruction moves a packet: 8 bytes for LL8, 16 for LL16 and LL128.
// ptx: storeLL8 : st\.relaxed\.sys\.global\.v2\.b32
// ptx-not: storeLL8 : st\.global
__global__ void storeLL8(std::byte* slot, std::uint32_t word) { LL8::store(slot, Payload<1>{{word}}, 3, true); }

// ptx: storeLL16 : st\.relaxed\.sys\.global\.v4\.b32
// ptx-not: storeLL16 : st\.global
__global__ void storeLL16(std::byte* slot, std::uint32_t word) { LL16::store(slot, Payload<2>{{word, word}}, 3, true); }

// ptx: storeLL128 : bar\.warp\.sync
// ptx: storeLL128 : st\.relaxed\.sys\.global\.v4\.b32
// ptx-not: storeLL128 : st\.global
__global__ void storeLL128(std::byte* slot, std::uint32_t word) {
  LL128::store(slot + threadIdx.x * 16, Payload<4>{{word, word, word, word}}, 3, true);
}

// ptx: loadLL8 : ld\.relaxed\.sys\.global\.v2\.b32
// ptx-not: loadLL8 : ld\.global
__global__ void loadLL8(std::byte const* slot, std::uint32_t* out) { out[0] = LL8::load(slot).w[0]; }

// ptx: loadLL16 : ld\.relaxed\.sys\.global\.v4\.b32
// ptx-not: loadLL16 : ld\.global
__global__ void loadLL16(std::byte const* slot, std::uint32_t* out) { out[0] = LL16::load(slot).w[0]; }

// ptx: fenceKernel : fence\.acq_rel\.sys
// ptx: fenceKernel : fence\.sc\.gpu
__global__ void fenceKernel() {
  fence<Order::acquireRelease, Scope::system>();
  fence<Order::sequential, Scope::device>();
}

// ptx: copyKernel : ld\.global\.v4\.u32
// ptx: copyKernel : st\.global\.v4\.u32
__global__ void copyKernel(std::byte* dst, std::byte const* src, std::uint64_t bytes) {
  copy(thisGrid(), dst, src, bytes);
}
