# SPDX-License-Identifier: Apache-2.0
# The folder gpu/ needs only the headers of the CUDA toolkit. libtandem opens libtandem_cuda.so from its own folder at the
# first call of the backend "cuda". That module links neither the driver nor NVRTC; it opens each at its first use. With
# nvcc, the device code of gpu/device_code is compiled; without nvcc, NVRTC compiles every kernel.

if(TANDEM_CUDA STREQUAL OFF)
  set(TANDEM_CUDA_INCLUDE_DIR NOTFOUND)  # hides what an earlier configuration found
  return()
endif()
find_path(TANDEM_CUDA_INCLUDE_DIR NAMES nvrtc.h
  HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES include targets/x86_64-linux/include targets/sbsa-linux/include)
set(version 0)
if(EXISTS ${TANDEM_CUDA_INCLUDE_DIR}/cuda.h)
  file(STRINGS ${TANDEM_CUDA_INCLUDE_DIR}/cuda.h version REGEX "^#define CUDA_VERSION [0-9]+")
  string(REGEX REPLACE "[^0-9]" "" version "${version}")
endif()
if(version LESS 11070)  # TANDEM_CUDA_OLDEST
  set(TANDEM_CUDA_INCLUDE_DIR TANDEM_CUDA_INCLUDE_DIR-NOTFOUND)
  tandem_left_out("backend cuda" "cuda.h and nvrtc.h are missing or too old (the CUDA toolkit, 11.7 or later)" CUDA)
else()
  add_library(tandem_cuda_module MODULE ${PROJECT_SOURCE_DIR}/gpu/cuda_module.cpp)
  target_include_directories(tandem_cuda_module PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(tandem_cuda_module SYSTEM PRIVATE ${TANDEM_CUDA_INCLUDE_DIR})
  target_link_libraries(tandem_cuda_module PRIVATE ${CMAKE_DL_LIBS})
  # nodelete: drivers have threads.
  target_link_options(tandem_cuda_module PRIVATE
    -Wl,-z,nodelete -Wl,-soname,libtandem_cuda.so.${PROJECT_VERSION_MAJOR}
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/module.map)
  set_property(TARGET tandem_cuda_module PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/module.map)
  set_target_properties(tandem_cuda_module PROPERTIES OUTPUT_NAME tandem_cuda BUILD_WITH_INSTALL_RPATH ON)
  # gpu/device_code adds its compiled kernels.
endif()
