# Runs PROGRAM for SECONDS from the files in SEEDS; finds are kept beside it.
file(MAKE_DIRECTORY ${PROGRAM}.corpus)
execute_process(COMMAND ${PROGRAM} -max_len=4096 -max_total_time=${SECONDS} -timeout=5 -dict=${DICTIONARY} -print_final_stats=1
                        -artifact_prefix=${PROGRAM}.crash- ${PROGRAM}.corpus ${SEEDS}
                RESULT_VARIABLE result ERROR_VARIABLE said)
string(REGEX MATCH "number_of_executed_units: [0-9]+" runs "${said}")
message("${runs} in ${SECONDS} s")
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${said}")
endif()
