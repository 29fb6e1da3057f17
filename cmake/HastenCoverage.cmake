# With HASTEN_COVERAGE, the compiler adds counters to the parsers of external files. They count how often each line runs. The test coverage/parsers
# reports the counts (tests/coverage/parsers.py). Only gcc is supported, because gcov reads the counts.
option(HASTEN_COVERAGE "Count the lines of the parsers that run" OFF)

# hasten_count_lines(TARGET) adds the counters to the sources of TARGET that tests/coverage/parsers.txt lists.
function(hasten_count_lines target)
  if(NOT HASTEN_COVERAGE)
    return()
  endif()
  file(STRINGS ${PROJECT_SOURCE_DIR}/tests/coverage/parsers.txt parsers REGEX "^[^#]")
  get_target_property(sources ${target} SOURCES)
  foreach(file IN LISTS sources)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY "${PROJECT_SOURCE_DIR}/src")
    if(path IN_LIST parsers)
      # The file is compiled separately, so that its counts do not depend on other files.
      set_source_files_properties("${file}" PROPERTIES COMPILE_OPTIONS "--coverage" SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  target_link_options(${target} PUBLIC --coverage)
endfunction()
