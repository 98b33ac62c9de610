# SPDX-License-Identifier: Apache-2.0
# Debian packages by `cpack -G DEB`: libtandem0, which needs the C and C++ runtimes alone; its modules and the other libraries that
# are built (libtandem-opencl0, libtandem-volume0, ...); libtandem-dev, tandem-tools, tandem-bench, tandem-par2. For a build with the
# prefix /usr and TANDEM_COMMAND_NAME=tandem-ec: Debian's package tandem-mass owns /usr/bin/tandem. scripts/check-packages makes and
# tests them.

set(TANDEM_MAINTAINER "The Tandem authors <tandem@example.org>" CACHE STRING "Maintainer of the Debian packages")

set(CPACK_PACKAGE_NAME tandem)
set(CPACK_PACKAGE_VENDOR "Tandem")
set(CPACK_PACKAGE_CONTACT "${TANDEM_MAINTAINER}")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL ${tandem_parts} development tools bench)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/packaging/debian.cmake)  # adds copyright and changelog, compresses man pages
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY} ${PROJECT_BINARY_DIR}/isal)  # libisal-real.so.2
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# tandem_package(COMPONENT NAME SECTION WHAT): WHAT is in it.
macro(tandem_package component name section what)
  string(TOUPPER ${component} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${section})
  set(CPACK_COMPONENT_${key}_DESCRIPTION "Reed-Solomon erasure coding on CPUs and GPUs: ${what}\n\
Tandem splits data into k shards and computes m parity shards. Any m of them\n\
may be lost: the others give them back. It codes with SIMD kernels, CUDA,\n\
OpenCL, and all of them together.\n\n\
This package has ${what}.")
endmacro()
set(so ${PROJECT_VERSION_MAJOR})
tandem_package(runtime libtandem${so} libs "the library")
tandem_package(openmp libtandem-openmp${so} libs "the executor openmp")
tandem_package(opencl libtandem-opencl${so} libs "the backend opencl")
tandem_package(cuda libtandem-cuda${so} libs "the backend cuda")
tandem_package(volume libtandem-volume${so} libs "volumes")
tandem_package(par2 libtandem-par2-${so} libs "PAR2 sets")
tandem_package(mpi libtandem-mpi${so} libs "parity of MPI ranks")
tandem_package(development libtandem-dev libdevel "headers")
tandem_package(tools tandem-tools utils "the commands")
tandem_package(bench tandem-bench utils "measurements")
tandem_package(personality tandem-par2 utils "the command par2")
if(TARGET tandem_par2 AND TARGET tandem_cli)
  list(APPEND CPACK_COMPONENTS_ALL personality)
endif()

set(version ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
set(libraries "libtandem${so} (= ${version})")
set(recommended)
set(suggested)
set(control ${PROJECT_BINARY_DIR}/packaging)
foreach(part IN LISTS tandem_parts)
  string(TOUPPER ${part} key)
  set(name ${CPACK_DEBIAN_${key}_PACKAGE_NAME})
  if(NOT part STREQUAL runtime)
    set(CPACK_DEBIAN_${key}_PACKAGE_DEPENDS "libtandem${so} (= ${version})")
  endif()
  if(part MATCHES "^(opencl|cuda)$")
    list(APPEND recommended ${name})
  elseif(part MATCHES "^(openmp|volume|par2|mpi)$")
    list(APPEND suggested ${name})
  endif()
  if(part MATCHES "^(runtime|volume|par2|mpi)$")  # modules lie where only libtandem looks
    string(REGEX REPLACE "_runtime$" "" file libtandem_${part})
    file(WRITE ${control}/${part}/shlibs "${file} ${so} ${name} (>= ${PROJECT_VERSION})\n")
    file(WRITE ${control}/${part}/triggers "activate-noawait ldconfig\n")
    set(CPACK_DEBIAN_${key}_PACKAGE_CONTROL_EXTRA "${control}/${part}/shlibs;${control}/${part}/triggers")
  endif()
  if(part MATCHES "^(volume|par2|mpi)$")
    string(APPEND libraries ", ${name} (= ${version})")
  endif()
endforeach()
list(JOIN recommended ", " CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS)
list(JOIN suggested ", " CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${libraries}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${libraries}")
set(CPACK_DEBIAN_TOOLS_PACKAGE_SUGGESTS "nbdkit")
set(CPACK_DEBIAN_BENCH_PACKAGE_DEPENDS "libtandem${so} (= ${version})")
set(CPACK_DEBIAN_TOOLS_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/prerm)
set(CPACK_DEBIAN_PERSONALITY_PACKAGE_DEPENDS "tandem-tools (= ${version})")
set(CPACK_DEBIAN_PERSONALITY_PACKAGE_SHLIBDEPS OFF)
foreach(script preinst postrm)
  configure_file(packaging/par2-${script} ${control}/personality/${script} COPYONLY)
  list(APPEND CPACK_DEBIAN_PERSONALITY_PACKAGE_CONTROL_EXTRA ${control}/personality/${script})
endforeach()
include(CPack)
