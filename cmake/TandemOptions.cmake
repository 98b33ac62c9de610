# SPDX-License-Identifier: Apache-2.0
# Language level, warnings and sanitizers, the same for every target. tandem_folder() makes the target of a folder.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

option(TANDEM_WERROR "Treat warnings as errors" OFF)
set(TANDEM_SANITIZE "" CACHE STRING "Sanitizers for everything, as for -fsanitize= (address,undefined or thread)")

if(PROJECT_IS_TOP_LEVEL OR TANDEM_WERROR)
  add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wno-psabi)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # False alarms inside GCC 12's own headers: std::string joined by + (GCC bug 105651), vectors of known size.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict> $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds>
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overread>)
  endif()
else()
  add_compile_options(-w)  # another project has no use for them
endif()
if(TANDEM_WERROR)
  add_compile_options(-Werror)
endif()
if(TANDEM_SANITIZE)
  add_compile_options(-fsanitize=${TANDEM_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TANDEM_SANITIZE})
endif()

find_program(TANDEM_CCACHE ccache)
if(TANDEM_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TANDEM_CCACHE})
endif()

# The headers of C++ and of packages take longer to compile than our code. In batches each is read once for ten files, so the
# hidden names of a folder's files must differ. Developers change single files, so CMake alone compiles these one by one.
if(PROJECT_IS_TOP_LEVEL)
  option(TANDEM_BATCHES "compile the files of a folder ten at a time: a whole build is faster, the next one slower" OFF)
else()
  option(TANDEM_BATCHES "compile the files of a folder ten at a time" ON)
endif()
function(tandem_in_batches target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TANDEM_BATCHES} UNITY_BUILD_BATCH_SIZE 10)
  # In a batch, a .cpp file looks like a header to GCC's warning. For clang's, hidden names of other files are outer ones.
  if(TANDEM_BATCHES)
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage> $<$<CXX_COMPILER_ID:Clang>:-Wno-shadow>)
  endif()
endfunction()

# tandem_folder(NAME [USES folder...] SOURCES files...): an object library of one folder. Include paths are private: include/, and
# the tree's root, so that includes read "core/gf.hpp". scripts/check-layers checks each folder against its row of the table.
# NAME_archive has the same objects, and the archives of the folders that it USES: a test of one folder builds only these, and
# libraries on top of libtandem take what they need of base/, and keep its names hidden.
#
# Another project compiles the C++ library's headers once. A build of Tandem alone does not: ccache keeps no objects that are
# made so, and every file must include what it uses. Kernel files include no such headers.
function(tandem_folder name)
  cmake_parse_arguments(arg "" "" "USES;SOURCES" ${ARGN})
  add_library(${name} OBJECT ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PRIVATE Threads::Threads)
  add_library(${name}_archive STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${name}>)
  list(TRANSFORM arg_USES PREPEND tandem_ OUTPUT_VARIABLE archives)
  list(TRANSFORM archives APPEND _archive)
  target_link_libraries(${name}_archive PUBLIC ${archives} Threads::Threads ${CMAKE_DL_LIBS})
  if(name MATCHES "kernels|isal")
    return()
  endif()
  tandem_in_batches(${name})
  if(PROJECT_IS_TOP_LEVEL)
    return()
  endif()
  if(name STREQUAL tandem_base)
    target_precompile_headers(${name} PRIVATE <algorithm> <array> <atomic> <bitset> <charconv> <chrono> <cmath> <condition_variable>
      <deque> <functional> <limits> <list> <map> <memory> <mutex> <numeric> <optional> <set> <shared_mutex> <span> <string> <thread>
      <tuple> <unordered_map> <variant> <vector>)
  else()
    target_precompile_headers(${name} REUSE_FROM tandem_base)
  endif()
endfunction()
