# SPDX-License-Identifier: Apache-2.0
# Refuses processors that Tandem does not support. Also a script: cmake -DCMAKE_SIZEOF_VOID_P=4 -P cmake/TandemPlatform.cmake.

if(NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  math(EXPR bits "${CMAKE_SIZEOF_VOID_P} * 8")
  message(FATAL_ERROR "Tandem needs a 64-bit processor, and this compiler makes ${bits}-bit programs. Sizes of shards and "
    "offsets in files are size_t, and every check for overflow assumes 64 bits.")
endif()
if(NOT CMAKE_CXX_BYTE_ORDER STREQUAL "LITTLE_ENDIAN")
  message(FATAL_ERROR "Tandem needs a little-endian processor, and this compiler's byte order is "
    "\"${CMAKE_CXX_BYTE_ORDER}\". The kernels and the shard files assume words with the lowest byte first.")
endif()
