// File: hasten/program/argument_parser.h
// Reads the arguments of a program of yours as `hasten train` reads its own: from flags, files of
// --config_file and HASTEN_ variables, with help, with --print_config, and with errors that name
// the most similar option. It does what HfArgumentParser does for a Python script.
//
//   hasten::TrainingArguments arguments{.output_dir = "out", .learning_rate = 1e-3};
//   std::string data;
//   std::int64_t hidden = 64;
//   hasten::ArgumentParser parser("Trains a policy on recorded episodes.");
//   parser.add("data", data, "Read the episodes from this file.")
//       .require("data")
//       .add("hidden", hidden, "Set the size of the hidden state.")
//       .add(arguments);
//   // ./train --data logs.bin --learning_rate 3e-4 --bf16
//   if (const auto exit_code = parser.parse_or_report(argc, argv)) return *exit_code;
//
// The values that the variables have when they are added are the defaults, also those of the
// TrainingArguments. From weakest to strongest, a value comes from its default, a file, the
// environment, a flag. Flags are `--name value`, `--name=value`, `--name a b c` for lists, `--flag`
// and `--no_flag`; '-' and '_' are equal in names. A file is YAML or JSON, one map from names to
// values, so a train.yaml of `hasten train` that has only training arguments can be used as it is.
//
// Needs no torch. add() and require() throw UsageError "config.option-name". parse() throws
// ConfigError "config.*" and IoError "io.cannot-read"; the variables then have no defined values.
// Thread rule: one thread at a time. The variables must outlive the parser.
// Source: HfArgumentParser of transformers 5.23.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/options/detail/environment.h"
#include "hasten/options/detail/names.h"
#include "hasten/options/training_arguments.h"

namespace hasten {

// The result of reading a command line.
struct ParsedArguments {
  // The text that the command line asks for: the help, or the values for --print_config. Empty if
  // the program should run.
  std::string text = {};
  // Remarks about arguments that have no effect or an earlier name, one line each.
  std::vector<std::string> notices = {};
};

class HASTEN_API ArgumentParser {
 public:
  // The description is the first paragraph of the help.
  explicit ArgumentParser(std::string description = "");
  ~ArgumentParser();
  ArgumentParser(const ArgumentParser&) = delete;
  ArgumentParser& operator=(const ArgumentParser&) = delete;

  // Adds an option with the variable that receives its value. The help is a sentence about what the
  // option does. A name has small letters, digits and '_', and begins with a letter. Each function
  // returns the parser.
  ArgumentParser& add(const std::string& name, bool& variable, const std::string& help);
  ArgumentParser& add(const std::string& name, int& variable, const std::string& help);
  ArgumentParser& add(const std::string& name, std::int64_t& variable, const std::string& help);
  ArgumentParser& add(const std::string& name, double& variable, const std::string& help);
  ArgumentParser& add(const std::string& name, std::string& variable, const std::string& help);
  ArgumentParser& add(const std::string& name, std::vector<std::string>& variable,
                      const std::string& help);
  ArgumentParser& add(const std::string& name, std::optional<std::int64_t>& variable,
                      const std::string& help);
  ArgumentParser& add(const std::string& name, std::optional<double>& variable,
                      const std::string& help);
  // An enumeration has the words of its Names (hasten/options/detail/names.h).
  template <class Enum>
  requires std::is_enum_v<Enum> ArgumentParser& add(const std::string& name, Enum& variable,
                                                    const std::string& help) {
    return add_choice(
        name, {std::begin(Names<Enum>::text), std::end(Names<Enum>::text)},
        [&variable] { return std::string(name_of(variable)); },
        [&variable](const std::string& word) { variable = *from_name<Enum>(word); }, help);
  }
  // Adds all training arguments. parse() checks them and fills in derived values, as resolved()
  // does.
  ArgumentParser& add(TrainingArguments& arguments);
  // Makes parse() throw ConfigError "config.missing" if no source sets this option.
  ArgumentParser& require(const std::string& name);

  // Reads the arguments of main(), the program's name first, the files that they name, and the
  // variables.
  ParsedArguments parse(const std::vector<std::string>& arguments,
                        const config::Environment& environment);
  // Does the same with the variables of this process, for main(). Prints an error to standard error
  // and returns its exit code, or prints the requested text and returns 0. Returns nullopt if the
  // program should run. Notices go to the log sink (hasten/base/log.h). Only rank 0 of a job prints
  // texts and notices.
  [[nodiscard]] std::optional<int> parse_or_report(int argc, const char* const* argv);
  // Returns the help in lines of at most that many columns.
  std::string help(const std::string& program, int width) const;

 private:
  ArgumentParser& add_choice(const std::string& name, std::vector<std::string> words,
                             std::function<std::string()> get,
                             std::function<void(const std::string& word)> set,
                             const std::string& help);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hasten
