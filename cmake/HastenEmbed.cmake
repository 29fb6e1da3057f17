# hasten_embed(TARGET FILE CONSTANT) turns the text of FILE, a path in the current source folder,
# into a C++ string constant. A source of the target that has `#include "FILE.h"` can use
# hasten::embedded::CONSTANT. CMake runs this file during the build of the target to write the
# header.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  function(hasten_embed target file constant)
    set(header ${CMAKE_CURRENT_BINARY_DIR}/embedded/${file}.h)
    add_custom_command(OUTPUT ${header} DEPENDS ${file} ${CMAKE_CURRENT_FUNCTION_LIST_FILE}
                       COMMAND ${CMAKE_COMMAND} -DFILE=${CMAKE_CURRENT_SOURCE_DIR}/${file} -DHEADER=${header} -DCONSTANT=${constant}
                               -P ${CMAKE_CURRENT_FUNCTION_LIST_FILE}
                       VERBATIM)
    # CMake lets a command of one target wait until everything that the target links is built, and all files of the target wait for the command. A
    # command of two targets waits only for what both need, and this second target needs nothing.
    add_custom_target(${target}_${constant} DEPENDS ${header})
    add_dependencies(${target} ${target}_${constant})
    target_sources(${target} PRIVATE ${header})
    target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/embedded)
  endfunction()
  return()
endif()

file(READ "${FILE}" text)
string(FIND "${text}" ")hasten\"" end)
if(NOT end EQUAL -1)
  message(FATAL_ERROR "${FILE}: got ')hasten\"', which ends the string constant. Hint: write it in another way.")
endif()
get_filename_component(name "${FILE}" NAME)
file(WRITE "${HEADER}" "// Generated from ${name} by cmake/HastenEmbed.cmake.\n#pragma once\n\nnamespace hasten::embedded {\n\n"
                       "inline constexpr const char* ${CONSTANT} = R\"hasten(${text})hasten\";\n\n}  // namespace hasten::embedded\n")
