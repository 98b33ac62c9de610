# SPDX-License-Identifier: Apache-2.0
# libtandem_openmp.so: the one file compiled with -fopenmp, in a module that libtandem opens from its own folder when the
# executor "openmp" is asked for.

add_custom_target(openmp_modules)
if(TANDEM_OPENMP STREQUAL OFF)
  return()
endif()
find_package(OpenMP QUIET COMPONENTS CXX)

if(OpenMP_CXX_FOUND)
  add_library(tandem_openmp MODULE ${PROJECT_SOURCE_DIR}/cpu/executors/openmp_module.cpp)
  target_include_directories(tandem_openmp PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(tandem_openmp PRIVATE OpenMP::OpenMP_CXX)
  # nodelete: the runtime's threads outlive a dlclose.
  target_link_options(tandem_openmp PRIVATE
    -Wl,-z,nodelete -Wl,-soname,libtandem_openmp.so.${PROJECT_VERSION_MAJOR})
  # The module of the build tree is installed as it is: no search path to the compiler's own folder.
  set_target_properties(tandem_openmp PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
  add_dependencies(openmp_modules tandem_openmp)
else()
  tandem_left_out("executor openmp (libtandem_openmp.so)"
    "${CMAKE_CXX_COMPILER_ID} finds no OpenMP runtime (Debian, Ubuntu: with clang apt-get install libomp-dev, gcc brings its own)" OPENMP)
endif()
