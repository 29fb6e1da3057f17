// File: commands/leading_operands.h (internal)
// Reads the arguments of a command whose operands come before its options, such as
// `hasten diff RUN RUN [--NAME VALUE ...]`.
//
//   const std::vector<std::string> runs = read_operands(table, arguments);
//   if (runs.size() != 2) config::throw_missing(...);
//
// An option of these commands may take several arguments, so an operand after an option could not
// be distinguished from a value. Commands whose operands may come later use
// config::operand_index().
//
// Needs no torch. Throws ConfigError "config.*". Thread rule: a pure function, except for the table
// that it fills.
#pragma once

#include <string>
#include <vector>

#include "options/describe.h"

namespace hasten {

// Applies the options, and returns the arguments before the first one.
std::vector<std::string> read_operands(config::OptionTable& table,
                                       const std::vector<std::string>& arguments);

}  // namespace hasten
