# Runs PROGRAM for SECONDS from the files in SEEDS, with the random numbers of SEED (0: others each time). New inputs are kept beside the
# program.
file(MAKE_DIRECTORY ${PROGRAM}.corpus)
# AddressSanitizer holds back what was freed, which counts as resident. A single allocation beyond 512 MB is reported with its stack.
set(ENV{ASAN_OPTIONS} "$ENV{ASAN_OPTIONS}:quarantine_size_mb=64")
execute_process(COMMAND ${PROGRAM} -seed=${SEED} -malloc_limit_mb=512 -max_len=4096 -max_total_time=${SECONDS} -timeout=5 -dict=${DICTIONARY} -print_final_stats=1
                        -artifact_prefix=${PROGRAM}.crash- ${PROGRAM}.corpus ${SEEDS}
                RESULT_VARIABLE result ERROR_VARIABLE output)
string(REGEX MATCH "number_of_executed_units: [0-9]+" runs "${output}")
message("${runs} in ${SECONDS} s")
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${output}")
endif()
