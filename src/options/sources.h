// File: options/sources.h (internal)
// Reads option values from their sources and resolves them, from weakest to strongest: default,
// file, environment, flag.
//
//   config::OptionTable table;
//   describe(table, run);
//   std::vector<std::string> notices;
//   config::resolve(table,
//                   {config::read_file("run.yaml"),
//                    config::read_environment(table, environment, {}, notices),
//                    config::read_flags(table, words)},
//                   notices);
//   for (const config::Option& option : table.options())
//     std::cout << option.name << ": " << config::to_text(option.get()) << '\n';
//
// An unknown key is an error in every source, and names the nearest known key. Of several values
// only the strongest is checked, so a flag can correct a file. Throws ConfigError "config.*" for
// wrong keys, values and syntax, IoError "io.cannot-read" for a file. Thread rule: pure functions,
// except for the files that they read and the table that they fill.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hasten/options/environment.h"
#include "options/describe.h"

namespace hasten::config {

// One value of one source.
struct Assignment {
  std::string key;  // As written, without "--".
  Value value;
  Origin origin;
  // For a map in a file: the place of each key, such as "train.yaml:4".
  std::map<std::string, std::string> places;
};

// Parses flags: `--name value`, `--name=value`, `--name a b c` for lists, `--flag`, `--flag false`,
// `--no_flag`. '-' and '_' are equal in names. If a flag is repeated, the last one counts.
std::vector<Assignment> read_flags(const OptionTable& table, const std::vector<std::string>& words);

// True if a flag takes the word behind it as its value. A boolean flag may stand alone and takes
// only a truth value or, if its option may be unset, "none". A flag without an option (null), such
// as --no_bf16, is read like a boolean one, so that a value behind it is an error.
bool takes_word(const Option* option, const std::string& word);

// Reads a file of at most 1 MiB, JSON if its name ends in .json, otherwise YAML: one map from names
// to values. null leaves the default.
std::vector<Assignment> read_file(const std::string& path);
// The same for a text; `name` stands for it in messages.
std::vector<Assignment> read_yaml(const std::string& text, const std::string& name);
std::vector<Assignment> read_json(const std::string& text, const std::string& name);

// The files that --config_file names; without the flag, those that HASTEN_CONFIG_FILE names.
std::vector<std::string> config_files(const std::vector<Assignment>& flags,
                                      const std::vector<Assignment>& variables);

// Reads the variables HASTEN_<NAME>; an empty one counts as unset. `others` are variables with
// another purpose. An unknown variable is an error if its name is near a known one, otherwise a
// notice.
std::vector<Assignment> read_environment(const OptionTable& table, const Environment& environment,
                                         const std::vector<std::string>& others,
                                         std::vector<std::string>& notices);

// Variables HASTEN_* that are not options of any command: those of the build, the tests, the
// anatomy and the launcher.
const std::vector<std::string>& internal_variables();

// Applies the sources, weakest first, to the fields behind the table. Checks types, choices and
// limits, and sets each Option::origin.
void resolve(OptionTable& table, const std::vector<std::vector<Assignment>>& sources,
             std::vector<std::string>& notices);

// Check values that C++ code has set: the limits, and options that are set though they are not
// supported. Call both once all values are final.
void check_limits(const OptionTable& table);
void check_status(const OptionTable& table, std::vector<std::string>& notices);

}  // namespace hasten::config
