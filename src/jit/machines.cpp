// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "base/format.hpp"
#include "jit/machine.hpp"

namespace mscclpp::jit {

#ifdef MSCCLPP_JIT_CUDA
Machine& cudaMachine();
#endif
#ifdef MSCCLPP_JIT_SIM
Machine& simMachine();
#endif

Machine& machineOf(DeviceKind kind) {
#ifdef MSCCLPP_JIT_CUDA
  if (kind == DeviceKind::cuda) return cudaMachine();
#endif
#ifdef MSCCLPP_JIT_SIM
  if (kind == DeviceKind::sim) return simMachine();
#endif
  fail(ErrorCode::unsupported, "this build of the library compiles no kernels for {} devices", nameOf(kind));
}

}  // namespace mscclpp::jit
