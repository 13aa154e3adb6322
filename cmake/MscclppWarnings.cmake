# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compiler options for this project's own sources, as a target that is linked privately and never exported.

add_library(mscclpp_warnings INTERFACE)
target_compile_options(mscclpp_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion>
  # These come from the optimiser: g++ 12 gives them for unrolled loops over registers of which each iteration fills its
  # own, and inside its own std::vector and std::string.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized -Wno-array-bounds -Wno-restrict>
  # nvcc's generated host code is not pedantic nor free of conversions, and keeps pragmas that are for the device half.
  $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Xcompiler=-Wall,-Wextra,-Wshadow,-Wno-unknown-pragmas,-Wno-maybe-uninitialized>)
# The checker names lines of inlined functions, and counts on its own speed.
set(MSCCLPP_TEST_OPTIONS "" CACHE STRING
    "Options of the C++ compiler, after those of the build type, but for what the checker looks at; scripts/test.sh has -O1 -g1")
separate_arguments(mscclpp_test_options UNIX_COMMAND "${MSCCLPP_TEST_OPTIONS}")
set(mscclpp_libraries "$<TARGET_PROPERTY:LINK_LIBRARIES>")
target_compile_options(mscclpp_warnings INTERFACE "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<OR:$<IN_LIST:mscclpp::check,\
${mscclpp_libraries}>,$<IN_LIST:mscclpp::check_object,${mscclpp_libraries}>,$<IN_LIST:Boost::context,\
${mscclpp_libraries}>>>>:${mscclpp_test_options}>")
if(MSCCLPP_WERROR)
  target_compile_options(mscclpp_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=stringop-overflow -Wno-error=stringop-overread>
    $<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Werror=all-warnings -Xcompiler=-Werror>)
endif()
