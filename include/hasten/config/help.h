// File: hasten/config/help.h
// Shows a description to people: the help of a command, the reference page, the resolved values.
//
//   std::fputs(config::help_text(table, config::terminal_width()).c_str(), stdout);
//   std::fputs(config::resolved_text(values, config::Show::changed).c_str(), stderr);
//
// Widths are in columns. Thread rule: pure functions, but terminal_width() asks the terminal.
// Nothing throws but for lack of memory.
#pragma once

#include <string>
#include <vector>

#include "hasten/config/describe.h"

namespace hasten::config {

// The options by group, each with its default; what is not supported is listed by name at the end.
std::string help_text(const OptionTable& table, int width);
// The columns of the terminal behind standard output, at least 60; 100 where it is none.
int terminal_width();

// The same as Markdown tables, with the environment's names and the reasons for what is not
// supported.
std::string reference_text(const OptionTable& table);

// A snapshot of one option: what it is and where that came from.
struct ResolvedValue {
  std::string name;
  Value value;
  Origin origin;
  Value default_value;
};
std::vector<ResolvedValue> snapshot(const OptionTable& table);

enum class Show { changed, all };
// One line a value, `name: value  # origin`: valid YAML, which read_yaml() reads back to the same
// values.
std::string resolved_text(const std::vector<ResolvedValue>& values, Show show);

}  // namespace hasten::config
