# SPDX-License-Identifier: Apache-2.0
get_filename_component(include ${CMAKE_CURRENT_LIST_DIR}/../../../include ABSOLUTE)
if(NOT EXISTS ${include}/nlohmann/json.hpp)
  set(nlohmann_json_FOUND FALSE)
elseif(NOT TARGET nlohmann_json::nlohmann_json)
  add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED GLOBAL)
  set_target_properties(nlohmann_json::nlohmann_json PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${include})
endif()
