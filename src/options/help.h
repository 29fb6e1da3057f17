// File: options/help.h (internal)
// Formats a description for people, as the help of a command and as the reference page, and lists
// its values.
//
//   config::OptionTable table;
//   describe(table, run);
//   std::fputs(config::help_text(table, config::terminal_width()).c_str(), stdout);
//   const std::vector<config::ResolvedValue> values = config::snapshot(table);
//
// Widths are in columns. Thread rule: pure functions, except that terminal_width() asks the
// terminal. They throw only if memory runs out.
#pragma once

#include <string>
#include <vector>

#include "base/internal_api.h"
#include "options/describe.h"

namespace hasten::config {

// Formats the options by group, each with its default. Options that are not supported are listed by
// name at the end.
std::string help_text(const OptionTable& table, int width);
// The width of the terminal at standard output, at least 60 columns; 100 if it is not a terminal.
HASTEN_INTERNAL_API int terminal_width();

// Formats docs/reference/training_arguments.md: the options as Markdown tables, with the
// environment's names and the reasons for unsupported options.
std::string reference_text(const OptionTable& table);

// The supported options that have a field, in the order of the table.
std::vector<ResolvedValue> snapshot(const OptionTable& table);

}  // namespace hasten::config
