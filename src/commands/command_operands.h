// File: commands/command_operands.h (internal)
// Reads the arguments of a command that has operands and options in any order, such as
// `hasten diff RUN RUN [--NAME VALUE ...]`.
//
//   const std::vector<std::string> runs = read_operands(table, arguments);
//   if (runs.size() != 2) config::throw_missing(...);
//
// An option that takes a list takes every argument up to the next option, so operands come before
// it, or after "--". A boolean option takes only a truth value, so `--allow_pickle FILE` leaves
// FILE as an operand. Commands that start a program use config::operand_index().
//
// Needs no torch. Throws ConfigError "config.*". Thread rule: a pure function, except for the table
// that it fills.
#pragma once

#include <string>
#include <vector>

#include "options/describe.h"

namespace hasten {

// Applies the options, and returns the arguments that are neither options nor values of options,
// and all arguments after "--".
std::vector<std::string> read_operands(config::OptionTable& table,
                                       const std::vector<std::string>& arguments);

}  // namespace hasten
