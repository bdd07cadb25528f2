# SPDX-License-Identifier: Apache-2.0
#
# Packages for Debian 12, by cpack: `cmake --workflow --preset deb` leaves them in build-deb/packages.
# Which file belongs to which package is said where it is installed (COMPONENT); what says nothing is mmd's.
set(MM_PACKAGE_RELEASE 1 CACHE STRING "revision of the packages of this version: 0.1.0-REVISION")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME mmd)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR "the mmd developers")
set(CPACK_PACKAGE_CONTACT "the mmd developers <developers@mmd.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL mmd client client-dev tools softgpu)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${MM_PACKAGE_RELEASE})
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(scripts ${CMAKE_CURRENT_LIST_DIR}/deb)

# mm_package(COMPONENT NAME SECTION SUMMARY TEXT): how the package of a component presents itself.
macro(mm_package COMPONENT NAME SECTION SUMMARY TEXT)
  string(TOUPPER ${COMPONENT} part)
  set(CPACK_DEBIAN_${part}_PACKAGE_NAME ${NAME})
  set(CPACK_DEBIAN_${part}_PACKAGE_SECTION ${SECTION})
  set(CPACK_DEBIAN_${part}_DESCRIPTION "${SUMMARY}\n${TEXT}")
  install(FILES ${scripts}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${NAME}
    COMPONENT ${COMPONENT})
endmacro()

mm_package(mmd mmd admin "memory manager that lets many language models share a GPU"
"mmd owns all pages of a GPU and lends them to serving engines. When one runs
short of KV cache, mmd takes pages of weights, of idle models first, and
streams the displaced layers back from host memory just before each is needed.
This package has the daemon, mmctl, their configuration and manuals. Nothing is
started when it is installed, because mmd takes the memory of a whole GPU.")
set(CPACK_DEBIAN_MMD_PACKAGE_DEPENDS "mm-softgpu, passwd")
set(CPACK_DEBIAN_MMD_PACKAGE_SUGGESTS "mmd-tools")
set(CPACK_DEBIAN_MMD_PACKAGE_CONTROL_EXTRA ${scripts}/mmd/postinst ${scripts}/mmd/prerm
  ${scripts}/mmd/postrm)

# The configuration of a package is a file that the operator changes and that upgrades keep.
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  install(FILES ${CMAKE_BINARY_DIR}/mmd.conf DESTINATION /etc/mmd COMPONENT mmd)
  install(DIRECTORY DESTINATION /etc/mmd/mmd.conf.d COMPONENT mmd)
  file(WRITE ${CMAKE_BINARY_DIR}/deb/conffiles "/etc/mmd/mmd.conf\n")
  list(APPEND CPACK_DEBIAN_MMD_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/deb/conffiles)
endif()

mm_package(client libmm-client0 libs "memory that mmd lends: library of serving engines"
"A serving engine links libmm-client to have its weights and its KV cache in
memory that mmd lends.")
# Not by CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS, which warns of our plug-ins: nobody links them.
file(WRITE ${CMAKE_BINARY_DIR}/deb/shlibs "libmm-client 0 libmm-client0 (>= ${PROJECT_VERSION})\n")
file(WRITE ${CMAKE_BINARY_DIR}/deb/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_CLIENT_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/deb/shlibs
  ${CMAKE_BINARY_DIR}/deb/triggers)

mm_package(client-dev libmm-client-dev libdevel "memory that mmd lends: headers for serving engines"
"The headers and the files of pkg-config and CMake that engines are compiled with.")
set(CPACK_DEBIAN_CLIENT-DEV_PACKAGE_DEPENDS
  "libmm-client0 (= ${PROJECT_VERSION}-${MM_PACKAGE_RELEASE})")

mm_package(tools mmd-tools utils "memory manager for GPUs: reference engine and laboratory"
"mmserve serves language models on memory that mmd lends, mkmodel makes small
models; mmbench, gpubench, mmsim and mmevaluate measure and simulate.")
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "mm-softgpu")
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "mmd, python3, python3-matplotlib")

mm_package(softgpu mm-softgpu devel "CUDA driver without a GPU, to test code that manages GPU memory"
"libcuda.so.1 and libnvidia-ml.so.1 over plain memory: virtual memory
management, streams, events, sharing between processes, failures on request.
softgpu-run starts a program on it. It runs no GPU code.")

# Debian gives Python's modules one place for all versions, which a prefix of one's own has not: there,
# `pip install libclient/python` is the way.
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr" AND Python3_Interpreter_FOUND)
  list(APPEND CPACK_COMPONENTS_ALL python)
  mm_package(python python3-mmd python "memory that mmd lends: library of serving engines in Python"
"The package mmd is libmm-client for engines in Python. It has plugins for vLLM
and SGLang, which find it where they are installed.")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS
    "libmm-client0 (>= ${PROJECT_VERSION}), python3 (>= 3.11), python3-cffi (>= 1.15)")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA ${scripts}/python3-mmd/postinst
    ${scripts}/python3-mmd/prerm)
  set(modules lib/python3/dist-packages)
  install(DIRECTORY libclient/python/mmd DESTINATION ${modules} COMPONENT python
    PATTERN __pycache__ EXCLUDE)
  set(info ${CMAKE_BINARY_DIR}/mmd-${PROJECT_VERSION}.dist-info)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS libclient/python/pyproject.toml)
  execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/dist_info.py
    ${CMAKE_SOURCE_DIR}/libclient/python/pyproject.toml ${PROJECT_VERSION} ${info}
    COMMAND_ERROR_IS_FATAL ANY)
  install(DIRECTORY ${info} DESTINATION ${modules} COMPONENT python)
endif()

include(CPack)
