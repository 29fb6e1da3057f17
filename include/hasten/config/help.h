// File: hasten/config/help.h
// Formats a description for people: the help of a command, the reference page, the resolved values.
//
//   config::OptionTable table;
//   describe(table, run);
//   std::fputs(config::help_text(table, config::terminal_width()).c_str(), stdout);
//   std::fputs(config::resolved_text(config::snapshot(table), config::Show::changed).c_str(),
//              stderr);
//
// Widths are in columns. Thread rule: pure functions, except that terminal_width() asks the
// terminal. Only lack of memory makes them throw.
#pragma once

#include <string>
#include <vector>

#include "hasten/config/describe.h"

namespace hasten::config {

// Formats the options by group, each with its default. Options that are not supported are listed by
// name at the end.
std::string help_text(const OptionTable& table, int width);
// The width of the terminal at standard output, at least 60 columns; 100 if it is no terminal.
int terminal_width();

// Formats docs/reference/training_arguments.md: the options as Markdown tables, with the
// environment's names and the reasons for unsupported options.
std::string reference_text(const OptionTable& table);

// The value of one option, and where it came from.
struct ResolvedValue {
  std::string name;
  Value value;
  Origin origin;
  Value default_value;
};
// The supported options that have a field, in the order of the table.
std::vector<ResolvedValue> snapshot(const OptionTable& table);

// All values, or only those that differ from their defaults.
enum class Show { changed, all };
// Formats one line per value, `name: value  # origin`. The text is valid YAML, which read_yaml()
// reads back to the same values.
std::string resolved_text(const std::vector<ResolvedValue>& values, Show show);

}  // namespace hasten::config
