# SPDX-License-Identifier: Apache-2.0
get_filename_component(include ${CMAKE_CURRENT_LIST_DIR}/../../../include ABSOLUTE)
if(NOT EXISTS ${include}/CLI/CLI.hpp)
  set(CLI11_FOUND FALSE)
elseif(NOT TARGET CLI11::CLI11)
  add_library(CLI11::CLI11 INTERFACE IMPORTED GLOBAL)
  set_target_properties(CLI11::CLI11 PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${include})
endif()
