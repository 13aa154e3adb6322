# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Finds out whether this build has CUDA. Sets MSCCLPP_HAS_CUDA (the toolkit: the compiled helper can reach GPUs),
# MSCCLPP_HAS_NVCC (this project compiles device code itself) and MSCCLPP_HAS_GPU (a usable GPU in this machine).
#
# MSCCLPP_USE_CUDA: AUTO takes nvcc where it is found, ON demands it, OFF leaves it alone even where it is installed. The
# environment variable of the same name gives the default, so scripts and FetchContent users can set it without a cache.

if(DEFINED ENV{MSCCLPP_USE_CUDA} AND NOT "$ENV{MSCCLPP_USE_CUDA}" STREQUAL "")
  set(mscclpp_use_cuda_default "$ENV{MSCCLPP_USE_CUDA}")
else()
  set(mscclpp_use_cuda_default AUTO)
endif()
set(MSCCLPP_USE_CUDA "${mscclpp_use_cuda_default}" CACHE STRING "Use CUDA: AUTO, ON or OFF")
set_property(CACHE MSCCLPP_USE_CUDA PROPERTY STRINGS AUTO ON OFF)

# Real code of every generation that the library knows: ptxas refuses what a generation lacks, PTX alone would not show.
set(mscclpp_generations "80-real;90-real;100-real")
set(MSCCLPP_CUDA_ARCHITECTURES "${mscclpp_generations}" CACHE STRING
    "What this project's own CUDA kernels, tests, examples and benchmark are compiled for")

set(MSCCLPP_HAS_CUDA OFF)
set(MSCCLPP_HAS_NVCC OFF)
if(NOT MSCCLPP_USE_CUDA STREQUAL "AUTO" AND NOT MSCCLPP_USE_CUDA)
  message(STATUS "mscclpp: CUDA off (MSCCLPP_USE_CUDA=${MSCCLPP_USE_CUDA})")
else()
  # The helper is plain C++ and needs the toolkit's headers and runtime library only.
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND)
    set(MSCCLPP_HAS_CUDA ON)
    message(STATUS "mscclpp: CUDA toolkit ${CUDAToolkit_VERSION} in ${CUDAToolkit_BIN_DIR}")
  elseif(MSCCLPP_USE_CUDA STREQUAL "AUTO")
    message(STATUS "mscclpp: no CUDA toolkit found, building without CUDA")
  else()
    message(FATAL_ERROR "MSCCLPP_USE_CUDA=${MSCCLPP_USE_CUDA}, but no CUDA toolkit was found. Put nvcc on the PATH, set "
                        "CUDAToolkit_ROOT, or configure with MSCCLPP_USE_CUDA=OFF.")
  endif()
endif()

if(MSCCLPP_HAS_CUDA AND (MSCCLPP_BUILD_COLLECTIVES OR
    (PROJECT_IS_TOP_LEVEL AND (MSCCLPP_BUILD_TESTS OR MSCCLPP_BUILD_EXAMPLES OR MSCCLPP_BUILD_BENCH))))
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${MSCCLPP_CUDA_ARCHITECTURES})
  endif()
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
  endif()
  # Device code and the C++ objects that it links with must come from one host compiler.
  if(NOT CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
    set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}")
  endif()
  enable_language(CUDA)
  set(MSCCLPP_HAS_NVCC ON)
  message(STATUS "mscclpp: nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
endif()

set(MSCCLPP_HAS_GPU OFF)
if(MSCCLPP_HAS_NVCC)
  if(MSCCLPP_TEST_GPU STREQUAL "AUTO")
    execute_process(COMMAND nvidia-smi -L OUTPUT_VARIABLE mscclpp_smi ERROR_QUIET RESULT_VARIABLE mscclpp_smi_result)
    if(mscclpp_smi_result EQUAL 0 AND mscclpp_smi MATCHES "GPU [0-9]")
      set(MSCCLPP_HAS_GPU ON)
    endif()
  elseif(MSCCLPP_TEST_GPU)
    set(MSCCLPP_HAS_GPU ON)
  endif()
  message(STATUS "mscclpp: tests on a GPU: ${MSCCLPP_HAS_GPU}")
endif()

# Tests of what differs between generations: all of them, unless they are to run on the GPUs here.
set(MSCCLPP_TEST_GENERATIONS "${mscclpp_generations}")
if(MSCCLPP_HAS_GPU)
  set(MSCCLPP_TEST_GENERATIONS "${CMAKE_CUDA_ARCHITECTURES}")
endif()
