# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The sources of a folder compiled as one: most of the time goes into what all of them include, so a whole build takes a
# third of it, and a change more.

option(MSCCLPP_JOIN_SOURCES "Compile the sources of a folder of a library as one, so that a whole build is quicker" OFF)

# mscclpp_join_sources(<target> <sources...>): local names of sources of one folder differ therefore. Sources with options
# of their own stay by themselves.
function(mscclpp_join_sources target)
  if(NOT MSCCLPP_JOIN_SOURCES)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # To the compiler they are headers.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(GET path PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
    string(REPLACE "/" "_" group "${folder}")
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP ${group})
  endforeach()
endfunction()
