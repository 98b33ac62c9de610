# SPDX-License-Identifier: Apache-2.0
# Chooses what is built. TANDEM_<FEATURE> is AUTO (built if this machine can), ON (an error with the reason if it cannot) or
# OFF. tandem_left_out() collects what is missing; one message at the end lists it.

# OTHERWISE: the meaning of AUTO if Tandem is part of another project.
function(tandem_feature name text)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "OTHERWISE" "")
  set(default AUTO)
  if(DEFINED arg_OTHERWISE AND NOT PROJECT_IS_TOP_LEVEL)
    set(default ${arg_OTHERWISE})
  endif()
  set(TANDEM_${name} ${default} CACHE STRING "${text}: AUTO, ON or OFF")
  set_property(CACHE TANDEM_${name} PROPERTY STRINGS AUTO ON OFF)
  if(NOT TANDEM_${name} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "TANDEM_${name} is ${TANDEM_${name}}: it must be AUTO, ON or OFF")
  endif()
endfunction()

# tandem_left_out(WHAT WHY [FEATURE]): an error if the feature is ON.
function(tandem_left_out what why)
  if(ARGC GREATER 2 AND TANDEM_${ARGV2} STREQUAL ON)
    message(FATAL_ERROR "TANDEM_${ARGV2} is ON, but ${what} cannot be built: ${why}")
  endif()
  set_property(GLOBAL APPEND PROPERTY TANDEM_LEFT_OUT "${what}: ${why}")
endfunction()

function(tandem_say_left_out)
  get_property(lines GLOBAL PROPERTY TANDEM_LEFT_OUT)
  if(lines)
    list(JOIN lines "\n     " text)
    message(STATUS "Left out:\n     ${text}")
  else()
    message(STATUS "Left out: nothing")
  endif()
endfunction()

tandem_feature(FILES "Functions on files, files.h" OTHERWISE OFF)
tandem_feature(OPENMP "Executor openmp, a module")
tandem_feature(OPENCL "Backend opencl, a module")
tandem_feature(CUDA "Backend cuda, a module" OTHERWISE OFF)
tandem_feature(CLI "The command tandem" OTHERWISE OFF)
tandem_feature(VOLUME "libtandem_volume, volume.h" OTHERWISE OFF)
tandem_feature(PAR2 "libtandem_par2, par2.h" OTHERWISE OFF)
tandem_feature(MPI "libtandem_mpi, mpi.h, and the command tandem-mpi" OTHERWISE OFF)
tandem_feature(ISAL "libisal.so.2, the drop-in for ISA-L" OTHERWISE OFF)

set(TANDEM_COMMAND_NAME tandem CACHE STRING "Name of the command; packages of Debian call it tandem-ec")

# tandem_needs(FEATURE WHAT REASON condition...): leaves a feature out, or fails, unless the condition holds.
macro(tandem_needs feature what reason)
  if(NOT (${ARGN}))
    if(NOT TANDEM_${feature} STREQUAL OFF)
      tandem_left_out("${what}" "${reason}" ${feature})
    endif()
    set(TANDEM_${feature} OFF)
  endif()
endmacro()

if(NOT DEFINED BUILD_SHARED_LIBS)
  set(BUILD_SHARED_LIBS ON)
endif()
set(static "BUILD_SHARED_LIBS is OFF: a program would have two copies of libtandem")
tandem_needs(VOLUME "libtandem_volume" "${static}" BUILD_SHARED_LIBS)
tandem_needs(PAR2 "libtandem_par2" "${static}" BUILD_SHARED_LIBS)
tandem_needs(MPI "libtandem_mpi and tandem-mpi" "${static}" BUILD_SHARED_LIBS)
tandem_needs(ISAL "libisal.so.2" "${static}" BUILD_SHARED_LIBS)
set(static "BUILD_SHARED_LIBS is OFF: modules are found beside a shared libtandem only")
tandem_needs(OPENMP "executor openmp" "${static}" BUILD_SHARED_LIBS)
tandem_needs(OPENCL "backend opencl" "${static}" BUILD_SHARED_LIBS)
tandem_needs(CUDA "backend cuda" "${static}" BUILD_SHARED_LIBS)
tandem_needs(CLI "the command tandem" "TANDEM_FILES is OFF" NOT TANDEM_FILES STREQUAL OFF)
tandem_needs(MPI "libtandem_mpi and tandem-mpi" "TANDEM_FILES or TANDEM_CLI is OFF"
  NOT TANDEM_FILES STREQUAL OFF AND NOT TANDEM_CLI STREQUAL OFF)
