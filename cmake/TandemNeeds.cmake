# SPDX-License-Identifier: Apache-2.0
# Packages of other projects. libtandem needs xxHash's header for its functions on files (files.h), and nothing else. The command
# needs more. All are searched before an error, so that one command installs all that are missing.

find_package(Threads REQUIRED)

if((PROJECT_IS_TOP_LEVEL AND BUILD_TESTING) OR NOT (TANDEM_CLI STREQUAL OFF AND TANDEM_VOLUME STREQUAL OFF))
  find_package(fmt QUIET)
  find_package(nlohmann_json QUIET)
endif()
find_path(TANDEM_XXHASH_INCLUDE_DIR xxhash.h)

if(TANDEM_CLI STREQUAL OFF)
  tandem_needs(FILES "functions on files" "xxhash.h is missing (Debian, Ubuntu: apt-get install libxxhash-dev)"
    TANDEM_XXHASH_INCLUDE_DIR)
  tandem_needs(VOLUME "libtandem_volume" "nlohmann-json or xxHash is missing (Debian, Ubuntu: apt-get install \
nlohmann-json3-dev libxxhash-dev)" nlohmann_json_FOUND AND TANDEM_XXHASH_INCLUDE_DIR)
else()
  find_package(CLI11 QUIET)
  set(missing "")
  set(packages "")
  macro(tandem_need found what package)
    if(NOT ${found})
      list(APPEND missing "${what}")
      list(APPEND packages ${package})
    endif()
  endmacro()
  tandem_need(fmt_FOUND "libfmt" libfmt-dev)
  tandem_need(CLI11_FOUND "CLI11" libcli11-dev)
  tandem_need(nlohmann_json_FOUND "nlohmann-json" nlohmann-json3-dev)
  tandem_need(TANDEM_XXHASH_INCLUDE_DIR "xxHash (its header)" libxxhash-dev)
  if(missing)
    list(JOIN missing ", " missing_text)
    list(JOIN packages " " packages_text)
    message(FATAL_ERROR "Not found: ${missing_text}.\n"
      "Run `make deps`, or on Debian and Ubuntu: apt-get install ${packages_text}\n"
      "The library alone needs none of them: -DTANDEM_CLI=OFF")
  endif()
endif()

# tandem_fmt: fmt 9 compiled once, other versions as headers. Its objects become part of the targets that link it.
if(NOT fmt_FOUND)
  return()
endif()
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  add_library(tandem_fmt STATIC ${PROJECT_SOURCE_DIR}/cmake/fmt.cpp)
  get_target_property(fmt_include fmt::fmt-header-only INTERFACE_INCLUDE_DIRECTORIES)
  target_include_directories(tandem_fmt SYSTEM PUBLIC ${fmt_include})
else()
  add_library(tandem_fmt INTERFACE)
  target_link_libraries(tandem_fmt INTERFACE fmt::fmt-header-only)
endif()
