# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Install rules and the package that find_package(mscclpp) reads.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(mscclpp_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/mscclpp")
set(mscclpp_targets mscclpp_headers mscclpp_host mscclpp_dsl mscclpp_jit)
if(MSCCLPP_HAS_SIM)
  list(APPEND mscclpp_targets mscclpp_sim)
endif()
if(TARGET mscclpp_collectives)
  list(APPEND mscclpp_targets mscclpp_collectives)
endif()
if(MSCCLPP_HAS_CHECK)
  list(APPEND mscclpp_targets mscclpp_hooks mscclpp_check mscclpp_check_object)
endif()
# Commands find shared libraries of the same installation, wherever it was moved.
file(RELATIVE_PATH mscclpp_library_path "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
foreach(command IN ITEMS mscclpp-check mscclpp-doctor mscclpp-plan mscclpp-tune)
  if(TARGET ${command})
    list(APPEND mscclpp_targets ${command})
    set_target_properties(${command} PROPERTIES INSTALL_RPATH "$ORIGIN/${mscclpp_library_path}")
  endif()
endforeach()

install(TARGETS ${mscclpp_targets}
  EXPORT mscclppTargets
  FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT mscclppTargets NAMESPACE mscclpp:: DESTINATION "${mscclpp_package_dir}")

# Under both names that docs/nccl.md gives, and in a folder that the loader does not search: ldconfig would make it the
# libnccl.so.2 of every program.
set(mscclpp_nccl_folder "${CMAKE_INSTALL_LIBDIR}/mscclpp")
if(TARGET mscclpp_nccl)
  install(TARGETS mscclpp_nccl LIBRARY DESTINATION "${mscclpp_nccl_folder}")
  install(FILES "$<TARGET_FILE_DIR:mscclpp_nccl>/libnccl.so.2" DESTINATION "${mscclpp_nccl_folder}")
endif()

configure_package_config_file(cmake/mscclppConfig.cmake.in "${PROJECT_BINARY_DIR}/mscclppConfig.cmake"
  INSTALL_DESTINATION "${mscclpp_package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/mscclppConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/mscclppConfig.cmake" "${PROJECT_BINARY_DIR}/mscclppConfigVersion.cmake"
              cmake/MscclppCheck.cmake
  DESTINATION "${mscclpp_package_dir}")
install(DIRECTORY share/mscclpp/ DESTINATION "${CMAKE_INSTALL_DATADIR}/mscclpp")   # tuned profiles
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/mscclpp")
