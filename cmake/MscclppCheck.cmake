# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Programs that mscclpp-check runs, as tests. Part of the installed package.

# Calls that the linker leads to the hooks, since no compiler marks them. The flags keep compilers from carrying them out in
# place; for the builtins' own names see mscclpp/sim/visible_calls.hpp.
set(mscclpp_check_calls memcpy memmove memset mempcpy bcopy bzero memcmp bcmp memchr strlen strcmp strncmp strcpy strncpy
    stpcpy)
# What the checker needs of every source: the compiler's calls before each access and each misaligned one, line numbers,
# and no calls of functions that the hooks do not see.
set(mscclpp_check_flags -fsanitize=thread,alignment -g -U_FORTIFY_SOURCE "SHELL:-include mscclpp/sim/visible_calls.hpp")
foreach(call IN LISTS mscclpp_check_calls)
  list(APPEND mscclpp_check_flags -fno-builtin-${call})
endforeach()
# g++ warns that its own runtime library does not support fences; the hooks do. It also merges functions that do the same,
# and would name the lines of another one.
set(mscclpp_check_flags_GNU -Wno-tsan -fno-ipa-icf)
# Clang does not mark accesses of more than 16 bytes, as it makes them of loops; and leaves atomics of 16 to a library.
set(mscclpp_check_flags_Clang -fno-vectorize -fno-slp-vectorize)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  list(APPEND mscclpp_check_flags_Clang -mcx16)
endif()
set(mscclpp_check_compile_options
  "$<$<COMPILE_LANGUAGE:CXX>:${mscclpp_check_flags}>"
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:${mscclpp_check_flags_GNU}>"
  "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:${mscclpp_check_flags_Clang}>")
# The link has no -fsanitize=thread, which would bring that library in. Atomics of odd sizes are calls of libatomic.
set(mscclpp_check_link_options "")
foreach(call IN LISTS mscclpp_check_calls ITEMS __atomic_load __atomic_store __atomic_exchange __atomic_compare_exchange)
  list(APPEND mscclpp_check_link_options LINKER:--wrap=${call})
endforeach()

# All of these as text, for commands that are run without CMake.
list(JOIN mscclpp_check_flags " " mscclpp_check_flags_text)
string(REPLACE "SHELL:" "" mscclpp_check_flags_text "${mscclpp_check_flags_text}")
list(JOIN mscclpp_check_flags_GNU " " mscclpp_check_flags_text_GNU)
list(JOIN mscclpp_check_flags_Clang " " mscclpp_check_flags_text_Clang)
list(JOIN mscclpp_check_link_options " " mscclpp_check_link_text)
string(REPLACE "LINKER:" "-Wl," mscclpp_check_link_text "${mscclpp_check_link_text}")

# mscclpp_add_check(<name> SOURCES <sources...> [LIBRARIES <targets...>] [RANKS <n>] [SCHEDULES <n>]
#                   [FAULTS <n>] [ARGUMENTS <options of mscclpp-check...>])
#
# Builds the sources as shared object <name> and registers test <name>, which passes when mscclpp-check finds nothing.
function(mscclpp_add_check name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "RANKS;SCHEDULES;FAULTS" "SOURCES;LIBRARIES;ARGUMENTS")
  if(arg_UNPARSED_ARGUMENTS OR NOT arg_SOURCES)
    message(FATAL_ERROR "mscclpp_add_check(${name}): wants SOURCES, [LIBRARIES], [RANKS], [SCHEDULES], [FAULTS] and [ARGUMENTS]; "
                        "got '${arg_UNPARSED_ARGUMENTS}' beside them")
  endif()
  if(NOT TARGET mscclpp::check_object)
    message(FATAL_ERROR "mscclpp_add_check(${name}): this build of mscclpp has no checker; it needs Linux, Boost.Context, "
                        "g++ or clang, and a build without -fsanitize")
  endif()
  if(NOT TARGET mscclpp::mscclpp-check)
    message(FATAL_ERROR "mscclpp_add_check(${name}): mscclpp was built without its command; set MSCCLPP_BUILD_TOOLS=ON")
  endif()
  add_library(${name} MODULE ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE mscclpp::check_object ${arg_LIBRARIES})
  set(options "")
  if(DEFINED arg_RANKS)
    list(APPEND options --ranks=${arg_RANKS})
  endif()
  if(DEFINED arg_SCHEDULES)
    list(APPEND options --schedules=${arg_SCHEDULES})
  endif()
  if(DEFINED arg_FAULTS)
    list(APPEND options --faults=${arg_FAULTS})
  endif()
  add_test(NAME ${name} COMMAND mscclpp::mscclpp-check $<TARGET_FILE:${name}> ${options} ${arg_ARGUMENTS})
endfunction()
