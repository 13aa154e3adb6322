# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compiler options for this project's own sources, as a target that is linked privately and never exported.

add_library(mscclpp_warnings INTERFACE)
target_compile_options(mscclpp_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>
  # These come from the optimiser: g++ 12 gives them inside its own std::vector and std::string.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds -Wno-restrict>
  # nvcc's generated host code is not pedantic nor free of conversions.
  $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Xcompiler=-Wall,-Wextra,-Wshadow>)
# Targets whose speed is looked at, the simulated machine above all, have the property MSCCLPP_FAST and keep the
# optimisations of the build type.
set(MSCCLPP_TEST_OPTIONS "" CACHE STRING "Options of the C++ compiler, after those of the build type; scripts/test.sh has -Og -g1")
separate_arguments(mscclpp_test_options UNIX_COMMAND "${MSCCLPP_TEST_OPTIONS}")
set(mscclpp_fast_options ${mscclpp_test_options})
list(FILTER mscclpp_fast_options EXCLUDE REGEX "^-O")
target_compile_options(mscclpp_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:$<IF:$<BOOL:$<TARGET_PROPERTY:MSCCLPP_FAST>>,${mscclpp_fast_options},${mscclpp_test_options}>>")
if(MSCCLPP_WERROR)
  target_compile_options(mscclpp_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=stringop-overflow -Wno-error=stringop-overread>
    $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Werror=all-warnings -Xcompiler=-Werror>)
endif()
