# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The sources of a folder compiled as one: most of the time goes into what all of them include, so a whole build of the
# libraries takes a third of it, and a change more. CMake's own unity builds put the joined sources into each build's
# folder, where a compiler's cache does not know them again.

set(MSCCLPP_JOIN_SOURCES "" CACHE PATH
    "Compile the sources of a folder of a library as one that is written here, which several builds may share")

# mscclpp_join_sources(<target> <sources...>): local names of sources of one folder differ therefore.
function(mscclpp_join_sources target)
  if(NOT MSCCLPP_JOIN_SOURCES)
    return()
  endif()
  set(groups "")
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(GET path PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
    string(REPLACE "/" "_" group "${folder}")
    list(APPEND groups ${group})
    string(APPEND text_${group} "#include \"${path}\"\n")
    set_source_files_properties("${source}" PROPERTIES HEADER_FILE_ONLY ON)
  endforeach()
  list(REMOVE_DUPLICATES groups)
  foreach(group IN LISTS groups)
    # Builds with other parts join other sources.
    string(MD5 hash "${text_${group}}")
    string(SUBSTRING ${hash} 0 8 hash)
    set(joined "${MSCCLPP_JOIN_SOURCES}/${group}_${hash}.cpp")
    file(CONFIGURE OUTPUT "${joined}" CONTENT "${text_${group}}" @ONLY)
    target_sources(${target} PRIVATE "${joined}")
  endforeach()
  # To the compiler they are headers.
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()
