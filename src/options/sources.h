// File: options/sources.h (internal)
// Reads option values from their sources and resolves them, from weakest to strongest: default,
// file, environment, flag.
//
//   config::OptionTable table;
//   describe(table, run);
//   std::vector<std::string> notices;
//   config::resolve(table,
//                   {config::read_option_file("run.yaml"),
//                    config::read_environment(table, environment, {}, notices),
//                    config::read_flags(table, arguments)},
//                   notices);
//   for (const config::Option& option : table.options())
//     std::cout << option.name << ": " << config::to_text(option.get()) << '\n';
//
// An unknown key is an error in every source. The error names the nearest known key. If several
// sources set an option, only the strongest value is checked, so a flag can correct a file. Throws
// ConfigError "config.*" for wrong keys, values and syntax, and IoError "io.cannot-read" for a file
// that cannot be read. Thread rule: pure functions, except for the files that they read and the
// table that they fill.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/internal_api.h"
#include "hasten/base/error.h"
#include "hasten/options/detail/environment.h"
#include "options/describe.h"

namespace hasten::config {

// One value of one source.
struct Assignment {
  std::string key;  // The key as written, without "--".
  Value value;
  Origin origin;
  // The place of each key, such as "train.yaml:4", if the value is a map in a file.
  std::map<std::string, std::string> places;
};

// Returns the assignment of a flag, for a command that passes its options to another program.
Assignment as_flag(const std::string& name, Value value);

// Parses flags: `--name value`, `--name=value`, `--name a b c` for lists, `--flag`, `--flag false`,
// `--no_flag`. '-' and '_' are equal in names. If a flag is repeated, the last one counts.
std::vector<Assignment> read_flags(const OptionTable& table,
                                   const std::vector<std::string>& arguments);

// True if --help or -h is among the arguments. It takes precedence over everything else on a line,
// even over errors.
bool asks_for_help(const std::vector<std::string>& arguments);

// The position of the first operand, such as a program: the first argument that is neither an
// option nor an option's value, or the argument after "--". arguments.size() if there is none.
std::size_t operand_index(const OptionTable& table, const std::vector<std::string>& arguments);

// Returns the text of a configuration file. Throws ConfigError "config.file-too-large" if it
// exceeds 128 KiB, and IoError "io.cannot-read".
HASTEN_INTERNAL_API std::string read_configuration(const std::string& path);
// Reads a file of at most 128 KiB, as JSON if its name ends in .json and otherwise as YAML. It must
// hold one map from names to values. A null keeps the default.
HASTEN_INTERNAL_API std::vector<Assignment> read_option_file(const std::string& path);
// Read a text instead of a file. Messages call it `name`.
std::vector<Assignment> read_yaml(const std::string& text, const std::string& name);
std::vector<Assignment> read_json(const std::string& text, const std::string& name);

// Returns the files that --config_file names or, without the flag, the files that
// HASTEN_CONFIG_FILE names.
std::vector<std::string> config_files(const std::vector<Assignment>& flags,
                                      const std::vector<Assignment>& variables);

// Reads the variables HASTEN_<NAME>. An empty variable counts as unset. `others` are variables with
// a different purpose. An unknown variable is an error if its name is similar to a known one;
// otherwise it gives a notice.
std::vector<Assignment> read_environment(const OptionTable& table, const Environment& environment,
                                         const std::vector<std::string>& others,
                                         std::vector<std::string>& notices);

// Returns the variables HASTEN_* that are not options of any command. The build, the tests, the
// anatomy and the launcher use them.
const std::vector<std::string>& internal_variables();

// --- Errors that all sources share. A flag, a file and a variable report the same problem in the
// same words.

// The key as its source writes it: "--seed", "HASTEN_SEED", "seed".
std::string key_as_written(const Origin& origin, const std::string& key);
// The key with its place: "--seed", "HASTEN_SEED", "train.yaml:3: seed".
std::string key_with_location(const Origin& origin, const std::string& key);

// Returns the known name that is closest to a key, or hasten's name for a name from another program
// ("lr", "epochs"). Returns nullopt if no name is close.
std::optional<std::string> suggestion(const OptionTable& table, const std::string& key);

[[noreturn]] void throw_unknown(const OptionTable& table, const std::string& key,
                                const Origin& origin);
// The errors for contradictory values and for a missing value. They are inline so that the fuzzers
// do not have to link the option engine.
[[noreturn]] inline void throw_conflict(const std::string& what, const std::string& hint) {
  throw ConfigError("config.contradiction", {.what = what, .hint = hint});
}
[[noreturn]] inline void throw_missing(const std::string& what, const std::string& hint) {
  throw ConfigError("config.missing", {.what = what, .hint = hint});
}
[[noreturn]] void throw_not_supported(const std::string& what, const std::string& hint);

// --- Resolution

// The assignments of all sources of a command line, weakest first, and the files among the sources.
struct Sources {
  std::vector<std::string> files;
  std::vector<std::vector<Assignment>> assignments;
};
// Reads the files that config_file names and the environment, and adds the flags. A file describes
// a run, not a call of the command, so it must not hold config_file or print_config.
Sources read_sources(const OptionTable& table, const std::vector<Assignment>& flags,
                     const Environment& environment, std::vector<std::string>& notices);

// Applies the sources, weakest first, to the fields behind the table. Checks types, choices and
// limits, and sets each Option::origin.
void resolve(OptionTable& table, const std::vector<std::vector<Assignment>>& sources,
             std::vector<std::string>& notices);

// Returns the assignments to options of the table, for a command line with the options of several
// tables.
std::vector<Assignment> flags_of(const OptionTable& table, const std::vector<Assignment>& flags);

// Applies the flags of a command that has no other source, and refuses unsupported ones.
void apply_flags(OptionTable& table, const std::vector<Assignment>& flags);

// These two functions check values that C++ code has set. The first checks the limits; the second
// refuses options that are set but not supported. Call both when all values are final.
void check_limits(const OptionTable& table);
void check_status(const OptionTable& table, std::vector<std::string>& notices);

}  // namespace hasten::config
