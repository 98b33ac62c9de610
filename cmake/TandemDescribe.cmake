# SPDX-License-Identifier: Apache-2.0
# cmake -D SOURCE=... -D OUTPUT=... -P TandemDescribe.cmake: the name that git gives this state of the sources, for --version. "" outside
# a clone. OUTPUT is written only if the name has changed, so that nothing is compiled again otherwise.
cmake_minimum_required(VERSION 3.22)
set(describe "")
if(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --tags --match "v*" OUTPUT_VARIABLE describe
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(describe "")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define TANDEM_DESCRIBE \"@describe@\"\n" @ONLY)
