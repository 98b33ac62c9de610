# SPDX-License-Identifier: Apache-2.0
# Packages for a cross-compiler. Tandem needs only their headers and GoogleTest's sources, and these are the same for every processor.
# A folder has links to them, and a find-module for each. It has no other header of the build machine: the headers of a C library
# are for its own processor.
set(tandem_headers ${CMAKE_BINARY_DIR}/headers)
set(CMAKE_FIND_ROOT_PATH ${tandem_headers})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

get_property(tandem_tries GLOBAL PROPERTY IN_TRY_COMPILE)
if(tandem_tries)
  return()
endif()
foreach(package fmt CLI11 nlohmann_json GTest)
  file(COPY ${CMAKE_CURRENT_LIST_DIR}/${package}Config.cmake DESTINATION ${tandem_headers}/lib/cmake/${package})
endforeach()
file(MAKE_DIRECTORY ${tandem_headers}/include)
foreach(name fmt CLI CL nlohmann gtest xxh3.h xxhash.h)
  if(EXISTS /usr/include/${name} AND NOT EXISTS ${tandem_headers}/include/${name})
    file(CREATE_LINK /usr/include/${name} ${tandem_headers}/include/${name} SYMBOLIC)
  endif()
endforeach()
