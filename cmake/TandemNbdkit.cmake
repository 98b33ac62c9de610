# SPDX-License-Identifier: Apache-2.0
# The control interface of an open volume, in JSON (volume/control*.cpp), for the command and the plugin; and the plugin, a
# module that nbdkit opens: lib/tandem/nbdkit-tandem-plugin.so.

add_library(tandem_volume_control STATIC volume/control.cpp volume/control_server.cpp volume/end_clients.cpp)
target_include_directories(tandem_volume_control PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(tandem_volume_control PUBLIC tandem_volume nlohmann_json::nlohmann_json
  PRIVATE tandem_base_archive Threads::Threads)
set_source_files_properties(volume/control.cpp volume/control_server.cpp PROPERTIES
  COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)  # as cli/: optimising the JSON headers takes longer than they run

find_path(TANDEM_NBDKIT_INCLUDE_DIR nbdkit-plugin.h)
if(TANDEM_NBDKIT_INCLUDE_DIR AND NOT TANDEM_SANITIZE)
  set(plugin_dir ${PROJECT_BINARY_DIR}/lib/tandem)
  # The path from there to libtandem_volume is the same as after installation.
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  file(RELATIVE_PATH bin_from_lib ${PROJECT_BINARY_DIR}/lib ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
  foreach(name libtandem.so.${PROJECT_VERSION_MAJOR} libtandem_volume.so.${PROJECT_VERSION_MAJOR})
    file(CREATE_LINK ${bin_from_lib}/${name} ${PROJECT_BINARY_DIR}/lib/${name} SYMBOLIC)
  endforeach()
  add_library(tandem_nbdkit_plugin MODULE volume/nbdkit_plugin.cpp)
  target_include_directories(tandem_nbdkit_plugin SYSTEM PRIVATE ${TANDEM_NBDKIT_INCLUDE_DIR})
  target_link_libraries(tandem_nbdkit_plugin PRIVATE tandem_volume_control tandem_volume Threads::Threads)
  target_link_options(tandem_nbdkit_plugin PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(tandem_nbdkit_plugin PROPERTIES PREFIX "" OUTPUT_NAME nbdkit-tandem-plugin
    LIBRARY_OUTPUT_DIRECTORY ${plugin_dir} INSTALL_RPATH "$ORIGIN/.." BUILD_WITH_INSTALL_RPATH ON)
  set_source_files_properties(volume/nbdkit_plugin.cpp PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)
elseif(TANDEM_SANITIZE)
  tandem_left_out("nbdkit plugin (tandem volume serve)" "a sanitizer is on, and nbdkit is not linked with it")
else()
  tandem_left_out("nbdkit plugin (tandem volume serve)"
    "nbdkit's headers are not installed (Debian, Ubuntu: apt-get install nbdkit-plugin-dev)")
endif()
