# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# One source, two machines: the same .cpp compiled by the C++ compiler for the simulator and by nvcc for the GPU.
#
# A source has one language per directory in CMake, so nvcc gets a generated one-line .cu that includes the source.

# Sets `result` to the .cu files that stand for `ARGN`.
function(mscclpp_cuda_wrappers result)
  set(wrappers "")
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
    set(base "${PROJECT_SOURCE_DIR}")
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR "${source}" is_generated)
    if(is_generated)
      set(base "${PROJECT_BINARY_DIR}")
    endif()
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${base}" OUTPUT_VARIABLE path)
    cmake_path(REPLACE_EXTENSION path cu)
    set(wrapper "${PROJECT_BINARY_DIR}/generated/cuda/${path}")
    file(CONFIGURE OUTPUT "${wrapper}" CONTENT "#include \"${source}\"\n" @ONLY)
    list(APPEND wrappers "${wrapper}")
  endforeach()
  set(${result} "${wrappers}" PARENT_SCOPE)
endfunction()

# What mscclpp_add_single_source is told below for tests and examples, which nobody can run without a GPU: where PTX of one
# generation is all that is asked for, the C++ compiler's opinion of their host half is enough.
set(mscclpp_without_gpu "")
if(MSCCLPP_HAS_SIM AND NOT MSCCLPP_HAS_GPU AND CMAKE_CUDA_ARCHITECTURES MATCHES "^[0-9]+a?-virtual$")
  set(mscclpp_without_gpu PTX)
endif()

# mscclpp_add_single_source(<name> SOURCES <both ways...> [HOST_SOURCES <C++ only...>] [LIBRARIES <targets...>] [PTX])
#
# Makes executable <name> on the simulator and <name>_cuda for GPUs, each where this build has the machine. With PTX the
# latter is no executable: only the device's half of its sources is compiled, in half of the time.
function(mscclpp_add_single_source name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "PTX" "" "SOURCES;HOST_SOURCES;LIBRARIES")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "mscclpp_add_single_source(${name}): wants SOURCES, [HOST_SOURCES] and [LIBRARIES]; "
                        "got '${arg_UNPARSED_ARGUMENTS}' beside them")
  endif()
  if(MSCCLPP_HAS_SIM)
    add_executable(${name} ${arg_SOURCES} ${arg_HOST_SOURCES})
    target_link_libraries(${name} PRIVATE mscclpp::sim mscclpp_warnings ${arg_LIBRARIES})
  endif()
  if(MSCCLPP_HAS_NVCC)
    mscclpp_cuda_wrappers(wrappers ${arg_SOURCES})
    if(arg_PTX)
      add_library(${name}_cuda OBJECT ${wrappers})
      set_target_properties(${name}_cuda PROPERTIES CUDA_PTX_COMPILATION ON)
    else()
      add_executable(${name}_cuda ${wrappers} ${arg_HOST_SOURCES})
    endif()
    target_link_libraries(${name}_cuda PRIVATE mscclpp::host mscclpp_warnings ${arg_LIBRARIES})
  endif()
endfunction()

# mscclpp_target_device_sources(<target> <sources...>)
#
# Adds the sources to one target for every machine of this build; their code differs by inline namespace.
function(mscclpp_target_device_sources target)
  if(MSCCLPP_HAS_SIM)
    target_sources(${target} PRIVATE ${ARGN})
    target_link_libraries(${target} PRIVATE mscclpp::sim)
  endif()
  if(MSCCLPP_HAS_NVCC)
    mscclpp_cuda_wrappers(wrappers ${ARGN})
    target_sources(${target} PRIVATE ${wrappers})
    target_link_libraries(${target} PRIVATE mscclpp::host)
  endif()
endfunction()
