# SPDX-License-Identifier: Apache-2.0
#
# What every target of the tree shares: dependencies, warnings, sanitizers, test helpers.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing>=2.2)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson>=2.13)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1>=0.2.2)
pkg_check_modules(SECCOMP REQUIRED IMPORTED_TARGET libseccomp>=2.5)
pkg_check_modules(NCURSES REQUIRED IMPORTED_TARGET ncurses>=6.2)
pkg_check_modules(OPENBLAS REQUIRED IMPORTED_TARGET openblas)
find_library(NUMA_LIBRARY numa REQUIRED)

# mmserve and mmctl exporter serve HTTP by libmicrohttpd, and mmserve reads a tokenizer.model by SentencePiece, which is C++.
# Without them they are built without that.
set(MM_HTTP OFF)
pkg_check_modules(MICROHTTPD QUIET IMPORTED_TARGET libmicrohttpd>=0.9.75)
if(MICROHTTPD_FOUND)
  set(MM_HTTP ON)
else()
  message(STATUS "mmserve has no --listen, and mmctl no exporter: not found: libmicrohttpd 0.9.75 or later (libmicrohttpd-dev)")
endif()
set(MM_SENTENCEPIECE OFF)
pkg_check_modules(SENTENCEPIECE QUIET IMPORTED_TARGET sentencepiece)
if(SENTENCEPIECE_FOUND)
  include(CheckLanguage)
  check_language(CXX)
  if(CMAKE_CXX_COMPILER)
    enable_language(CXX)
    set(MM_SENTENCEPIECE ON)
  endif()
endif()
if(NOT MM_SENTENCEPIECE)
  message(STATUS "mmserve reads no tokenizer.model: not found: a compiler of C++ and sentencepiece (libsentencepiece-dev)")
endif()

# Tests need more than the programs do: without it a build is whole, unless tests were asked for.
set(MM_BUILD_TESTS OFF)
if(MM_TESTS)
  set(missing "")
  pkg_check_modules(CMOCKA QUIET IMPORTED_TARGET cmocka>=1.1.5)
  find_program(MM_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
  if(NOT CMOCKA_FOUND)
    list(APPEND missing "cmocka 1.1.5 or later (libcmocka-dev)")
  endif()
  if(NOT MM_PYTHON)
    list(APPEND missing "/usr/bin/python3 (python3)")
  endif()
  list(JOIN missing ", " missing)
  if(NOT missing)
    set(MM_BUILD_TESTS ON)
  elseif(MM_TESTS STREQUAL "AUTO")
    message(STATUS "The tests are not built: not found: ${missing}; tools/packages lists what they need")
  else()
    message(FATAL_ERROR "MM_TESTS=${MM_TESTS}: not found: ${missing}; "
      "tools/packages lists what tests need, -DMM_TESTS=OFF builds none")
  endif()
endif()

# The CUDA toolkit is never needed; where its header is found, include/mm/gpu.h is checked against it.
find_path(MM_CUDA_H cuda.h HINTS $ENV{CUDA_HOME} /usr/local/cuda PATH_SUFFIXES include)

# Nor is nvcc: without it there are no kernels for a GPU. Sanitizers and other host compilers are nothing to
# it, so that their presets leave it alone.
if(MM_CUDA)
  find_program(MM_NVCC nvcc HINTS $ENV{CUDA_HOME} /usr/local/cuda PATH_SUFFIXES bin)
else()
  set(MM_NVCC "")
endif()

# Where git does not know, -DMM_COMMIT= may say it.
execute_process(COMMAND git -C ${CMAKE_SOURCE_DIR} rev-parse --short=12 HEAD
  OUTPUT_VARIABLE MM_GIT_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(MM_GIT_COMMIT)
  set(MM_COMMIT ${MM_GIT_COMMIT})
elseif(NOT MM_COMMIT)
  set(MM_COMMIT unknown)
endif()

# What programs load at run time lies in ../lib of theirs in the build, in this when installed.
file(RELATIVE_PATH MM_BIN_TO_LIB ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})

add_library(mm-flags INTERFACE)
target_include_directories(mm-flags INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR})
target_compile_definitions(mm-flags INTERFACE _GNU_SOURCE MM_VERSION="${PROJECT_VERSION}")
target_compile_options(mm-flags INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wvla
  -fno-strict-aliasing -fvisibility=hidden -fstack-protector-strong
  # Locks, as libclient/support/lock.h annotates them.
  $<$<COMPILE_LANG_AND_ID:C,Clang>:-Wthread-safety>)
target_link_libraries(mm-flags INTERFACE Threads::Threads)
if(MM_WERROR)
  target_compile_options(mm-flags INTERFACE -Werror)
endif()
if(MM_FAULT_INJECTION)
  target_compile_definitions(mm-flags INTERFACE MM_FAULT_INJECTION)
endif()
if(MM_SANITIZE STREQUAL "address")
  target_compile_options(mm-flags INTERFACE -fsanitize=address,undefined
    -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(mm-flags INTERFACE -fsanitize=address,undefined)
elseif(MM_SANITIZE STREQUAL "thread")
  target_compile_options(mm-flags INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(mm-flags INTERFACE -fsanitize=thread)
endif()
if(MM_SANITIZE)
  # Reports need lines, not variables; to follow those takes up to half of the compiler's time.
  target_compile_options(mm-flags INTERFACE -g1)
endif()

# What every target links: the flags, and the two archives that any source may need.
add_library(mm-options INTERFACE)
target_link_libraries(mm-options INTERFACE mm-flags mm-support mm-base)

# What has one thread has nothing for ThreadSanitizer, which sees nothing of other processes in memory that is shared:
# it is neither built nor run in that build.
if(MM_SANITIZE STREQUAL "thread")
  set(MM_TEST_SINGLE_THREADED OFF)
else()
  set(MM_TEST_SINGLE_THREADED ON)
endif()

# mm_unit_test(NAME SOURCES a.c ... [LIBS x ...] [LABEL unit] [SINGLE_THREADED]): one cmocka program, one process.
# NAME is <area>-<what>, which is also the program's; the test is LABEL/NAME, less an area that is the label.
# SINGLE_THREADED: neither it nor what it starts has a second thread.
function(mm_unit_test NAME)
  cmake_parse_arguments(T "SINGLE_THREADED" "LABEL;TIMEOUT" "SOURCES;LIBS;ENV;ARGS" ${ARGN})
  if(NOT T_LABEL)
    set(T_LABEL unit)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 600) # for a machine many times slower than any that was seen
  endif()
  add_executable(${NAME} ${T_SOURCES})
  target_link_libraries(${NAME} PRIVATE mm-options PkgConfig::CMOCKA ${T_LIBS})
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(T_SINGLE_THREADED AND NOT MM_TEST_SINGLE_THREADED)
    set_target_properties(${NAME} PROPERTIES EXCLUDE_FROM_ALL ON)
    return()
  endif()
  string(REPLACE "${T_LABEL}/${T_LABEL}-" "${T_LABEL}/" case ${T_LABEL}/${NAME})
  add_test(NAME ${case} COMMAND ${NAME} ${T_ARGS})
  set_tests_properties(${case} PROPERTIES LABELS ${T_LABEL} TIMEOUT ${T_TIMEOUT}
    SKIP_RETURN_CODE 77)
  if(T_ENV)
    set_property(TEST ${case} PROPERTY ENVIRONMENT ${T_ENV})
  endif()
endfunction()
