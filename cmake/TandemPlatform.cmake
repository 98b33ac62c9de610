# Which processors Tandem is written for. Also a script: cmake -DCMAKE_SIZEOF_VOID_P=4 -P cmake/TandemPlatform.cmake.

if(NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  math(EXPR bits "${CMAKE_SIZEOF_VOID_P} * 8")
  message(FATAL_ERROR "Tandem needs a 64-bit processor, and this compiler makes ${bits}-bit programs: sizes of shards and "
    "offsets in files are size_t, which has 64 bits in every check for overflow.")
endif()
if(NOT CMAKE_CXX_BYTE_ORDER STREQUAL "LITTLE_ENDIAN")
  message(FATAL_ERROR "Tandem needs a little-endian processor, and this compiler's byte order is "
    "\"${CMAKE_CXX_BYTE_ORDER}\": the kernels take words for rows of bytes, lowest first, and shard files are written as they "
    "lie in memory.")
endif()
