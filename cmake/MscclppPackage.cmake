# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What cpack makes of the install rules: a tarball, which works wherever it is unpacked, and where there is dpkg a .deb.
# It builds nothing: `cmake --build <folder> --target mscclpp_installed` builds what they hold.

add_custom_target(mscclpp_installed)
add_dependencies(mscclpp_installed ${mscclpp_targets})
if(TARGET mscclpp_nccl)
  add_dependencies(mscclpp_installed mscclpp_nccl)
endif()

if(MSCCLPP_HAS_CUDA)
  set(machine "cuda${CUDAToolkit_VERSION_MAJOR}.${CUDAToolkit_VERSION_MINOR}")
  set(contents "Built with CUDA ${CUDAToolkit_VERSION_MAJOR}.${CUDAToolkit_VERSION_MINOR}, whose toolkit CMake has to find")
else()
  set(machine sim)
  set(contents "Built without CUDA: it runs on simulated GPUs only")
endif()

set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME mscclpp)
set(CPACK_PACKAGE_VENDOR "the maintainers of mscclpp")
set(CPACK_PACKAGE_CONTACT "${CPACK_PACKAGE_VENDOR} <noreply@localhost>")
set(CPACK_PACKAGE_DESCRIPTION "Headers, compiled libraries, CMake files, commands and tuned profiles. ${contents}.")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_STRIP_FILES ON)   # the commands; libraries of objects keep what they have
string(TOLOWER "mscclpp-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}-${machine}"
       CPACK_PACKAGE_FILE_NAME)

find_program(MSCCLPP_DPKG dpkg)
find_program(MSCCLPP_DPKG_SHLIBDEPS dpkg-shlibdeps)
mark_as_advanced(MSCCLPP_DPKG MSCCLPP_DPKG_SHLIBDEPS)
if(MSCCLPP_DPKG)
  list(APPEND CPACK_GENERATOR DEB)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
  # What programs link with, unless it was fetched: then it is in the package. dpkg-shlibdeps adds what the commands load.
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "")
  if(fmt_DIR)
    list(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS libfmt-dev)
  endif()
  if(MSCCLPP_HAS_SIM)
    list(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS libboost-context-dev)
  endif()
  list(JOIN CPACK_DEBIAN_PACKAGE_DEPENDS ", " CPACK_DEBIAN_PACKAGE_DEPENDS)
  if(MSCCLPP_DPKG_SHLIBDEPS)
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  endif()
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "cmake (>= 3.25), g++ (>= 4:12) | clang (>= 1:14)")
  set(CPACK_DEBIAN_PACKAGE_SUGGESTS libibverbs1)   # opened at run time
  install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/mscclpp" RENAME copyright)   # where Debian has it
endif()

include(CPack)
