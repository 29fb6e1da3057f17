// Turns the command line, the environment and files into a checked configuration.
#include <algorithm>
#include <optional>

#include "commands/resolve_train.h"
#include "hasten/base/error.h"
#include "hasten/options/train_options.h"
#include "options/derive.h"
#include "options/help.h"
#include "options/sources.h"

namespace hasten {
namespace {

// Chooses what to do if no source says so: train, and evaluate if there are rows for it.
std::vector<config::Derived> derive_actions(const config::OptionTable& table,
                                            const TrainOptions& options,
                                            TrainingArguments& arguments) {
  const auto is_set = [&](const char* name) {
    return table.find(name)->origin.source != config::Origin::Source::default_value;
  };
  std::vector<config::Derived> derived;
  if (!is_set("do_train") && !(is_set("do_eval") && arguments.do_eval) && !arguments.do_predict) {
    arguments.do_train = true;
    derived.push_back({"do_train", "the command"});
  }
  if (!is_set("do_eval") && !options.eval_data.empty() && !arguments.do_predict &&
      !arguments.do_eval) {
    arguments.do_eval = true;
    derived.push_back({"do_eval", "eval_data"});
  }
  return derived;
}

bool has_word(const std::vector<std::string>& words, std::string_view what) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return word == what; });
}

// --help takes precedence over everything else on the line, even over errors.
std::optional<TrainAnswer> requested_help(const std::vector<std::string>& words) {
  if (!has_word(words, "--help") && !has_word(words, "-h")) return std::nullopt;
  return has_word(words, "markdown") ? TrainAnswer::help_markdown : TrainAnswer::help;
}

// A file describes a run, not a call of the command, so it must not hold config_file or
// print_config.
void check_allowed_in_file(const std::vector<config::Assignment>& assignments) {
  for (const config::Assignment& assignment : assignments) {
    if (assignment.key != "config_file" && assignment.key != "print_config") continue;
    throw ConfigError("config.unknown-key",
                      {.what = assignment.origin.where + ": " + assignment.key +
                               " cannot be set in a configuration file",
                       .hint = "pass it as --" + assignment.key});
  }
}

}  // namespace

TrainConfiguration parse_train(const std::vector<std::string>& words,
                               const config::Environment& environment) {
  if (const auto help = requested_help(words)) {
    TrainConfiguration run;
    run.answer = *help;
    return run;
  }
  TrainConfiguration described;
  config::OptionTable table;
  describe(table, described.options);
  describe(table, described.arguments);
  return resolve_train(config::read_flags(table, words), environment);
}

TrainConfiguration resolve_train(const std::vector<config::Assignment>& flags,
                                 const config::Environment& environment) {
  TrainConfiguration run;
  config::OptionTable table;
  describe(table, run.options);
  describe(table, run.arguments);
  const auto variables =
      config::read_environment(table, environment, config::internal_variables(), run.notices);
  const auto files = config::config_files(flags, variables);
  std::vector<std::vector<config::Assignment>> sources;
  for (const std::string& file : files) {
    sources.push_back(config::read_file(file));
    check_allowed_in_file(sources.back());
  }
  sources.push_back(variables);
  sources.push_back(flags);
  config::resolve(table, sources, run.notices);
  run.options.config_file = files;

  config::check_contradictions(run.arguments);
  config::check_status(table, run.notices);
  auto derived = config::derive(run.arguments);
  const auto actions = derive_actions(table, run.options, run.arguments);
  derived.insert(derived.end(), actions.begin(), actions.end());
  for (const auto& [name, from] : derived)
    table.find(name)->origin = {config::Origin::Source::derived, from};
  validate(run.options, run.arguments);

  run.values = config::snapshot(table);
  if (run.options.print_config) run.answer = TrainAnswer::print_config;
  return run;
}

}  // namespace hasten
