# SPDX-License-Identifier: Apache-2.0
#
# What a service manager needs: units of systemd, users and folders. Where the programs are is written into a unit when
# it is installed, because the prefix may be chosen then. The build has units for its own programs, which are checked.
set(BINDIR ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
foreach(unit mmd mmserve@)
  configure_file(mmd/units/${unit}.service.in ${CMAKE_BINARY_DIR}/units/built/${unit}.service @ONLY)
  install(CODE "
    set(BINDIR \"${CMAKE_INSTALL_BINDIR}\")
    cmake_path(ABSOLUTE_PATH BINDIR BASE_DIRECTORY \"\${CMAKE_INSTALL_PREFIX}\" NORMALIZE)
    configure_file(\"${CMAKE_SOURCE_DIR}/mmd/units/${unit}.service.in\"
      \"${CMAKE_BINARY_DIR}/units/${unit}.service\" @ONLY)" COMPONENT mmd)
endforeach()
install(FILES ${CMAKE_BINARY_DIR}/units/mmd.service DESTINATION lib/systemd/system COMPONENT mmd)
install(FILES ${CMAKE_BINARY_DIR}/units/mmserve@.service
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/mmd/examples COMPONENT mmd)
install(FILES mmd/units/mmd.sysusers.conf DESTINATION lib/sysusers.d RENAME mmd.conf COMPONENT mmd)
install(FILES mmd/units/mmd.tmpfiles.conf DESTINATION lib/tmpfiles.d RENAME mmd.conf COMPONENT mmd)
