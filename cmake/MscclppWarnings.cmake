# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Warnings for this project's own sources, as a target that is linked privately and never exported.

add_library(mscclpp_warnings INTERFACE)
target_compile_options(mscclpp_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>
  # These come from the optimiser: g++ 12 gives them for unrolled loops over registers of which each iteration fills its
  # own, and inside its own std::vector and std::string.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized -Wno-array-bounds -Wno-restrict>
  # nvcc's generated host code is not pedantic nor free of conversions, and keeps pragmas that are for the device half.
  $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Xcompiler=-Wall,-Wextra,-Wshadow,-Wno-unknown-pragmas,-Wno-maybe-uninitialized>)
if(MSCCLPP_WERROR)
  target_compile_options(mscclpp_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=stringop-overflow -Wno-error=stringop-overread>
    $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Werror=all-warnings -Xcompiler=-Werror>)
endif()
