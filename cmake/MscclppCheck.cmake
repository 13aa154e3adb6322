# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Programs that mscclpp-check runs, as tests. Part of the installed package.

# What the checker needs of every source: the compiler's calls before each access, line numbers, and no calls of
# functions that the hooks do not see. g++ warns that its own runtime library does not support fences; the hooks do. It
# also merges functions that do the same, and would name the lines of another one.
set(mscclpp_check_compile_options
  $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread> $<$<COMPILE_LANGUAGE:CXX>:-g> $<$<COMPILE_LANGUAGE:CXX>:-U_FORTIFY_SOURCE>
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-tsan> $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-ipa-icf>)
# The link has no -fsanitize=thread, which would bring that library in. Nobody instruments memcpy and its kin.
set(mscclpp_check_link_options LINKER:--wrap=memcpy,--wrap=memmove,--wrap=memset)

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
