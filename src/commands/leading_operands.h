// File: commands/leading_operands.h (internal)
// Reads the words of a command whose operands come before its options, such as
// `hasten diff RUN RUN [--NAME VALUE ...]`.
//
//   const std::vector<std::string> runs = read_operands(table, words);
//   if (runs.size() != 2) config::throw_missing(...);
//
// An option of these commands may take several words, so an operand after an option could not be
// told from a value. Commands whose operands may come later use config::operand_index().
//
// Needs no torch. Throws ConfigError "config.*". Thread rule: a pure function, except for the table
// that it fills.
#pragma once

#include <string>
#include <vector>

#include "options/describe.h"

namespace hasten {

// Applies the options, and returns the words before the first one.
std::vector<std::string> read_operands(config::OptionTable& table,
                                       const std::vector<std::string>& words);

}  // namespace hasten
