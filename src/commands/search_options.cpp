#include "commands/search_options.h"

#include <algorithm>
#include <array>

#include "commands/command_operands.h"
#include "commands/resolve.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/options/train_options.h"
#include "options/help.h"
#include "options/sources.h"
#include "options/training_rules.h"
#include "options/value.h"

namespace hasten {
namespace {

// The options that the search sets for each run, and those that have no meaning for many runs.
constexpr std::array<std::string_view, 4> kSearchControlledOptions = {
    "output_dir", "logging_dir", "run_name", "resume_from_checkpoint"};
constexpr std::array<std::string_view, 3> kSingleRunOptions = {"config_file", "print_config",
                                                               "report_to"};

template <class Names>
bool has_name(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void describe_search(config::OptionTable& table, SearchCommand& command) {
  config::Describer d(table, command);
  d.group("Search");
  d("output_dir", &SearchCommand::output_dir,
    "Keep the journal, the results and the folder run-N of each trial here. A search that finds "
    "its journal there continues.");
  d("method", &SearchCommand::method, "Propose random values, or all combinations.");
  d("n_trials", &SearchCommand::n_trials,
    "Run this many trials. If unset, 20 random ones or the whole grid.")
      .at_least(1)
      .at_most(100'000);
  d("metric", &SearchCommand::metric,
    "Compare the trials by their last value of this metric. If unset, metric_for_best_model or "
    "else eval_loss.");
  d("direction", &SearchCommand::direction,
    "Search for the smallest or the largest value. If unset, the smallest of a metric that ends in "
    "loss, and otherwise the largest.");
  d("seed", &SearchCommand::seed, "Set the seed of the random values.").at_least(0);
  d("n_jobs", &SearchCommand::n_jobs,
    "Run this many trials at once. Without OMP_NUM_THREADS they divide the cores.")
      .at_least(1);
  d.group("Pruning");
  d("pruner", &SearchCommand::pruner,
    "Stop a trial whose best value is worse than the median of the complete trials at the same "
    "step (median), or none.");
  d("n_startup_trials", &SearchCommand::n_startup_trials,
    "Complete this many trials before any is stopped.")
      .at_least(0);
  d("n_warmup_steps", &SearchCommand::n_warmup_steps, "Stop no trial before this optimizer step.")
      .at_least(0);
  d("interval_steps", &SearchCommand::interval_steps,
    "Decide at the first evaluation in each interval of this many steps.")
      .at_least(1);
  d("stop_timeout", &SearchCommand::stop_timeout,
    "Kill a run that has not ended this many seconds after it was asked to stop.")
      .above(0);
  d.group("Output");
  d("json", &SearchCommand::json, "Print the results as JSON instead of a table.");
}

// The place of a parameter in the space file, as the origin of its option.
config::Origin origin_in_space(const SearchDimension& dimension) {
  return {config::Origin::Source::file, dimension.place};
}

config::OptionTable train_table(TrainOptions& options, TrainingArguments& arguments) {
  config::OptionTable table;
  describe(table, options);
  describe(table, arguments);
  return table;
}

// Checks the names of the space and of the arguments.
void check_names(const config::OptionTable& table, const SearchSpace& space,
                 const std::vector<config::Assignment>& flags) {
  for (const config::Assignment& flag : flags) {
    const config::Option* option = table.find(flag.key);
    if (!option ||
        (!has_name(kSearchControlledOptions, option->name) && option->name != "print_config"))
      continue;
    config::throw_conflict(
        "--" + option->name + " cannot be an argument of all runs of a search",
        option->name == "output_dir" ? "pass --output_dir before -- train" : "remove it");
  }
  for (const SearchDimension& dimension : space.dimensions()) {
    const config::Origin origin = origin_in_space(dimension);
    const config::Option* option = table.find(dimension.name);
    if (!option) config::throw_unknown(table, dimension.name, origin);
    const std::string key = config::key_with_location(origin, dimension.name);
    if (has_name(kSearchControlledOptions, option->name) ||
        has_name(kSingleRunOptions, option->name))
      config::throw_conflict(key + " cannot vary in a search", "remove it from the space");
    for (const config::Assignment& flag : flags) {
      if (table.find(flag.key) == option)
        config::throw_conflict(key + " and --" + flag.key + " set the same option",
                               "keep one of them");
    }
  }
}

// Returns the flags of a run. The origin of each parameter is its place in the space file.
std::vector<config::Assignment> flags_of_run(const SearchSpace& space,
                                             const std::vector<config::Assignment>& flags,
                                             const TrialParameters& parameters) {
  std::vector<config::Assignment> all = flags;
  for (std::size_t at = 0; at < parameters.size(); ++at) {
    const auto& [name, value] = parameters[at];
    all.push_back({.key = name,
                   .value = config::to_text(value),
                   .origin = origin_in_space(space.dimensions()[at])});
  }
  return all;
}

std::string metric_of(const SearchCommand& command, const TrainingArguments& arguments) {
  const std::string metric =
      command.metric.empty() ? arguments.metric_for_best_model : command.metric;
  return config::eval_metric_name(metric.empty() ? "loss" : metric);
}

void check_evaluates(const TrainConfiguration& run, const std::string& metric) {
  if (!run.arguments.do_train)
    config::throw_conflict("a search trains, but do_train is false", "remove --do_train false");
  if (run.options.eval_data.empty())
    config::throw_missing("a search compares its runs by " + metric +
                              ", which needs rows to "
                              "evaluate",
                          "set --eval_data FILE after -- train");
  if (!run.arguments.do_eval && run.arguments.eval_strategy == IntervalStrategy::no)
    config::throw_conflict("a search compares its runs by " + metric + ", but do_eval is false",
                           "remove --do_eval false");
}

std::vector<std::string> trackers_of_runs(std::vector<std::string> report_to) {
  std::erase(report_to, "none");
  if (!has_name(report_to, "jsonl") && !has_name(report_to, "all")) report_to.push_back("jsonl");
  return report_to;
}

SearchOptions options_of_search(const SearchCommand& command, const std::string& metric) {
  const SearchDirection usual =
      ends_with(metric, "loss") ? SearchDirection::minimize : SearchDirection::maximize;
  SearchOptions options{.folder = command.output_dir,
                        .n_trials = command.n_trials,
                        .method = command.method,
                        .direction = command.direction.value_or(usual),
                        .seed = static_cast<std::uint64_t>(command.seed),
                        .pruner = std::nullopt,
                        .n_jobs = command.n_jobs};
  if (command.pruner == SearchPruner::median) {
    options.pruner = MedianPruner{.n_startup_trials = command.n_startup_trials,
                                  .n_warmup_steps = command.n_warmup_steps,
                                  .interval_steps = command.interval_steps};
  }
  options.setting = str("metric ", metric, ", train ", join(command.arguments, " "));
  return options;
}

// Returns the lowest and the highest value of a range, or all choices.
std::vector<config::Value> outer_values(const SearchDimension& dimension) {
  if (dimension.kind == DimensionKind::choice) return dimension.choices;
  const bool is_whole =
      dimension.kind == DimensionKind::integer || dimension.kind == DimensionKind::log_integer;
  // str() writes the double 100000 as 1e+05, which an integer option refuses. The bounds are at
  // most 2^53.
  const auto text = [&](double bound) {
    return is_whole ? str(static_cast<std::int64_t>(bound)) : str(bound);
  };
  return {text(dimension.low), text(dimension.high)};
}

// Checks each parameter alone, including choices that no trial gets.
void check_values(const SearchSpace& space) {
  for (const SearchDimension& dimension : space.dimensions()) {
    for (const config::Value& value : outer_values(dimension)) {
      TrainOptions options;
      TrainingArguments arguments;
      config::OptionTable table = train_table(options, arguments);
      config::apply_flags(
          table, {{.key = dimension.name, .value = value, .origin = origin_in_space(dimension)}});
    }
  }
}

// Resolves all runs, so that an impossible combination is reported before any run starts.
void check_runs(const SearchPlan& plan, const std::vector<config::Assignment>& flags,
                const config::Environment& environment) {
  for (std::size_t trial = 0; trial < plan.proposed.size(); ++trial) {
    const TrialParameters& parameters = plan.proposed[trial];
    try {
      resolve_train(flags_of_run(plan.space, flags, parameters), environment);
    } catch (const ConfigError& error) {
      if (trial == 0) throw;  // most likely all runs have this error, whatever their parameters
      ErrorText text = error.text();
      text.what =
          str("trial ", trial, " (", join(flags_of_parameters(parameters), " "), "): ", text.what);
      throw ConfigError(error.code(), text);
    }
  }
}

// Refuses options of the search among the arguments of the runs, unless `hasten train` also has an
// option of the name.
void check_no_option_of_search(const config::OptionTable& train,
                               const std::vector<std::string>& arguments) {
  SearchCommand unused;
  config::OptionTable search;
  describe_search(search, unused);
  for (const std::string& argument : arguments) {
    if (!starts_with(argument, "--")) continue;
    const std::string name = argument.substr(2, argument.find('=') - 2);
    if (train.find(name) != nullptr || search.find(name) == nullptr) continue;
    throw ConfigError("config.unknown-key",
                      {.what = "unknown argument --" + name + " of hasten train",
                       .hint = "options of the search come before --: hasten search SPACE.yaml --" +
                               name + " ... -- train ARGUMENT..."});
  }
}

}  // namespace

SearchCommand parse_search(const std::vector<std::string>& arguments) {
  SearchCommand command;
  const auto separator = std::find(arguments.begin(), arguments.end(), "--");
  const std::vector<std::string> own(arguments.begin(), separator);
  command.help = config::asks_for_help(own);
  if (command.help) return command;
  config::OptionTable table;
  describe_search(table, command);
  const std::vector<std::string> files = read_operands(table, own);
  const char* usage = "hasten search SPACE.yaml [--NAME VALUE ...] -- train ARGUMENT...";
  if (files.empty()) config::throw_missing("no space file is named", usage);
  if (files.size() > 1)
    config::throw_conflict("two space files: " + files[0] + " and " + files[1], usage);
  command.space = files[0];
  if (separator == arguments.end() || separator + 1 == arguments.end())
    config::throw_missing("the command of the runs is missing", usage);
  if (*(separator + 1) != "train") {
    throw ConfigError("config.bad-value", {.what = "the command of the runs",
                                           .got = "'" + *(separator + 1) + "'",
                                           .expected = "train",
                                           .hint = usage});
  }
  command.arguments.assign(separator + 2, arguments.end());
  return command;
}

std::string search_help(int width) {
  SearchCommand command;
  config::OptionTable table;
  describe_search(table, command);
  return "usage: hasten search SPACE.yaml [--NAME VALUE ...] -- train ARGUMENT...\n\n"
         "Searches hyper-parameters: runs `hasten train` with the ARGUMENTs and with proposed\n"
         "values, compares the runs by their evaluations, stops unpromising runs early, and\n"
         "prints a table. An interrupted search continues when the same command is given again.\n"
         "The file SPACE.yaml has a line for each training argument that varies:\n\n"
         "  learning_rate: {log_uniform: [1e-5, 1e-3]}\n"
         "  warmup_ratio: {uniform: [0, 0.2], step: 0.05}\n"
         "  num_train_epochs: {int: [1, 4]}\n"
         "  gradient_accumulation_steps: {log_int: [1, 16]}\n"
         "  per_device_train_batch_size: {choice: [8, 16, 32]}\n" +
         config::help_text(table, width);
}

SearchPlan plan_search(const SearchCommand& command, const config::Environment& environment) {
  SearchPlan plan{.space = read_search_space(command.space),
                  .arguments = command.arguments,
                  .output_dir = command.output_dir};
  TrainOptions options;
  TrainingArguments arguments;
  const config::OptionTable table = train_table(options, arguments);
  if (config::asks_for_help(command.arguments))
    config::throw_conflict("--help cannot be an argument of all runs of a search",
                           "use hasten train --help");
  check_no_option_of_search(table, command.arguments);
  const auto flags = config::read_flags(table, command.arguments);
  check_names(table, plan.space, flags);
  check_values(plan.space);
  // The proposed values do not depend on the metric or its direction, so no metric is needed here.
  plan.options = options_of_search(command, "");
  plan.proposed = proposed_parameters(plan.space, plan.options);
  check_runs(plan, flags, environment);
  const TrainConfiguration first =
      resolve_train(flags_of_run(plan.space, flags, plan.proposed[0]), environment);
  plan.metric = metric_of(command, first.arguments);
  check_evaluates(first, plan.metric);
  check_files(first.options);
  plan.options = options_of_search(command, plan.metric);
  plan.report_to = trackers_of_runs(first.arguments.report_to);
  plan.notices = first.notices;
  if (plan.options.pruner && first.arguments.eval_strategy == IntervalStrategy::no) {
    plan.notices.push_back(
        "no run can be stopped early, because eval_strategy is no: set --eval_strategy");
  }
  return plan;
}

std::filesystem::path run_folder(const SearchPlan& plan, std::int64_t trial) {
  return plan.output_dir / str("run-", trial);
}

std::vector<std::string> flags_of_parameters(const TrialParameters& parameters) {
  std::vector<std::string> flags;
  for (const auto& [name, value] : parameters)
    flags.push_back("--" + name + "=" + config::to_argument(value));
  return flags;
}

std::vector<std::string> run_arguments(const SearchPlan& plan, std::int64_t trial,
                                       const TrialParameters& parameters) {
  // No trial continues from a checkpoint, so a trial that is stopped early does not save one.
  std::vector<std::string> arguments = {"train", "--enable_jit_checkpoint=false"};
  arguments.insert(arguments.end(), plan.arguments.begin(), plan.arguments.end());
  for (std::string& flag : flags_of_parameters(parameters)) arguments.push_back(std::move(flag));
  arguments.push_back("--output_dir=" + run_folder(plan, trial).string());
  arguments.push_back("--logging_dir=" + plan.output_dir.string());
  arguments.push_back(str("--run_name=run-", trial));
  arguments.push_back("--report_to=" + join(plan.report_to, ","));
  return arguments;
}

}  // namespace hasten
