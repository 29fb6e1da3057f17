// File: hasten/config/sources.h
// Reads option values from the places they come from, and settles who wins: default < file <
// environment < flag.
//
//   config::OptionTable table;  describe(table, run);
//   std::vector<std::string> notices;
//   config::resolve(table, {config::read_file("run.yaml"), config::read_environment(table,
//   environment, {}, notices),
//                           config::read_flags(table, words)}, notices);
//   for (const auto& option : table.options()) ... option.get(), option.origin ...
//
// Unknown keys are errors that name the nearest known one, wherever they stand. Only the winning
// value of an option is looked at, so a flag can mend a file. Thread rule: pure functions but for
// the file they read and the table they fill. Throws ConfigError for what is written wrong, IoError
// for a file that cannot be read.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "hasten/config/describe.h"

namespace hasten::config {

using Environment = std::map<std::string, std::string>;

struct Assignment {
  std::string key;  // as written, without "--"
  Value value;
  Origin origin;
  std::map<std::string, std::string> places;  // of a map's keys in a file: "train.yaml:4"
};

// Flags: `--name value`, `--name=value`, `--name a b c` for lists, `--flag`, `--flag false`,
// `--no_flag`; '-' and '_' are one. A flag given twice counts once, the last time.
std::vector<Assignment> read_flags(const OptionTable& table, std::span<const char* const> words);

// A YAML file, or JSON where the name ends in .json: one flat map from names to values; null leaves
// the default. Files beyond 1 MiB are refused.
std::vector<Assignment> read_file(const std::string& path);
// The same from a text; `name` stands in messages.
std::vector<Assignment> read_yaml(const std::string& text, const std::string& name);
std::vector<Assignment> read_json(const std::string& text, const std::string& name);

// Variables HASTEN_<NAME>; empty ones count as unset. `others` are variables with another purpose.
// One that is near a known name is an error, any other a notice.
std::vector<Assignment> read_environment(const OptionTable& table, const Environment& environment,
                                         const std::vector<std::string>& others,
                                         std::vector<std::string>& notices);
// The HASTEN_* part of this process's environment.
Environment process_environment();
// All of it, for variables of launchers and schedulers.
Environment whole_environment();

// Applies the sources, weakest first, to the fields behind the table, and checks types, choices and
// limits.
void resolve(OptionTable& table, const std::vector<std::vector<Assignment>>& sources,
             std::vector<std::string>& notices);

// The limits of values that C++ set, and what is set though it is not supported: call both once all
// values stand.
void check_limits(const OptionTable& table);
void check_status(const OptionTable& table, std::vector<std::string>& notices);

}  // namespace hasten::config
