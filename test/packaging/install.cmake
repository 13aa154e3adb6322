# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs BUILD_DIR, then moves the result to PREFIX: a package that remembers where it was installed would break.
file(REMOVE_RECURSE "${PREFIX}" "${PREFIX}.staged")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${PREFIX}.staged" --config "${CONFIG}"
                RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "cmake --install failed: ${result}")
endif()
file(RENAME "${PREFIX}.staged" "${PREFIX}")
