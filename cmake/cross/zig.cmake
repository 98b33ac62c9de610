# SPDX-License-Identifier: Apache-2.0
# Cross-compiles with `zig c++`, which has the headers and libraries of other systems: -DTANDEM_ZIG=FILE -DTANDEM_ZIG_TARGET=TRIPLE.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TANDEM_ZIG TANDEM_ZIG_TARGET)
string(REGEX REPLACE "-.*" "" CMAKE_SYSTEM_PROCESSOR ${TANDEM_ZIG_TARGET})
if(TANDEM_ZIG_TARGET MATCHES "linux")
  set(CMAKE_SYSTEM_NAME Linux)
elseif(TANDEM_ZIG_TARGET MATCHES "macos")
  set(CMAKE_SYSTEM_NAME Darwin)
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)  # nothing is linked: zig need not compile its C++ library
else()
  set(CMAKE_SYSTEM_NAME Windows)
endif()
set(CMAKE_C_COMPILER ${TANDEM_ZIG} cc -target ${TANDEM_ZIG_TARGET})
set(CMAKE_CXX_COMPILER ${TANDEM_ZIG} c++ -target ${TANDEM_ZIG_TARGET})
set(CMAKE_CXX_COMPILER_LAUNCHER "")  # ccache takes `c++` for a file
include(${CMAKE_CURRENT_LIST_DIR}/headers.cmake)
