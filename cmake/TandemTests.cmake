# SPDX-License-Identifier: Apache-2.0
# Functions that build tests: tandem_test_kit(), tandem_test(), tandem_command_test(), and functions for fuzzers. This file
# finds optional packages and decides which tests need them. tests/CMakeLists.txt is only a list.

find_package(GTest REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL QUIET COMPONENTS Crypto)  # MD5 of the golden vectors
find_package(Python3 COMPONENTS Interpreter)
find_program(TANDEM_OCLGRIND oclgrind)

# Which of the names for NEEDS this machine has.
set(tandem_tests_have)
function(tandem_tests_have need)
  if(${ARGN})
    set(tandem_tests_have ${tandem_tests_have} ${need} PARENT_SCOPE)
  endif()
endfunction()
tandem_tests_have(command TARGET tandem_cli AND TARGET tandem_volume)
tandem_tests_have(volume TARGET tandem_volume)
tandem_tests_have(cuda TANDEM_CUDA_INCLUDE_DIR)
tandem_tests_have(cuda_device_code TARGET tandem_cuda_device_code)
tandem_tests_have(opencl OpenCL_INCLUDE_DIR)
tandem_tests_have(opencl_module OpenCL_INCLUDE_DIR AND TARGET tandem_opencl_module)
tandem_tests_have(oclgrind OpenCL_INCLUDE_DIR AND TARGET tandem_opencl_module AND TANDEM_OCLGRIND AND NOT TANDEM_SANITIZE)
tandem_tests_have(openssl OpenSSL_FOUND)
tandem_tests_have(python Python3_FOUND)
find_path(TANDEM_JERASURE_INCLUDE jerasure.h)
find_path(TANDEM_JERASURE_FIELD_INCLUDE galois.h PATH_SUFFIXES jerasure)
find_library(TANDEM_JERASURE_LIBRARY Jerasure)
find_path(TANDEM_ERASURECODE_INCLUDE liberasurecode/erasurecode.h)
find_library(TANDEM_ERASURECODE_LIBRARY erasurecode)
tandem_tests_have(jerasure TANDEM_JERASURE_INCLUDE AND TANDEM_JERASURE_FIELD_INCLUDE AND TANDEM_JERASURE_LIBRARY)
tandem_tests_have(erasurecode TANDEM_ERASURECODE_INCLUDE AND TANDEM_ERASURECODE_LIBRARY)
# Leaks and races of Open MPI itself are not reported.
tandem_tests_have(mpi TARGET tandem_mpi AND MPIEXEC_EXECUTABLE AND Python3_FOUND AND NOT TANDEM_SANITIZE)
# Faults are preloaded, and a sanitizer's runtime must be preloaded first.
tandem_tests_have(faults Python3_FOUND AND NOT TANDEM_SANITIZE AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
if(NOT OpenSSL_FOUND)
  tandem_left_out("core_presets_test" "OpenSSL's libcrypto is not installed (Debian, Ubuntu: apt-get install libssl-dev)")
endif()
if(NOT "jerasure" IN_LIST tandem_tests_have)
  tandem_left_out("jerasure_test" "Jerasure is not installed (Debian, Ubuntu: apt-get install libjerasure-dev)")
elseif(NOT "erasurecode" IN_LIST tandem_tests_have)
  tandem_left_out("fragments of liberasurecode in jerasure_test"
    "liberasurecode's headers are not installed (Debian, Ubuntu: apt-get install liberasurecode-dev)")
endif()
if(OpenCL_INCLUDE_DIR AND NOT "oclgrind" IN_LIST tandem_tests_have)
  tandem_left_out("opencl_oclgrind_test" "oclgrind is not installed, or a sanitizer is on (apt-get install oclgrind)")
endif()
if(NOT Python3_FOUND)
  tandem_left_out("cli_test" "python3 is missing (apt-get install python3)")
endif()

# tandem_tests_lack(RESULT needs...): whether this machine lacks one of them.
function(tandem_tests_lack result)
  set(lack FALSE)
  foreach(need IN LISTS ARGN)
    if(NOT need IN_LIST tandem_tests_have)
      set(lack TRUE)
    endif()
  endforeach()
  set(${result} ${lack} PARENT_SCOPE)
endfunction()

# Adds the headers and libraries of a target's needs.
function(tandem_test_uses name)
  if("cuda" IN_LIST ARGN)
    target_include_directories(${name} SYSTEM PRIVATE ${TANDEM_CUDA_INCLUDE_DIR})
  endif()
  if("opencl" IN_LIST ARGN)
    target_include_directories(${name} SYSTEM PRIVATE ${OpenCL_INCLUDE_DIR})
    target_compile_definitions(${name} PRIVATE CL_TARGET_OPENCL_VERSION=120)
  endif()
  if("opencl_module" IN_LIST ARGN)
    target_link_libraries(${name} PRIVATE ${OpenCL_LIBRARY})
  endif()
  if("jerasure" IN_LIST ARGN)
    target_include_directories(${name} SYSTEM PRIVATE ${TANDEM_JERASURE_INCLUDE} ${TANDEM_JERASURE_FIELD_INCLUDE})
    target_link_libraries(${name} PRIVATE ${TANDEM_JERASURE_LIBRARY})
  endif()
  if("erasurecode" IN_LIST ARGN)
    target_include_directories(${name} SYSTEM PRIVATE ${TANDEM_ERASURECODE_INCLUDE}
      ${TANDEM_ERASURECODE_INCLUDE}/liberasurecode)
    target_link_libraries(${name} PRIVATE ${TANDEM_ERASURECODE_LIBRARY})
  endif()
  if("openssl" IN_LIST ARGN)
    target_link_libraries(${name} PRIVATE OpenSSL::Crypto)
  endif()
endfunction()

# tandem_test_kit(NAME [NEEDS need...] SOURCES files...): common sources of several programs, compiled once.
function(tandem_test_kit name)
  cmake_parse_arguments(arg "" "" "NEEDS;SOURCES" ${ARGN})
  tandem_tests_lack(lack ${arg_NEEDS})
  if(lack)
    return()
  endif()
  add_library(${name} OBJECT ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PRIVATE GTest::gtest tandem_fmt)
  tandem_test_uses(${name} ${arg_NEEDS})
endfunction()

# tandem_test(FILE [INSIDE] [MODULES] [FIRST] [NEEDS need...] [WITH need...] [SOURCES more...] [KITS kit...]
# [LINKS library...] [INCLUDES folder...] [DEFINES definition...] [LABELS label...] [TIMEOUT seconds]
# [UNDER_TSAN filter]): a GoogleTest program named after its file.
#   INSIDE   links the archive of its folder, so that hidden functions are visible; of a folder without one, that of api/. Other
#            tests link libtandem as a user does
#   MODULES  the library opens its modules in this test
#   FIRST    a long test: it starts first, so that the short ones run beside it on the other core
#   NEEDS    the test exists only if the machine has these
#   WITH     the test uses these if the machine has them: TANDEM_TEST_WITH_NEED is defined. Missing kits are left out
#   LINKS    libraries of the project that it uses beside libtandem
#   LABELS   "quick" = under 10 s, "tsan" = runs under the thread sanitizer. The targets quick_tests and tsan_tests build only
#            these
#   UNDER_TSAN  a GoogleTest filter of the tests that the thread sanitizer runs: tests take ten times as long with it
add_custom_target(quick_tests)
add_custom_target(tsan_tests)
function(tandem_test file)
  cmake_parse_arguments(arg "INSIDE;MODULES;FIRST" "TIMEOUT;UNDER_TSAN" "NEEDS;WITH;KITS;SOURCES;LINKS;INCLUDES;DEFINES;LABELS" ${ARGN})
  tandem_tests_lack(lack ${arg_NEEDS})
  if(lack)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  get_filename_component(name ${file} NAME_WE)
  add_executable(${name} ${file} ${arg_SOURCES})
  foreach(kit IN LISTS arg_KITS)
    if(TARGET ${kit})
      target_sources(${name} PRIVATE $<TARGET_OBJECTS:${kit}>)
    endif()
  endforeach()
  if(TANDEM_SANITIZE MATCHES "undefined")  # optimising its checks takes twice as long as compiling all else
    target_compile_options(${name} PRIVATE -O0)
  endif()
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_include_directories(${name} SYSTEM PRIVATE ${arg_INCLUDES})
  target_compile_definitions(${name} PRIVATE ${arg_DEFINES})
  set(library tandem)
  if(arg_INSIDE)
    string(REGEX REPLACE "/.*" "" folder ${file})
    set(library tandem_${folder}_archive)
    if(NOT TARGET ${library})
      set(library tandem_api_archive)
    endif()
  endif()
  target_link_libraries(${name} PRIVATE ${arg_LINKS} ${library} tandem_reference GTest::gtest GTest::gtest_main
    nlohmann_json::nlohmann_json tandem_fmt Threads::Threads ${CMAKE_DL_LIBS})
  tandem_test_uses(${name} ${arg_NEEDS})
  foreach(need IN LISTS arg_WITH)
    if(need IN_LIST tandem_tests_have)
      string(TOUPPER ${need} upper)
      target_compile_definitions(${name} PRIVATE TANDEM_TEST_WITH_${upper})
      tandem_test_uses(${name} ${need})
    endif()
  endforeach()
  if(arg_MODULES)
    tandem_test_modules(${name})
  endif()
  # One entry for each program, not for each test: a thousand short processes cost more than the tests.
  add_test(NAME ${name} COMMAND ${name})
  tandem_test_properties(${name} TIMEOUT ${arg_TIMEOUT} LABELS ${arg_LABELS})
  if(arg_FIRST)
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
  if(arg_UNDER_TSAN AND TANDEM_SANITIZE MATCHES "thread")
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "GTEST_FILTER=${arg_UNDER_TSAN}")
  endif()
endfunction()

# The modules are opened at run time: they must have been built. The thread sanitizer does not understand OpenMP's runtime.
function(tandem_test_modules name)
  foreach(module tandem_openmp tandem_opencl_module tandem_cuda_module)
    if(TARGET ${module})
      add_dependencies(${name} ${module})
    endif()
  endforeach()
  if(TANDEM_SANITIZE MATCHES "thread")
    target_compile_definitions(${name} PRIVATE TANDEM_TEST_WITHOUT_OPENMP)
  endif()
endfunction()

# tandem_test_properties(NAME [TIMEOUT seconds] [LABELS label...]): the properties of every test, also of one added by hand.
function(tandem_test_properties name)
  cmake_parse_arguments(arg "" "TIMEOUT" "LABELS" ${ARGN})
  foreach(label quick tsan)
    if(label IN_LIST arg_LABELS)
      add_dependencies(${label}_tests ${name})
    endif()
  endforeach()
  # Tests do not read the user's tuning file. Sanitizers do not check drivers of OpenCL devices.
  set(environment TANDEM_TUNING=)
  if(TANDEM_SANITIZE)
    list(APPEND environment OCL_ICD_VENDORS=${CMAKE_CURRENT_BINARY_DIR}/no-drivers)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" ENVIRONMENT "${environment}")
endfunction()

# tandem_command_test(NAME [FIRST] [NEEDS need...] [LABELS label...] [TIMEOUT seconds] [PROPERTIES property value...]
# COMMAND words...): a test that is a command. A name that ends in .py is a script of tests/.
function(tandem_command_test name)
  cmake_parse_arguments(arg "FIRST" "TIMEOUT" "NEEDS;LABELS;PROPERTIES;COMMAND" ${ARGN})
  tandem_tests_lack(lack ${arg_NEEDS})
  if(lack)
    return()
  endif()
  list(GET arg_COMMAND 0 program)
  if(program MATCHES "\\.py$")
    list(POP_FRONT arg_COMMAND)
    list(PREPEND arg_COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/${program})
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" ${arg_PROPERTIES})
  if(arg_FIRST)
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
endfunction()

# tandem_isal_test(KERNEL): the test of the drop-in with that kernel; "best": with the kernel that it chooses.
function(tandem_isal_test kernel)
  set(environment TANDEM_TEST_SECONDS=4)
  if(NOT kernel STREQUAL "best")
    list(APPEND environment TANDEM_ISAL_KERNEL=${kernel})
  endif()
  add_test(NAME isal_test_${kernel} COMMAND isal_test)
  set_tests_properties(isal_test_${kernel} PROPERTIES TIMEOUT 300 SKIP_REGULAR_EXPRESSION "NOT RUN"
    ENVIRONMENT "${environment}")
endfunction()

# tandem_fault(NAME): files/fault/NAME.c, to be preloaded.
function(tandem_fault name)
  if("faults" IN_LIST tandem_tests_have)
    add_library(tandem_${name} MODULE files/fault/${name}.c)
    target_compile_definitions(tandem_${name} PRIVATE _GNU_SOURCE)
  endif()
endfunction()

# tandem_replay_test(NAME FUZZER CORPUS [KITS kit...] [LINKS library...]): a fuzzer's committed inputs, as a test of every build.
function(tandem_replay_test name fuzzer corpus)
  cmake_parse_arguments(arg "" "" "KITS;LINKS" ${ARGN})
  add_executable(${name} fuzz/${fuzzer}.cpp fuzz/replay.cpp)
  foreach(kit IN LISTS arg_KITS)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:${kit}>)
  endforeach()
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PRIVATE ${arg_LINKS})
  add_test(NAME ${name} COMMAND ${name} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/${corpus})
  set_tests_properties(${name} PROPERTIES TIMEOUT 120 LABELS "quick;tsan")
  add_dependencies(quick_tests ${name})
  add_dependencies(tsan_tests ${name})
endfunction()

# Fuzzers: cmake -DCMAKE_CXX_COMPILER=clang++ -DTANDEM_FUZZ=ON, then build only the target fuzzers: other targets do not link
# libFuzzer. Coverage is counted in base/, core/, tuning/, cpu/, files/ and api/. It is not counted in the kernels (they take
# minutes to instrument) and in the hash (it would be slow).
option(TANDEM_FUZZ "Make the target fuzzers: codec_fuzzer, records_fuzzer, files_fuzzer, tuning_fuzzer, volume_fuzzer, par2_fuzzer, par2_verify_fuzzer (clang)" OFF)
function(tandem_fuzzers)
  if(NOT TANDEM_FUZZ)
    return()
  endif()
  add_custom_target(fuzzers)
  foreach(name IN LISTS ARGN)
    add_executable(${name} fuzz/${name}.cpp)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_libraries(${name} PRIVATE tandem_reference tandem_fmt nlohmann_json::nlohmann_json tandem_files_archive)
    add_dependencies(fuzzers ${name})
  endforeach()
  foreach(folder tandem_base tandem_core tandem_tuning tandem_cpu tandem_files tandem_api)
    target_compile_options(${folder} PRIVATE -fsanitize=fuzzer-no-link)
  endforeach()
  # A file's options come after its target's.
  file(GLOB hash_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/base/hash*.cpp)
  set_property(SOURCE ${hash_files} TARGET_DIRECTORY tandem_base APPEND PROPERTY
    COMPILE_OPTIONS -fno-sanitize=fuzzer-no-link,undefined -O3)
endfunction()
