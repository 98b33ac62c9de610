# SPDX-License-Identifier: Apache-2.0
# Manual pages and completions, made by the commands themselves from their tables of options (cli/pages.hpp), and libtandem(3).
# A cross build runs the command by CMAKE_CROSSCOMPILING_EMULATOR; without one there are no pages of the command.

set(TANDEM_ZSH_DIR ${CMAKE_INSTALL_DATADIR}/zsh/site-functions CACHE STRING "Where zsh finds completions; Debian: share/zsh/vendor-completions")

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

set(why "")
if(NOT TARGET tandem_cli)
  set(why "the command is not built")
elseif(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  set(why "the command cannot run here: it is of another processor, and CMAKE_CROSSCOMPILING_EMULATOR is not set")
elseif(TANDEM_SANITIZE)
  set(why "a sanitizer is on")
endif()
if(why)
  tandem_left_out("manual pages and completions of the command" "${why}")
else()
  foreach(program tandem_cli tandem_bench)
    set(made ${PROJECT_BINARY_DIR}/pages)
    set(component tools)
    if(program STREQUAL tandem_bench)
      set(made ${made}/bench)
      set(component bench)
    endif()
    set(stamp ${made}/made)
    # The number of pages is the program's to know. Pages of another TANDEM_COMMAND_NAME would be installed too.
    add_custom_command(OUTPUT ${stamp} VERBATIM DEPENDS ${program}
      COMMAND ${CMAKE_COMMAND} -E rm -rf ${made}/man1 ${made}/bash ${made}/zsh
      COMMAND ${CMAKE_COMMAND} -E make_directory ${made}/man1 ${made}/bash ${made}/zsh
      COMMAND ${program} generate man ${made}/man1
      COMMAND ${program} generate bash ${made}/bash
      COMMAND ${program} generate zsh ${made}/zsh
      COMMAND ${CMAKE_COMMAND} -E touch ${stamp})
    list(APPEND pages ${stamp})
    install(DIRECTORY ${made}/man1/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
    install(DIRECTORY ${made}/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT ${component})
    install(DIRECTORY ${made}/zsh/ DESTINATION ${TANDEM_ZSH_DIR} COMPONENT ${component})
  endforeach()
endif()
add_custom_target(tandem_pages ALL DEPENDS ${pages})
