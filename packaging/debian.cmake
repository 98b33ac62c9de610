# SPDX-License-Identifier: Apache-2.0
# cpack runs this before it packs: each package gets its copyright and changelog, and its manual pages are compressed.
cmake_minimum_required(VERSION 3.22)
if(NOT CPACK_GENERATOR STREQUAL DEB)
  return()
endif()

set(source ${CMAKE_CURRENT_LIST_DIR}/..)
file(READ ${source}/NOTICE notice)
string(REPLACE "The file LICENSE has its text." "On Debian systems its text is in /usr/share/common-licenses/Apache-2.0." notice "${notice}")
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH replaces the present time
find_program(gzip gzip REQUIRED)

foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} key)
  set(name ${CPACK_DEBIAN_${key}_PACKAGE_NAME})
  set(share ${CPACK_TEMPORARY_DIRECTORY}/${component}/usr/share)
  if(component STREQUAL doc)
    file(RENAME ${share}/doc/tandem ${share}/doc/${name})
  else()
    file(REMOVE_RECURSE ${share}/doc/tandem)
  endif()
  file(WRITE ${share}/doc/${name}/copyright "${notice}")
  file(WRITE ${share}/doc/${name}/changelog.Debian
"tandem (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Version ${CPACK_PACKAGE_VERSION}; CHANGELOG.md of the sources says what it brings.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  if(component MATCHES "^(openmp|opencl)$")  # they call their runtime alone, and some toolchains link no library that is not called
    file(WRITE ${share}/lintian/overrides/${name} "${name}: library-not-linked-against-libc *\n")
  endif()
  file(GLOB_RECURSE pages ${share}/man/*)
  execute_process(COMMAND ${gzip} -9 -n -f ${pages} ${share}/doc/${name}/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)
endforeach()
