# What this machine cannot build is left out, and said once, at the end, with the reason and the remedy.

function(tandem_left_out what why)
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
