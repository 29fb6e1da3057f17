// File: hasten/options/train_options.h
// The options of `hasten train`: the model, the data, and all training arguments, in one flat
// namespace of flags, file keys and environment variables.
//
//   const TrainConfiguration run =
//       parse_train({argv + 2, argv + argc}, config::process_environment());    // after "hasten train"
//   if (run.action == TrainAction::run) std::printf("%g\n", run.arguments.learning_rate);
//   std::fputs(resolved_text(run, config::ValueFilter::changed).c_str(),
//              stderr);  // values with origins
//
// All values are parsed, checked and derived here, before LibTorch is loaded. Needs no torch.
// Throws ConfigError "config.*" for wrong options, IoError "io.*" for missing files. Thread rule:
// values and pure functions, except that parse_train reads the configuration files and check_files
// looks for files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/options/detail/environment.h"
#include "hasten/options/detail/lora_options.h"
#include "hasten/options/detail/names.h"
#include "hasten/options/detail/resolved_value.h"
#include "hasten/options/training_arguments.h"

namespace hasten {

enum class TrainTask {
  text_classification,
  token_classification,
  masked_lm,
  causal_lm,
  image_classification
};

struct TrainOptions {
  std::vector<std::string> config_file = {};  // YAML or JSON; later files win.
  bool print_config = false;                  // Print all values with their origins, then stop.
  bool dashboard = false;                     // Show the run on the whole terminal.

  // A folder with config.json, a config.json, a name in the Hugging Face cache
  // (hasten/machine/model_folder.h), a built-in name, or a file of torch.export (.pt2).
  std::string model = {};
  std::vector<std::string> library = {};  // Libraries with custom operators that a .pt2 file calls.
  std::string weights = {};  // A safetensors file. If empty: the model folder's, or random.
  TrainTask task = TrainTask::text_classification;
  // If unset, it follows from the labels of a text file or from the model's config. 1 is a
  // regression.
  std::optional<std::int64_t> num_labels = {};
  // hidden_dropout_prob, attention_probs_dropout_prob and classifier_dropout of config.json. If
  // unset, config.json decides; if it has no classifier_dropout, the classifier uses
  // hidden_dropout.
  std::optional<double> hidden_dropout = {}, attention_dropout = {}, classifier_dropout = {};
  bool ignore_mismatched_sizes = false;  // Initialize weights whose shape differs in the file.
  AttentionImplementation attn_implementation = AttentionImplementation::sdpa;

  // An adapter (hasten/options/detail/lora_options.h), which is trained instead of the model.
  // lora_r 0 means none.
  std::int64_t lora_r = 0;
  double lora_alpha = LoraOptions{}.alpha, lora_dropout = 0;
  std::vector<std::string> lora_target_modules = {};
  // The head of a classification is trained in any case.
  std::vector<std::string> lora_modules_to_save = {};
  LoraBias lora_bias = LoraBias::none;
  bool use_rslora = false;
  std::string lora_adapter = {};  // The folder of an adapter to start from.

  std::string data = {};       // A file or a folder of the task (docs/tasks.md), or "dummy".
  std::string eval_data = {};  // The same for evaluation.
  // The columns of a table. For token classification, resolve_train changes text and label to
  // tokens and tags unless a source sets other names.
  std::string text_column = "text";
  std::string text_pair_column = "text_pair";  // Used if the data has it.
  std::string label_column = "label";
  std::int64_t max_length = 512;  // Tokens per row; the model may limit it further.
  // Masked language modelling: the share of tokens (or words) that are masked, and whether each
  // text is a row of its own.
  double mlm_probability = 0.15;
  bool whole_word_mask = false, line_by_line = false;
  // Image classification: the column of a table with the names of the image files, and the random
  // changes that training makes (hasten/data/images.h).
  std::string image_column = "file";
  bool random_crop = false, random_flip = false;
  std::int64_t dummy_rows = 512;    // Rows of "dummy" data.
  std::int64_t dummy_length = 512;  // Tokens in each of these rows.
};

template <>
struct Names<TrainTask> {
  static constexpr std::string_view text[] = {"text-classification", "token-classification",
                                              "masked-lm", "causal-lm", "image-classification"};
};

// The value of `data` that selects random rows.
inline constexpr std::string_view kDummyData = "dummy";
// The models that --model knows by name, without a file.
HASTEN_API const std::vector<std::string>& builtin_models();
// True if the model is a file of torch.export, that is if its name ends in .pt2.
HASTEN_API bool is_exported_model(const std::string& model);

HASTEN_API void describe(config::OptionTable& table, TrainOptions& options);

// The action that a command line requests.
enum class TrainAction { run, print_config, help, help_markdown };

struct TrainConfiguration {
  TrainAction action = TrainAction::run;
  TrainOptions options = {};
  TrainingArguments arguments = {};       // Resolved.
  std::vector<std::string> notices = {};  // One line each, for standard error.
  // Options, then arguments, in the order of the help.
  std::vector<config::ResolvedValue> values = {};
};

// Parses the arguments after `train`.
HASTEN_API TrainConfiguration parse_train(const std::vector<std::string>& arguments,
                                          const config::Environment& environment);

// Throws ConfigError if an option is missing, out of range, or contradicts another one.
HASTEN_API void validate(const TrainOptions& options, const TrainingArguments& arguments);

// Returns the adapter that the options describe; its r is 0 if they describe none.
HASTEN_API LoraOptions lora_options_of(const TrainOptions& options);

// Throws IoError "io.not-found" if a file that the options name is missing, or the checkpoint from
// which a run resumes ("" and "true" name none). So this is reported before the model is built.
HASTEN_API void check_files(const TrainOptions& options,
                            const std::string& resume_from_checkpoint = "");

// Formats the values with their origins, as YAML lines.
HASTEN_API std::string resolved_text(const TrainConfiguration& configuration,
                                     config::ValueFilter filter);

// Return the texts of `hasten train --help` and of docs/reference/training_arguments.md.
HASTEN_API std::string train_help(int width);
HASTEN_API std::string train_reference();

}  // namespace hasten
