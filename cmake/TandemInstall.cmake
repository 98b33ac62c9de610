# SPDX-License-Identifier: Apache-2.0
# The files that `cmake --install` copies, with the files for find_package(tandem) and pkg-config.
# No installed file contains an absolute path, so a prefix may be moved.
#
# Components:
#   runtime                libtandem
#   openmp, opencl, cuda   its modules
#   volume, par2, mpi      the other libraries
#   development            headers, CMake's and pkg-config's files
#   doc                    the pages and examples
#   tools                  the commands, nbdkit's plugin, the drop-in for ISA-L
#   personality            the name par2 for the command; not among those of an install without --component
#   bench                  tandem-bench

include(CMakePackageConfigHelpers)

# `make demo` builds a part of what is installed. An install of everything builds the rest first.
set(installed)
foreach(target tandem tandem_volume tandem_par2 tandem_mpi tandem_openmp tandem_opencl_module tandem_cuda_module tandem_cli tandem_mpi_cli
    tandem_bench tandem_nbdkit_plugin tandem_isal_standalone tandem_isal_chained)
  if(TARGET ${target})
    list(APPEND installed ${target})
  endif()
endforeach()
add_custom_target(tandem_installed)
add_dependencies(tandem_installed tandem_pages ${installed})
list(TRANSFORM installed REPLACE "(.+)" "\"$<TARGET_FILE:\\1>\"")
list(JOIN installed " " installed)
install(CODE "
foreach(file ${installed} \"$<JOIN:$<TARGET_PROPERTY:tandem_pages,TANDEM_PAGES>,\" \">\")
  if(NOT EXISTS \"\${file}\")
    # Files of root's would be in the way of the user's next build.
    execute_process(COMMAND id -u OUTPUT_VARIABLE user)
    execute_process(COMMAND stat -c %u \"${PROJECT_BINARY_DIR}\" OUTPUT_VARIABLE owner)
    if(user EQUAL 0 AND NOT owner EQUAL 0)
      message(FATAL_ERROR \"\${file} is not built yet. The user whose folder it is must build it: cmake --build ${PROJECT_BINARY_DIR}\")
    endif()
    message(STATUS \"\${file} is not built yet: building what is to be installed\")
    execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${PROJECT_BINARY_DIR}\" --target tandem_installed COMMAND_ERROR_IS_FATAL ANY)
    break()
  endif()
endforeach()")

set(libdir ${CMAKE_INSTALL_LIBDIR})
set(module_dir ${libdir}/tandem)
set(tool_targets)
foreach(tool tandem_cli tandem_mpi_cli tandem_bench)
  if(TARGET ${tool})
    list(APPEND tool_targets ${tool})
  endif()
endforeach()
file(RELATIVE_PATH library_from_command ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})

# Each library that is built, the link to it and its headers; and each module. tandem_parts: their components.
set(tandem_parts)
foreach(part runtime:tandem volume:tandem_volume par2:tandem_par2 mpi:tandem_mpi openmp:tandem_openmp opencl:tandem_opencl_module cuda:tandem_cuda_module)
  string(REGEX MATCH "(.*):(.*)" part ${part})
  set(component ${CMAKE_MATCH_1})
  set(library ${CMAKE_MATCH_2})
  if(NOT TARGET ${library})
    continue()
  endif()
  list(APPEND tandem_parts ${component})
  get_target_property(type ${library} TYPE)
  if(type STREQUAL MODULE_LIBRARY)
    install(TARGETS ${library} LIBRARY DESTINATION ${module_dir} COMPONENT ${component})
  else()
    install(TARGETS ${library} EXPORT tandem-targets
      LIBRARY DESTINATION ${libdir} COMPONENT ${component} NAMELINK_COMPONENT development
      ARCHIVE DESTINATION ${libdir} COMPONENT development
      INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  endif()
endforeach()
# Headers of features that were not built are not installed.
set(absent_headers)
if(TANDEM_FILES STREQUAL OFF)
  list(APPEND absent_headers PATTERN files.h EXCLUDE)
endif()
if(NOT TARGET tandem_volume)
  list(APPEND absent_headers PATTERN volume.h EXCLUDE)
endif()
if(NOT TARGET tandem_par2)
  list(APPEND absent_headers PATTERN par2.h EXCLUDE)
endif()
if(NOT TARGET tandem_mpi)
  list(APPEND absent_headers PATTERN mpi.h EXCLUDE)
endif()
install(DIRECTORY include/tandem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
  FILES_MATCHING PATTERN "*.h" PATTERN tandem.hpp PATTERN thrust.hpp ${absent_headers})
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc)
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc PATTERN "*.in" EXCLUDE PATTERN __pycache__ EXCLUDE)

foreach(tool IN LISTS tool_targets)
  set_target_properties(${tool} PROPERTIES INSTALL_RPATH "$ORIGIN/${library_from_command}")
  set(component tools)
  if(tool STREQUAL tandem_bench)
    set(component bench)
  endif()
  install(TARGETS ${tool} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${component})
endforeach()
if(TARGET tandem_cli_shared)
  set_property(SOURCE cli/common.cpp TARGET_DIRECTORY tandem_cli_shared APPEND PROPERTY
    COMPILE_DEFINITIONS TANDEM_LIBRARY_FROM_COMMAND="${library_from_command}")
endif()
if(TARGET tandem_cli)
  foreach(unit tandem-scrub@.service tandem-par2-scrub@.service tandem-par2-sync@.service tandem-volume@.service)
    configure_file(packaging/systemd/${unit}.in ${PROJECT_BINARY_DIR}/systemd/${unit} @ONLY)
  endforeach()
  install(FILES packaging/systemd/tandem-scrub@.timer ${PROJECT_BINARY_DIR}/systemd/tandem-scrub@.service DESTINATION lib/systemd/system
    COMPONENT tools)
endif()
if(TARGET tandem_par2 AND TARGET tandem_cli)
  install(FILES packaging/systemd/tandem-par2-scrub@.timer ${PROJECT_BINARY_DIR}/systemd/tandem-par2-scrub@.service
    packaging/systemd/tandem-par2-sync@.timer ${PROJECT_BINARY_DIR}/systemd/tandem-par2-sync@.service
    DESTINATION lib/systemd/system COMPONENT tools)
  # Installed only with --component personality, because another program may own the name par2.
  install(FILES $<TARGET_FILE_DIR:tandem_cli>/par2 DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT personality EXCLUDE_FROM_ALL)
endif()
if(TARGET tandem_nbdkit_plugin)
  install(FILES ${PROJECT_BINARY_DIR}/systemd/tandem-volume@.service DESTINATION lib/systemd/system COMPONENT tools)
  install(TARGETS tandem_nbdkit_plugin LIBRARY DESTINATION ${module_dir} COMPONENT tools)
endif()
# Programs built for ISA-L find these only through `tandem isal-env`: no file lies in a folder that loaders search.
if(TARGET tandem_isal)
  install(TARGETS tandem_isal_standalone LIBRARY DESTINATION ${module_dir}/isal/standalone COMPONENT tools)
  install(FILES $<TARGET_FILE_DIR:tandem_isal_standalone>/libisal-pyeclib.so.2 DESTINATION ${module_dir}/isal/standalone
    COMPONENT tools)
  install(TARGETS tandem_isal_chained LIBRARY DESTINATION ${module_dir}/isal COMPONENT tools)
endif()

foreach(part volume par2 mpi)
  if(TARGET tandem_${part})
    set_target_properties(tandem_${part} PROPERTIES EXPORT_NAME ${part})
  endif()
endforeach()
set(package_dir ${libdir}/cmake/tandem)
install(EXPORT tandem-targets NAMESPACE tandem:: DESTINATION ${package_dir} COMPONENT development)
configure_package_config_file(cmake/tandem-config.cmake.in ${PROJECT_BINARY_DIR}/tandem-config.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tandem-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tandem-config.cmake ${PROJECT_BINARY_DIR}/tandem-config-version.cmake
  DESTINATION ${package_dir} COMPONENT development)

# A static library does not name the libraries that it needs; pkg-config must.
set(static_libraries "")
if(NOT BUILD_SHARED_LIBS)
  set(static_libraries " -lstdc++ -lm -ldl -lpthread")
endif()
file(RELATIVE_PATH prefix_from_pc ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
function(tandem_pkgconfig target description)
  if(TARGET ${target})
    string(REPLACE _ - pc_name ${target})
    set(pc_description ${description})
    set(pc_library "-l${target}")
    set(pc_requires "tandem = ${PROJECT_VERSION}")
    if(target STREQUAL tandem)
      string(APPEND pc_library "${static_libraries}")
      set(pc_requires "")
    endif()
    configure_file(cmake/tandem.pc.in ${PROJECT_BINARY_DIR}/${pc_name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${pc_name}.pc DESTINATION ${libdir}/pkgconfig COMPONENT development)
  endif()
endfunction()
tandem_pkgconfig(tandem "${PROJECT_DESCRIPTION}")
tandem_pkgconfig(tandem_volume "Striped volumes over k+m members")
tandem_pkgconfig(tandem_par2 "PAR 2.0 sets beside the files that they protect")
tandem_pkgconfig(tandem_mpi "Shard sets and checkpoints across the ranks of an MPI program")
