# SPDX-License-Identifier: Apache-2.0
# Manual pages, made by help2man (cmake/man-pages), and libtandem(3); the completion for bash.
# A cross build runs the command by CMAKE_CROSSCOMPILING_EMULATOR; without one there are no pages of the command.

# Functions in the order of the headers.
set(page ${PROJECT_BINARY_DIR}/pages/libtandem.3)
file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/tandem/*.h)
set(template ${PROJECT_SOURCE_DIR}/docs/libtandem.3.in)
set(script ${PROJECT_SOURCE_DIR}/cmake/TandemLibraryPage.cmake)
add_custom_command(OUTPUT ${page} VERBATIM
  COMMAND ${CMAKE_COMMAND} -D "HEADERS=${headers}" -D TEMPLATE=${template} -D OUTPUT=${page} -D VERSION=${PROJECT_VERSION} -P ${script}
  DEPENDS ${headers} ${template} ${script})
set(pages ${page})
install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 COMPONENT development)

find_program(TANDEM_HELP2MAN help2man)
mark_as_advanced(TANDEM_HELP2MAN)
set(why "")
if(NOT TARGET tandem_cli)
  set(why "the command is not built")
elseif(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  set(why "the command cannot run here: it is of another processor, and CMAKE_CROSSCOMPILING_EMULATOR is not set")
elseif(NOT TANDEM_HELP2MAN)
  set(why "help2man is not installed (apt-get install help2man)")
elseif(TANDEM_SANITIZE)
  set(why "a sanitizer is on")
endif()
if(why)
  tandem_left_out("manual pages of the command" "${why}")
endif()
foreach(target tandem_cli tandem_bench)
  if(NOT TARGET ${target})
    continue()
  endif()
  set(made ${PROJECT_BINARY_DIR}/pages)
  set(component tools)
  if(target STREQUAL tandem_bench)
    set(made ${made}/bench)
    set(component bench)
  endif()
  get_target_property(program ${target} OUTPUT_NAME)
  string(REPLACE "-" "_" function _${program})
  configure_file(packaging/completion.bash.in ${made}/bash/${program} @ONLY)
  install(FILES ${made}/bash/${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT ${component})
  if(NOT why)
    # The number of pages is the program's to know. Pages of another TANDEM_COMMAND_NAME would be installed too.
    add_custom_command(OUTPUT ${made}/made VERBATIM DEPENDS ${target} ${PROJECT_SOURCE_DIR}/cmake/man-pages
      COMMAND ${CMAKE_COMMAND} -E rm -rf ${made}/man1
      COMMAND ${CMAKE_COMMAND} -E make_directory ${made}/man1
      COMMAND ${PROJECT_SOURCE_DIR}/cmake/man-pages ${made}/man1 ${PROJECT_VERSION} ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${target}>
      COMMAND ${CMAKE_COMMAND} -E touch ${made}/made)
    list(APPEND pages ${made}/made)
    install(DIRECTORY ${made}/man1/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
  endif()
endforeach()
if(TARGET tandem_par2 AND TARGET tandem_cli AND NOT why)
  set(made ${PROJECT_BINARY_DIR}/pages/personality)
  add_custom_command(OUTPUT ${made}/par2.1 VERBATIM DEPENDS tandem_cli ${PROJECT_SOURCE_DIR}/cmake/man-pages
    COMMAND ${CMAKE_COMMAND} -E make_directory ${made}
    COMMAND ${PROJECT_SOURCE_DIR}/cmake/man-pages ${made} ${PROJECT_VERSION} ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE_DIR:tandem_cli>/par2)
  list(APPEND pages ${made}/par2.1)
  install(FILES ${made}/par2.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT personality EXCLUDE_FROM_ALL)
endif()
add_custom_target(tandem_pages ALL DEPENDS ${pages})
set_property(TARGET tandem_pages PROPERTY TANDEM_PAGES "${pages}")  # for an install
