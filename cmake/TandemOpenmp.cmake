# SPDX-License-Identifier: Apache-2.0
# libtandem_openmp.so: the one file compiled with -fopenmp, in a module that libtandem opens from its own folder when the
# executor "openmp" is asked for. A second module has the runtime of the other compiler, for "openmp:gnu" or "openmp:llvm".

add_custom_target(openmp_modules)
if(TANDEM_OPENMP STREQUAL OFF)
  return()
endif()
set(openmp_source ${PROJECT_SOURCE_DIR}/cpu/executors/openmp_module.cpp)
find_package(OpenMP QUIET COMPONENTS CXX)

if(OpenMP_CXX_FOUND)
  add_library(tandem_openmp MODULE ${openmp_source})
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

# The other compiler's. Never ON as a must: few users want two runtimes.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  set(other_runtime gnu)
  set(other_names g++)
else()
  set(other_runtime llvm)
  set(other_names clang++ clang++-20 clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14)
endif()
set(other_file ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libtandem_openmp_${other_runtime}.so)
set(other_flags -std=c++20 -O2 -fPIC -shared -fopenmp -I${PROJECT_SOURCE_DIR} ${openmp_source} -Wl,-z,nodelete
  -Wl,-soname,libtandem_openmp_${other_runtime}.so.${PROJECT_VERSION_MAJOR})
if(other_runtime STREQUAL llvm)
  list(APPEND other_flags -fno-openmp-implicit-rpath)
endif()
if(CMAKE_CROSSCOMPILING)
  tandem_left_out("executor openmp:${other_runtime}" "a cross build has one compiler")
  return()
endif()
find_program(TANDEM_OTHER_COMPILER NAMES ${other_names})
if(TANDEM_OTHER_COMPILER AND NOT TANDEM_OTHER_OPENMP)  # a failure is tried again: the runtime may be installed by then
  execute_process(COMMAND ${TANDEM_OTHER_COMPILER} ${other_flags} -o ${CMAKE_CURRENT_BINARY_DIR}/other_openmp.so
    RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
  if(status EQUAL 0)
    set(TANDEM_OTHER_OPENMP ON CACHE BOOL "The other compiler builds an OpenMP module")
  endif()
endif()
if(TANDEM_OTHER_OPENMP)
  add_custom_command(OUTPUT ${other_file}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}
    COMMAND ${TANDEM_OTHER_COMPILER} ${other_flags} -o ${other_file}
    DEPENDS ${openmp_source} ${PROJECT_SOURCE_DIR}/cpu/executors/openmp_module.hpp
    COMMENT "Building the OpenMP module with the runtime of ${TANDEM_OTHER_COMPILER}" VERBATIM)
  add_custom_target(tandem_openmp_other ALL DEPENDS ${other_file})
  set_target_properties(tandem_openmp_other PROPERTIES TANDEM_FILE ${other_file})
  add_dependencies(openmp_modules tandem_openmp_other)
else()
  tandem_left_out("executor openmp:${other_runtime}"
    "no second compiler with an OpenMP runtime (Debian, Ubuntu: apt-get install clang libomp-dev, or g++)")
endif()
