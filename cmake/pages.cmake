# SPDX-License-Identifier: Apache-2.0
#
# Man pages and completions for bash and zsh, printed by the programs themselves from their tables of options, so that they
# cannot differ from what a program takes. A program that is compiled for another machine can print nothing here:
# without CMAKE_CROSSCOMPILING_EMULATOR none are made and none installed; those of a native build of the same
# version are the same.
set(MM_PAGES mmd.8 mmctl.1 mmserve.1 mkmodel.1 mmbench.1 gpubench.1 mmsim.1)
find_package(Python3 3.11 QUIET COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND)
  list(APPEND MM_PAGES mmevaluate.1)
else()
  message(STATUS "Man page and completion of mmevaluate are not made: they need Python 3.11")
endif()

if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  message(STATUS "Man pages and completion are not made: the programs cannot run here")
  return()
endif()
# The date of the last commit, so that the same source makes the same pages; what is no checkout has none.
execute_process(COMMAND git -C ${CMAKE_SOURCE_DIR} log -1 --format=%cs OUTPUT_VARIABLE MM_DATE
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
set(outputs "")
foreach(page ${MM_PAGES})
  string(REGEX REPLACE "[.].*" "" program ${page})
  string(REGEX REPLACE ".*[.]" "" section ${page})
  set(man ${CMAKE_BINARY_DIR}/man/${page})
  set(bash ${CMAKE_BINARY_DIR}/completions/${program})
  set(zsh "")
  set(template ${CMAKE_SOURCE_DIR}/Documentation/man/${page}.in)
  if(NOT EXISTS ${template})
    set(template "")
  endif()
  if(TARGET ${program})
    set(command "${CMAKE_CROSSCOMPILING_EMULATOR};$<TARGET_FILE:${program}>")
    set(parts ${program})
    set(zsh ${CMAKE_BINARY_DIR}/completions/_${program})
  else()
    set(command "${Python3_EXECUTABLE};${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${program}")
    file(GLOB parts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tools/lab/evaluate/*.py)
  endif()
  add_custom_command(OUTPUT ${man} ${bash} ${zsh}
    COMMAND ${CMAKE_COMMAND}
      "-DPROGRAM=${command}" -DMAN=${man}
      -DBASH=${bash} -DZSH=${zsh} -DTEMPLATE=${template} -DDATE=${MM_DATE} -P ${CMAKE_SOURCE_DIR}/cmake/man.cmake
    DEPENDS ${parts} ${template} ${CMAKE_SOURCE_DIR}/cmake/man.cmake
    COMMENT "Man page and completion of ${program}" VERBATIM)
  list(APPEND outputs ${man} ${bash} ${zsh})
  set(component tools)
  if(program MATCHES "^(mmd|mmctl)$")
    set(component mmd)
  endif()
  install(FILES ${man} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT ${component})
  install(FILES ${bash} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
    COMPONENT ${component})
  if(zsh)
    install(FILES ${zsh} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT ${component})
  endif()
endforeach()

# The library's manual comes from the comments of its headers: one page for each function that it exports.
if(Python3_Interpreter_FOUND)
  set(exports ${CMAKE_SOURCE_DIR}/libclient/client/exports.map)
  set(headers "")
  foreach(name client client_model client_group client_cold)
    list(APPEND headers ${CMAKE_SOURCE_DIR}/include/mm/${name}.h)
  endforeach()
  set(stamp ${CMAKE_BINARY_DIR}/man3.stamp)
  add_custom_command(OUTPUT ${stamp}
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${CMAKE_BINARY_DIR}/man3
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/man3.py ${exports} ${PROJECT_VERSION}
      "${MM_DATE}" ${CMAKE_BINARY_DIR}/man3 ${headers}
    COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
    DEPENDS ${CMAKE_SOURCE_DIR}/cmake/man3.py ${exports} ${headers}
    COMMENT "Man pages of libmm-client" VERBATIM)
  list(APPEND outputs ${stamp})
  install(DIRECTORY ${CMAKE_BINARY_DIR}/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT client-dev)
endif()

# The configuration file: an example with all keys as comments, and its man page.
set(example ${CMAKE_BINARY_DIR}/mmd.conf)
set(man ${CMAKE_BINARY_DIR}/man/mmd.conf.5)
add_custom_command(OUTPUT ${example} ${man}
  COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:mmd> --help=conf > ${example}
  COMMAND ${CMAKE_COMMAND} "-DPROGRAM=${CMAKE_CROSSCOMPILING_EMULATOR};$<TARGET_FILE:mmd>" -DMAN=${man}
    -DKIND=conf-man -DDATE=${MM_DATE} -P ${CMAKE_SOURCE_DIR}/cmake/man.cmake
  DEPENDS mmd ${CMAKE_SOURCE_DIR}/cmake/man.cmake
  COMMENT "Example and man page of mmd.conf" VERBATIM)
list(APPEND outputs ${example} ${man})
install(FILES ${example} DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/mmd/examples)
install(FILES ${man} DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
add_custom_target(mm-pages ALL DEPENDS ${outputs})
