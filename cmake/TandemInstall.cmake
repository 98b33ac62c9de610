# What `cmake --install` copies, and what other builds find there: find_package(tandem) and pkg-config.
# Nothing installed holds an absolute path, so a prefix may be moved.

include(CMakePackageConfigHelpers)

install(TARGETS tandem tandem_volume EXPORT tandem-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/tandem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
file(RELATIVE_PATH library_from_command ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
if(TARGET tandem_mpi)
  set_target_properties(tandem_mpi PROPERTIES EXPORT_NAME mpi)
  set_target_properties(tandem_mpi_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${library_from_command}")
  install(TARGETS tandem_mpi EXPORT tandem-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
foreach(module tandem_openmp tandem_opencl_module tandem_cuda_module)  # found beside libtandem.so, nowhere else
  if(TARGET ${module})
    install(TARGETS ${module} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endforeach()

set_target_properties(tandem_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${library_from_command}")
set_property(SOURCE cli/isal_env.cpp cli/volume_serve.cpp TARGET_DIRECTORY tandem_cli APPEND PROPERTY
  COMPILE_DEFINITIONS TANDEM_LIBRARY_FROM_COMMAND="${library_from_command}")

# Programs built for ISA-L find these only through `tandem isal-env`: nothing of it lies where a loader looks by itself.
set(isal_dir ${CMAKE_INSTALL_LIBDIR}/tandem/isal)
install(TARGETS tandem_isal_standalone LIBRARY DESTINATION ${isal_dir}/standalone)
install(FILES $<TARGET_FILE_DIR:tandem_isal_standalone>/libisal-pyeclib.so.2 DESTINATION ${isal_dir}/standalone)
install(TARGETS tandem_isal_chained LIBRARY DESTINATION ${isal_dir})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)
install(EXPORT tandem-targets NAMESPACE tandem:: DESTINATION ${package_dir})
configure_package_config_file(cmake/tandem-config.cmake.in ${PROJECT_BINARY_DIR}/tandem-config.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tandem-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tandem-config.cmake ${PROJECT_BINARY_DIR}/tandem-config-version.cmake
  DESTINATION ${package_dir})

file(RELATIVE_PATH prefix_from_pc ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/tandem.pc.in ${PROJECT_BINARY_DIR}/tandem.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tandem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET tandem_mpi)
  configure_file(cmake/tandem-mpi.pc.in ${PROJECT_BINARY_DIR}/tandem-mpi.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/tandem-mpi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()
