# SPDX-License-Identifier: Apache-2.0
get_filename_component(include ${CMAKE_CURRENT_LIST_DIR}/../../../include ABSOLUTE)
if(NOT EXISTS ${include}/fmt/core.h)
  set(fmt_FOUND FALSE)
  return()
endif()
file(STRINGS ${include}/fmt/core.h line REGEX "^#define FMT_VERSION [0-9]+$")
string(REGEX REPLACE ".* ([0-9]+)([0-9][0-9])([0-9][0-9])$" "\\1.\\2.\\3" fmt_VERSION "${line}")
if(NOT TARGET fmt::fmt-header-only)
  add_library(fmt::fmt-header-only INTERFACE IMPORTED GLOBAL)
  set_target_properties(fmt::fmt-header-only PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES ${include} INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY=1)
endif()
