# SPDX-License-Identifier: Apache-2.0
#
# What `cmake --install` copies: programs, the client library with its headers, the software GPU, the
# host kernels, the CUDA kernels (emulated, and for a GPU where nvcc is), man pages. Device profiles: kernels/timing.
#
# COMPONENT is the package (cmake/packages.cmake) that a file belongs to.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME mmd)
set(MM_TOOLS mmserve mmbench gpubench mmsim mkmodel)
set(MM_KERNELS mm-softblas mm-kernels-host mm-kernels-host-fast mm-kernels-emulated)

install(TARGETS mmd mmctl RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT mmd)
install(TARGETS ${MM_TOOLS} ${MM_KERNELS}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT tools)
install(TARGETS mm-softgpu LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT softgpu)
install(TARGETS mm-client-shared EXPORT mm-client
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT client NAMELINK_COMPONENT client-dev)
if(MM_NVCC)
  install(FILES ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/mm-kernels-cuda.fatbin
    DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT tools)
endif()
install(FILES include/mm/abi.h include/mm/client.h include/mm/client_cold.h include/mm/client_group.h include/mm/client_model.h include/mm/gpu.h include/mm/softgpu.h include/mm/types.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/mm COMPONENT client-dev)
include(${CMAKE_CURRENT_LIST_DIR}/pages.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/units.cmake)
install(FILES Documentation/man/softgpu-run.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT softgpu)
install(FILES Documentation/man/mmtrace.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
install(FILES Documentation/softgpu.md RENAME README.md
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/mm-softgpu COMPONENT softgpu)
install(FILES Documentation/examples/vmm.c
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/mm-softgpu/examples COMPONENT softgpu)
install(DIRECTORY Documentation/ DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/mmd COMPONENT mmd
  FILES_MATCHING PATTERN "*.md" PATTERN results EXCLUDE PATTERN examples EXCLUDE PATTERN man EXCLUDE)
install(FILES CHANGELOG.md README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/mmd COMPONENT mmd)
install(FILES Documentation/examples/tenant.c Documentation/examples/kv_only.c
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libmm-client-dev/examples COMPONENT client-dev)

# Alert rules, their test, a dashboard and a configuration of Prometheus.
install(DIRECTORY Documentation/examples/monitoring DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)

# Relative to where the file itself lies, so that the prefix may be chosen when installing and the tree moved
# after; absolute folders stay.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(MM_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH MM_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" /)
  string(REGEX REPLACE "/$" "" MM_PC_PREFIX "\${pcfiledir}/${MM_PC_PREFIX}")
endif()
cmake_path(APPEND MM_PC_LIBDIR "\${prefix}" ${CMAKE_INSTALL_LIBDIR})
cmake_path(APPEND MM_PC_INCLUDEDIR "\${prefix}" ${CMAKE_INSTALL_INCLUDEDIR})
configure_file(cmake/mm-client.pc.in mm-client.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/mm-client.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT client-dev)

# The same for CMake: what was released with one major number works for programs of an older minor one.
include(CMakePackageConfigHelpers)
set(MM_CMAKE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/mm-client)
set_target_properties(mm-client-shared PROPERTIES EXPORT_NAME client)
target_include_directories(mm-client-shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
configure_package_config_file(cmake/mm-clientConfig.cmake.in mm-clientConfig.cmake
  INSTALL_DESTINATION ${MM_CMAKE_FOLDER} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(mm-clientConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(EXPORT mm-client NAMESPACE mm:: FILE mm-clientTargets.cmake DESTINATION ${MM_CMAKE_FOLDER}
  COMPONENT client-dev)
install(FILES ${CMAKE_BINARY_DIR}/mm-clientConfig.cmake ${CMAKE_BINARY_DIR}/mm-clientConfigVersion.cmake
  DESTINATION ${MM_CMAKE_FOLDER} COMPONENT client-dev)
