# SPDX-License-Identifier: Apache-2.0
# The folder opencl/ needs only OpenCL's headers. libtandem opens libtandem_opencl.so from its own folder at the first call
# of the backend "opencl". That module links libOpenCL.

if(TANDEM_OPENCL STREQUAL OFF)
  set(OpenCL_INCLUDE_DIR NOTFOUND)  # hides what an earlier configuration found
  return()
endif()
find_package(OpenCL QUIET)  # also finds the headers of a CUDA toolkit
if(NOT OpenCL_INCLUDE_DIR)
  tandem_left_out("backend opencl" "CL/cl.h is missing (Debian, Ubuntu: apt-get install opencl-headers ocl-icd-opencl-dev)" OPENCL)
elseif(NOT OpenCL_LIBRARY)
  tandem_left_out("backend opencl's module (libtandem_opencl.so)"
    "libOpenCL.so is missing (Debian, Ubuntu: apt-get install ocl-icd-opencl-dev)" OPENCL)
else()
  add_library(tandem_opencl_module MODULE ${PROJECT_SOURCE_DIR}/opencl/opencl_module.cpp)
  target_include_directories(tandem_opencl_module PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(tandem_opencl_module SYSTEM PRIVATE ${OpenCL_INCLUDE_DIR})
  target_compile_definitions(tandem_opencl_module PRIVATE CL_TARGET_OPENCL_VERSION=120)
  target_link_libraries(tandem_opencl_module PRIVATE ${OpenCL_LIBRARY})
  # nodelete: drivers have threads.
  target_link_options(tandem_opencl_module PRIVATE
    -Wl,-z,nodelete -Wl,-soname,libtandem_opencl.so.${PROJECT_VERSION_MAJOR}
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/module.map)
  set_property(TARGET tandem_opencl_module PROPERTY LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/module.map)
  set_target_properties(tandem_opencl_module PROPERTIES OUTPUT_NAME tandem_opencl BUILD_WITH_INSTALL_RPATH ON)
endif()
