# SPDX-License-Identifier: Apache-2.0
# tandem_embed_text(TARGET HEADER NAMESPACE files...): makes a header with text files as constants: device/text/opencl.h
# becomes NAMESPACE::opencl_h. The next build uses changed files.
function(tandem_embed_text target header namespace)
  set(constants "#pragma once\n\nnamespace ${namespace} {\n")
  foreach(file IN LISTS ARGN)
    get_filename_component(path ${file} ABSOLUTE)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    get_filename_component(name ${file} NAME)
    string(MAKE_C_IDENTIFIER ${name} name)
    file(READ ${path} text)
    string(APPEND constants "inline constexpr char ${name}[] = R\"TANDEM(${text})TANDEM\";\n")
  endforeach()
  string(APPEND constants "}\n")
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/generated/${header} CONTENT "${constants}" @ONLY)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/generated)
endfunction()
