// File: hasten/config/train_options.h
// The options of `hasten train`: which model, which data, and every training argument, in one flat
// namespace of flags, file keys and environment variables.
//
//   const auto run = parse_train(argc - 2, argv + 2, config::process_environment());   // after
//   "hasten train" if (run.answer == TrainAnswer::run) { ... run.options.data,
//   run.arguments.learning_rate ... } std::fputs(resolved_text(run, config::Show::changed).c_str(),
//   stderr);    // values with their origin
//
// Everything is parsed, checked and derived here, before LibTorch is loaded. Needs no torch.
// Thread rule: values and pure functions; parse_train reads the configuration files it is told of.
// Throws ConfigError for wrong options, IoError for files that are missing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/config/attention.h"
#include "hasten/config/help.h"
#include "hasten/config/sources.h"
#include "hasten/config/training_arguments.h"

namespace hasten {

enum class TrainTask { text_classification };

struct TrainOptions {
  std::vector<std::string> config_file;  // YAML or JSON; later ones win
  bool print_config = false;             // print every value and its origin, then stop

  std::string model;    // a folder with config.json, a config.json, or a built-in name
  std::string weights;  // safetensors; unset = the model folder's, or random where there are none
  TrainTask task = TrainTask::text_classification;
  // Unset = as the labels of a text file or the model's config say; 1 is a regression.
  std::optional<std::int64_t> num_labels;
  // Unset = as the model's config says. They are hidden_dropout_prob, attention_probs_dropout_prob
  // and classifier_dropout of config.json; without the last the classifier has the first.
  std::optional<double> hidden_dropout, attention_dropout, classifier_dropout;
  bool ignore_mismatched_sizes = false;  // new weights where the file's have another shape
  AttentionImplementation attn_implementation = AttentionImplementation::sdpa;

  std::string data;       // .tsv, .csv, .jsonl, .safetensors, or "dummy"
  std::string eval_data;  // the same
  std::string text_column = "text";
  std::string text_pair_column = "text_pair";  // used where the data has it
  std::string label_column = "label";
  std::int64_t max_length = 512;    // tokens a row; the model may bound it further
  std::int64_t dummy_rows = 512;    // rows of "dummy" data
  std::int64_t dummy_length = 512;  // tokens in each of them
};

template <>
struct Names<TrainTask> {
  static constexpr std::string_view text[] = {"text-classification"};
};

inline constexpr std::string_view dummy_data = "dummy";
// Models that --model knows by name, without a file.
const std::vector<std::string>& builtin_models();

void describe(config::OptionTable& table, TrainOptions& options);

// What a command line asks for.
enum class TrainAnswer { run, print_config, help, help_markdown };

struct TrainConfiguration {
  TrainAnswer answer = TrainAnswer::run;
  TrainOptions options;
  TrainingArguments arguments;                // resolved()
  std::vector<std::string> notices;           // one line each, for standard error
  std::vector<config::ResolvedValue> values;  // of both, in the order of the help, with origins
};

// `argv` are the words after the subcommand.
TrainConfiguration parse_train(int argc, const char* const* argv,
                               const config::Environment& environment);

// Options that are each in range and do not go together, or are missing.
void validate(const TrainOptions& options, const TrainingArguments& arguments);

// Throws where a file that the options name does not exist, so that this is told before the model
// is built.
void check_files(const TrainOptions& options);

// The values with their origins, as YAML lines.
std::string resolved_text(const TrainConfiguration& configuration, config::Show show);

// `hasten train --help` and the page docs/reference/training_arguments.md.
std::string train_help(int width);
std::string train_reference();

}  // namespace hasten
