# How test programs are built: tandem_test_kit() and tandem_test(). tests/CMakeLists.txt lists them.

# tandem_test_kit(NAME files...): what several programs have in common, compiled once.
function(tandem_test_kit name)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PRIVATE GTest::gtest tandem_fmt)
endfunction()

# tandem_test(FILE [INSIDE] [SOURCES more...] [KITS kit...] [LABELS label...] [TIMEOUT seconds]): a GoogleTest program named
# after its file. It links libtandem as a user does; INSIDE links the library's objects instead, whose symbols are visible
# there. Labels: "quick" = under 10 s, "tsan" = fit for the thread sanitizer; the targets quick_tests and tsan_tests build what
# these need and no more.
add_custom_target(quick_tests)
add_custom_target(tsan_tests)
function(tandem_test file)
  cmake_parse_arguments(arg "INSIDE" "TIMEOUT" "KITS;SOURCES;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  get_filename_component(name ${file} NAME_WE)
  add_executable(${name} ${file} ${arg_SOURCES})
  foreach(kit IN LISTS arg_KITS)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:${kit}>)
  endforeach()
  if(TANDEM_SANITIZE MATCHES "undefined")  # optimising all its checks takes twice as long as compiling the rest
    target_compile_options(${name} PRIVATE -O0)
  endif()
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  set(library tandem)
  if(arg_INSIDE)
    set(library tandem_internals)
  endif()
  target_link_libraries(${name} PRIVATE ${library} tandem_reference GTest::gtest GTest::gtest_main
    nlohmann_json::nlohmann_json tandem_fmt Threads::Threads ${CMAKE_DL_LIBS})
  # One entry a program, not one a test: a thousand short processes cost more than the tests.
  add_test(NAME ${name} COMMAND ${name})
  tandem_test_properties(${name} TIMEOUT ${arg_TIMEOUT} LABELS ${arg_LABELS})
endfunction()

# tandem_test_properties(NAME [TIMEOUT seconds] [LABELS label...]): what every test has, of a program that was added by hand too.
function(tandem_test_properties name)
  cmake_parse_arguments(arg "" "TIMEOUT" "LABELS" ${ARGN})
  foreach(label quick tsan)
    if(label IN_LIST arg_LABELS)
      add_dependencies(${label}_tests ${name})
    endif()
  endforeach()
  # The user's tuning file is not read. Drivers of OpenCL devices are not the sanitizers' to check.
  set(environment TANDEM_TUNING=)
  if(TANDEM_SANITIZE)
    list(APPEND environment OCL_ICD_VENDORS=${CMAKE_CURRENT_BINARY_DIR}/no-drivers)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}" ENVIRONMENT "${environment}")
endfunction()
