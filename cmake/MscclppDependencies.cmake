# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Third-party libraries: the installed package first, FetchContent where there is none. Sets MSCCLPP_HAS_SIM and
# MSCCLPP_HAS_CHECK.
#
# MSCCLPP_DEPS_DIR may name a prefix to look in first (a folder with include/ and perhaps lib/), for machines that can
# neither install nor download.

include(FetchContent)

set(MSCCLPP_DEPS_DIR "$ENV{MSCCLPP_DEPS_DIR}" CACHE PATH "Prefix with third-party headers and libraries, searched first")
if(MSCCLPP_DEPS_DIR)
  list(PREPEND CMAKE_PREFIX_PATH "${MSCCLPP_DEPS_DIR}")
endif()

# A header-only library needs no package files: headers alone, in a prefix that is searched, will do.
function(mscclpp_headers_alone target header)
  string(MAKE_C_IDENTIFIER "mscclpp_include_${header}" variable)
  find_path(${variable} "${header}")
  mark_as_advanced(${variable})
  if(${variable} AND NOT TARGET ${target})
    add_library(${target} INTERFACE IMPORTED GLOBAL)
    target_include_directories(${target} SYSTEM INTERFACE "${${variable}}")
  endif()
endfunction()

# mscclpp_require(<package> <target> <repository> <tag> [HEADER <header>] [OPTIONS <cache entries of the fetched build>])
function(mscclpp_require package target repository tag)
  cmake_parse_arguments(PARSE_ARGV 4 arg "" "HEADER" "OPTIONS")
  if(TARGET ${target})
    return()
  endif()
  find_package(${package} CONFIG QUIET GLOBAL)
  if(NOT TARGET ${target} AND arg_HEADER)
    mscclpp_headers_alone(${target} ${arg_HEADER})
  endif()
  if(TARGET ${target})
    return()
  endif()
  message(STATUS "mscclpp: ${package} is not installed, fetching ${repository} ${tag}")
  foreach(option IN LISTS arg_OPTIONS)
    set(${option} ON)
  endforeach()
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
  set(BUILD_SHARED_LIBS OFF)
  FetchContent_Declare(${package} GIT_REPOSITORY ${repository} GIT_TAG ${tag} GIT_SHALLOW ON SYSTEM)
  FetchContent_MakeAvailable(${package})
  if(NOT TARGET ${target})
    message(FATAL_ERROR "${package} was fetched from ${repository} but defines no target ${target}")
  endif()
endfunction()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

set(BENCHMARK_ENABLE_TESTING OFF)
set(BENCHMARK_ENABLE_INSTALL OFF)
set(JSON_BuildTests OFF)
set(CLI11_BUILD_TESTS OFF)
set(CLI11_BUILD_EXAMPLES OFF)
set(DOCTEST_WITH_TESTS OFF)

mscclpp_require(fmt fmt::fmt https://github.com/fmtlib/fmt.git 10.2.1 OPTIONS FMT_INSTALL)

if(PROJECT_IS_TOP_LEVEL)
  if(MSCCLPP_BUILD_TESTS)
    mscclpp_require(doctest doctest::doctest https://github.com/doctest/doctest.git v2.4.11 HEADER doctest/doctest.h)
  endif()
  if(MSCCLPP_BUILD_BENCH)
    mscclpp_require(benchmark benchmark::benchmark https://github.com/google/benchmark.git v1.8.3)
  endif()
endif()

# Boost is too large to fetch for the one library of it that the simulator needs.
set(MSCCLPP_HAS_SIM OFF)
if(MSCCLPP_BUILD_SIM)
  if(NOT TARGET Boost::context)
    find_package(Boost 1.71 CONFIG QUIET COMPONENTS context)
  endif()
  if(TARGET Boost::context)
    set(MSCCLPP_HAS_SIM ON)
  else()
    message(STATUS "mscclpp: no simulated GPUs: Boost.Context is not installed (Debian, Ubuntu: libboost-context-dev)")
  endif()
endif()

# The checker's compiler hooks take the place of a sanitizer's runtime library, so a build with one has no checker.
set(MSCCLPP_HAS_CHECK OFF)
if(MSCCLPP_HAS_SIM AND CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_CXX_COMPILER_ID MATCHES "^(GNU|Clang)$"
   AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
  set(MSCCLPP_HAS_CHECK ON)
endif()

# Header-only; they leave no trace in what is built.
set(mscclpp_wants_cli OFF)
if((PROJECT_IS_TOP_LEVEL AND (MSCCLPP_BUILD_BENCH OR MSCCLPP_BUILD_TESTS)) OR MSCCLPP_BUILD_TOOLS)
  set(mscclpp_wants_cli ON)
  mscclpp_require(CLI11 CLI11::CLI11 https://github.com/CLIUtils/CLI11.git v2.4.1 HEADER CLI/CLI.hpp)
endif()
# Timelines, reports, results, tuned profiles.
mscclpp_require(nlohmann_json nlohmann_json::nlohmann_json https://github.com/nlohmann/json.git v3.11.3
                HEADER nlohmann/json.hpp)
