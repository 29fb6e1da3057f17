// Describes the options of `hasten train`, and turns the command line, the environment and files
// into a checked configuration.
#include "hasten/options/train_options.h"

#include <algorithm>
#include <filesystem>

#include "base/file_calls.h"
#include "commands/existing_paths.h"
#include "commands/resolve.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "machine/arrow_data.h"
#include "options/help.h"
#include "options/training_rules.h"

namespace hasten {
namespace {

using config::throw_conflict;
using config::throw_missing;

// The endings of the files that a task reads.
const std::vector<std::string>& data_endings(TrainTask task) {
  static const std::vector<std::string> tables = {".tsv",     ".csv",   ".jsonl",
                                                  ".parquet", ".arrow", ".safetensors"},
                                        words = {".jsonl", ".parquet", ".arrow", ".safetensors"},
                                        texts = {".txt",     ".tsv",   ".csv",        ".jsonl",
                                                 ".parquet", ".arrow", ".safetensors"};
  switch (task) {
    case TrainTask::text_classification:
      return tables;
    case TrainTask::token_classification:
      return words;
    case TrainTask::masked_lm:
    case TrainTask::causal_lm:
      return texts;
    case TrainTask::image_classification:
      return tables;
  }
  return tables;
}

void check_data_name(const std::string& option, const std::string& path, TrainTask task) {
  if (path.empty() || path == kDummyData) return;
  const bool takes_folders = task == TrainTask::image_classification;
  std::error_code ignored;
  if (is_arrow_data(path)) return;
  if (takes_folders && std::filesystem::is_directory(path, ignored)) return;
  const std::vector<std::string>& endings = data_endings(task);
  const auto fits = [&](const std::string& ending) { return ends_with(lower(path), ending); };
  if (std::any_of(endings.begin(), endings.end(), fits)) return;
  throw ConfigError(
      "config.bad-value",
      {.what = option,
       .got = "'" + path + "'",
       .expected =
           str(takes_folders ? "a folder" : "a folder of save_to_disk", ", a file ending in ",
               join(endings, ", "), ", or ", kDummyData, ", for ", name_of(task)),
       .hint = ends_with(path, ".json") ? "name a file with one JSON object per line .jsonl" : ""});
}

void check_evaluation_has_data(const TrainOptions& options, const TrainingArguments& arguments) {
  if (!options.eval_data.empty()) return;
  // eval_strategy without data is not an error: an example in the documentation has it, and the
  // Trainer reports it and trains. do_eval follows from eval_strategy, so it counts only if it is
  // set alone.
  const bool follows = arguments.eval_strategy != IntervalStrategy::no;
  const bool saves_best = arguments.save_strategy == SaveStrategy::best;
  const char* option = arguments.load_best_model_at_end ? "load_best_model_at_end"
                       : saves_best                     ? "save_strategy best"
                       : arguments.do_eval && !follows  ? "do_eval"
                       : arguments.eval_on_start        ? "eval_on_start"
                       : arguments.do_predict           ? "do_predict"
                                                        : nullptr;
  if (option)
    throw_missing(std::string(option) + " needs rows to evaluate", "set --eval_data FILE");
}

// The head, the dropout and the attention of an exported program are fixed.
void check_exported(const TrainOptions& options, const TrainingArguments& arguments,
                    const config::OptionTable& table) {
  if (!is_exported_model(options.model)) {
    if (!options.library.empty())
      throw_conflict("library is only for an exported model: model is '" + options.model + "'",
                     "remove --library");
    return;
  }
  const auto throw_unchangeable = [&](const char* name) {
    throw_conflict(str(name, " cannot change an exported model: model is '", options.model, "'"),
                   "set it in Python before the export");
  };
  for (const char* name : {"task", "num_labels", "ignore_mismatched_sizes", "hidden_dropout",
                           "attention_dropout", "classifier_dropout", "attn_implementation"}) {
    if (!table.find(name)->is_default()) throw_unchangeable(name);
  }
  if (arguments.weights_dtype != TrainingArguments{}.weights_dtype)
    throw_unchangeable("weights_dtype");
}

void check_dummy(const TrainOptions& options, const config::OptionTable& table) {
  const bool dummy = options.data == kDummyData || options.eval_data == kDummyData;
  for (const char* name : {"dummy_rows", "dummy_length"}) {
    if (dummy || table.find(name)->is_default()) continue;
    throw_conflict(std::string(name) + " is only for dummy data: data is '" + options.data + "'",
                   "use --data dummy");
  }
  if (dummy && options.dummy_length > options.max_length) {
    throw_conflict(
        "dummy_length " + str(options.dummy_length) + " is more than max_length " +
            str(options.max_length),
        str("use --dummy_length ", options.max_length, ", or --max_length ", options.dummy_length));
  }
}

// Refuses options of an adapter if no adapter is trained, or if the given adapter has its own
// values.
void check_adapter(const TrainOptions& options, const config::OptionTable& table) {
  if (!options.lora_adapter.empty() && options.lora_r > 0)
    throw_conflict("lora_r is set, and lora_adapter has its own rank", "remove one of them");
  for (const char* name : {"lora_alpha", "lora_dropout", "lora_target_modules",
                           "lora_modules_to_save", "lora_bias", "use_rslora"}) {
    if (options.lora_r > 0 || table.find(name)->is_default()) continue;
    const bool has_folder = !options.lora_adapter.empty();
    throw_conflict(
        str(name, " is set, and ",
            has_folder ? "lora_adapter has its own" : "lora_r is 0, so there is no adapter"),
        has_folder ? str("remove --", name) : "set --lora_r, for example to 8");
  }
}

// Refuses options that have no meaning for the task.
void check_task(const TrainOptions& options, const config::OptionTable& table) {
  for (const char* name : {"mlm_probability", "whole_word_mask"}) {
    if (options.task == TrainTask::masked_lm || table.find(name)->is_default()) continue;
    throw_conflict(str(name, " is only for masked-lm: task is ", name_of(options.task)),
                   "use --task masked-lm");
  }
  const bool is_language_model =
      options.task == TrainTask::masked_lm || options.task == TrainTask::causal_lm;
  if (!is_language_model && !table.find("line_by_line")->is_default())
    throw_conflict(
        str("line_by_line is only for masked-lm and causal-lm: task is ", name_of(options.task)),
        "use --task masked-lm or causal-lm");
  for (const char* name : {"image_column", "random_crop", "random_flip"}) {
    if (options.task == TrainTask::image_classification || table.find(name)->is_default()) continue;
    throw_conflict(str(name, " is only for image-classification: task is ", name_of(options.task)),
                   "use --task image-classification");
  }
  if (is_language_model && options.num_labels)
    throw_conflict(str("num_labels is set, and task is ", name_of(options.task),
                       ", which has no labels of its own"),
                   "remove --num_labels");
  if (options.task == TrainTask::token_classification && options.num_labels == 1)
    throw_conflict("num_labels is 1, and task is token-classification, which needs two tags",
                   "a regression is --task text-classification --num_labels 1");
}

// Sets the columns of words and tags if no source names others.
std::vector<config::DerivedValue> derive_columns(const config::OptionTable& table,
                                                 TrainOptions& options) {
  std::vector<config::DerivedValue> derived;
  if (options.task != TrainTask::token_classification) return derived;
  const auto set = [&](const char* name, std::string& column, const char* value) {
    if (table.find(name)->origin.source != config::Origin::Source::default_value) return;
    column = value;
    derived.push_back({name, "task"});
  };
  set("text_column", options.text_column, "tokens");
  set("label_column", options.label_column, "tags");
  return derived;
}

// Chooses what to do if no source says so: train, evaluate if there are rows for it, and save a
// checkpoint when a signal stops the training, if it saves checkpoints at all.
std::vector<config::DerivedValue> derive_actions(const config::OptionTable& table,
                                                 const TrainOptions& options,
                                                 TrainingArguments& arguments) {
  const auto is_set = [&](const char* name) {
    return table.find(name)->origin.source != config::Origin::Source::default_value;
  };
  std::vector<config::DerivedValue> derived;
  if (!is_set("do_train") && !(is_set("do_eval") && arguments.do_eval) && !arguments.do_predict) {
    arguments.do_train = true;
    derived.push_back({"do_train", "the command"});
  }
  if (!is_set("do_eval") && !options.eval_data.empty() && !arguments.do_predict &&
      !arguments.do_eval) {
    arguments.do_eval = true;
    derived.push_back({"do_eval", "eval_data"});
  }
  // The command stops on signals, so it keeps the steps since the last checkpoint.
  if (!is_set("enable_jit_checkpoint") && arguments.do_train &&
      arguments.save_strategy != SaveStrategy::no) {
    arguments.enable_jit_checkpoint = true;
    derived.push_back({"enable_jit_checkpoint", "the command"});
  }
  return derived;
}

}  // namespace

const std::vector<std::string>& builtin_models() {
  static const std::vector<std::string> names = {
      "bert-base", "bert-large", "gpt2",       "gpt2-medium",  "gpt2-large",
      "gpt2-xl",   "llama-2-7b", "llama-3-8b", "llama-3.2-1b", "llama-3.2-3b"};
  return names;
}

bool is_exported_model(const std::string& model) { return ends_with(lower(model), ".pt2"); }

void describe(config::OptionTable& table, TrainOptions& options) {
  config::Describer d(table, options);
  d.group("Command");
  d("config_file", &TrainOptions::config_file,
    "Read options from this YAML or JSON file. If several files are named, later ones override "
    "earlier ones.");
  d("print_config", &TrainOptions::print_config,
    "Print every value and where it came from, then stop.");
  d("dashboard", &TrainOptions::dashboard,
    "Show curves, rates, memory and ranks on the whole terminal, with keys to stop, save and "
    "evaluate. Where that is not possible, the reason and progress lines are shown.");
  d.group("Model");
  d("model", &TrainOptions::model,
    "Set the model: a folder with config.json, a config.json, ORG/NAME or ORG/NAME@REVISION in the "
    "Hugging Face cache, a .pt2 file of torch.export, or a built-in name (" +
        join(builtin_models(), ", ") + ").");
  d("weights", &TrainOptions::weights,
    "Load this safetensors file. If unset, that of the model folder; a config.json or a built-in "
    "name gets random weights.");
  d("library", &TrainOptions::library,
    "Load these libraries with custom operators (TORCH_LIBRARY), which a .pt2 file may then call. "
    "Loading a library runs its code.");
  d("task", &TrainOptions::task,
    "Select the task to train for: a class or a number for each text, a tag for each word, the "
    "words behind masks, the next token, or a class for each image.");
  d("num_labels", &TrainOptions::num_labels,
    "Set the number of labels; 1 means a regression. If unset, the labels of a text file or the "
    "model's config decide.")
      .at_least(1);
  d("ignore_mismatched_sizes", &TrainOptions::ignore_mismatched_sizes,
    "Initialize weights randomly if their shape differs from that in the file, such as those of a "
    "classifier for different labels.");
  d("hidden_dropout", &TrainOptions::hidden_dropout,
    "Set the dropout of embeddings and layers, but not of attention. If unset, the model's config "
    "decides.")
      .at_least(0)
      .below(1);
  d("attention_dropout", &TrainOptions::attention_dropout,
    "Set the dropout of attention weights. If unset, the model's config decides.")
      .at_least(0)
      .below(1);
  d("classifier_dropout", &TrainOptions::classifier_dropout,
    "Set the dropout before the classifier. If unset, the model's config decides, or else "
    "hidden_dropout applies.")
      .at_least(0)
      .below(1);
  d("attn_implementation", &TrainOptions::attn_implementation,
    "Compute attention in one operator (sdpa) or step by step (eager).");
  d.group("Adapter");
  d("lora_r", &TrainOptions::lora_r,
    "Train an adapter of this rank (LoRA) instead of the model, and save it in PEFT's format; 0 "
    "means none.")
      .at_least(0);
  d("lora_alpha", &TrainOptions::lora_alpha,
    "Scale the adapter by this number, divided by lora_r.");
  d("lora_dropout", &TrainOptions::lora_dropout, "Set the dropout of the adapter's inputs.")
      .at_least(0)
      .below(1);
  d("lora_target_modules", &TrainOptions::lora_target_modules,
    "Adapt the linear layers with these paths, last parts of paths, or patterns of whole paths; "
    "all-linear means all. If unset, query and value, or what a model calls them.");
  d("lora_modules_to_save", &TrainOptions::lora_modules_to_save,
    "Train these modules whole, in addition to the adapter. The head of a classification is always "
    "trained.");
  d("lora_bias", &TrainOptions::lora_bias,
    "Select the biases that are trained: none, all, or only those of the adapted layers.");
  d("use_rslora", &TrainOptions::use_rslora,
    "Divide lora_alpha by the square root of lora_r instead of lora_r.");
  d("lora_adapter", &TrainOptions::lora_adapter,
    "Begin with the adapter in this folder, which hasten or PEFT has saved.");
  d.group("Data");
  d("data", &TrainOptions::data,
    "Read training rows from this file (" +
        join(data_endings(TrainTask::text_classification), ", ") +
        ", for masked-lm and causal-lm also .txt, for image-classification also a folder with a "
        "subfolder of images for each class); dummy generates random rows.");
  d("eval_data", &TrainOptions::eval_data,
    "Read evaluation rows from this file, in the same formats.");
  d("text_column", &TrainOptions::text_column,
    "Set the column of the text. For token-classification it is the column of the words, by "
    "default tokens.");
  d("text_pair_column", &TrainOptions::text_pair_column,
    "Set the column of the second text, which is used if the data has it.");
  d("label_column", &TrainOptions::label_column,
    "Set the column of the label. For token-classification it is the column of the tags, by "
    "default tags.");
  d("max_length", &TrainOptions::max_length,
    "Limit rows to this many tokens. The model may limit them further.")
      .at_least(1);
  d("mlm_probability", &TrainOptions::mlm_probability,
    "For masked-lm: mask this share of the tokens.")
      .above(0)
      .at_most(1);
  d("whole_word_mask", &TrainOptions::whole_word_mask,
    "For masked-lm: mask whole words instead of single tokens.");
  d("line_by_line", &TrainOptions::line_by_line,
    "For masked-lm and causal-lm: take each text as a row. If false, texts are joined and cut into "
    "rows of max_length tokens.");
  d("image_column", &TrainOptions::image_column,
    "For image-classification: set the column of the image files, which are relative to the folder "
    "of the table.");
  d("random_crop", &TrainOptions::random_crop,
    "For image-classification: train on random parts of 8 to 100 % of the image, as torchvision's "
    "RandomResizedCrop.");
  d("random_flip", &TrainOptions::random_flip,
    "For image-classification: mirror half of the training images.");
  d("dummy_rows", &TrainOptions::dummy_rows, "Generate this many rows of dummy data.").at_least(1);
  d("dummy_length", &TrainOptions::dummy_length, "Generate dummy rows of this many tokens.")
      .at_least(1);
}

void validate(const TrainOptions& options, const TrainingArguments& arguments) {
  TrainOptions copy = options;
  config::OptionTable table;
  describe(table, copy);
  config::check_limits(table);
  if (options.model.empty())
    throw_missing("--model is missing",
                  "set --model to a folder or to one of " + join(builtin_models(), ", "));
  if (arguments.do_train && options.data.empty())
    throw_missing("--data is missing", "set --data to a file, or to dummy");
  check_data_name("data", options.data, options.task);
  check_data_name("eval_data", options.eval_data, options.task);
  if (!options.weights.empty() && !ends_with(options.weights, ".safetensors")) {
    throw ConfigError("config.bad-value", {.what = "weights",
                                           .got = "'" + options.weights + "'",
                                           .expected = "a file ending in .safetensors"});
  }
  if (!arguments.do_train && !arguments.do_eval && !arguments.do_predict) {
    throw_missing("nothing to do: do_train, do_eval and do_predict are all false",
                  "remove these options to train");
  }
  check_evaluation_has_data(options, arguments);
  check_dummy(options, table);
  check_exported(options, arguments, table);
  check_task(options, table);
  check_adapter(options, table);
}

LoraOptions lora_options_of(const TrainOptions& options) {
  LoraOptions lora{.r = options.lora_r,
                   .alpha = options.lora_alpha,
                   .dropout = options.lora_dropout,
                   .target_modules = options.lora_target_modules,
                   .modules_to_save = options.lora_modules_to_save,
                   .bias = options.lora_bias,
                   .use_rslora = options.use_rslora,
                   .task_type = {},
                   .base_model = options.model};
  if (is_exported_model(options.model)) return lora;  // the names of its head are not known
  if (options.task == TrainTask::text_classification) lora.task_type = "SEQ_CLS";
  if (options.task == TrainTask::token_classification) lora.task_type = "TOKEN_CLS";
  if (options.task == TrainTask::causal_lm) lora.task_type = "CAUSAL_LM";
  if (lora.modules_to_save.empty() && options.task == TrainTask::image_classification)
    lora.modules_to_save = {"classifier"};
  return lora;
}

void check_files(const TrainOptions& options, const std::string& resume_from_checkpoint) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (is_exported_model(options.model) && !fs::is_regular_file(options.model, ignored))
    throw IoError("io.not-found", {.what = "--model " + options.model + ": no such file"});
  check_model_exists(options.model);
  std::vector<std::pair<std::string, std::string>> files = {{"weights", options.weights},
                                                            {"data", options.data},
                                                            {"eval_data", options.eval_data},
                                                            {"lora_adapter", options.lora_adapter}};
  for (const std::string& library : options.library) files.emplace_back("library", library);
  for (const auto& [name, path] : files) {
    if (path.empty() || path == kDummyData || path_exists(path)) continue;
    throw IoError("io.not-found", {.what = "--" + name + " " + path + ": no such file"});
  }
  const std::string& checkpoint = resume_from_checkpoint;
  if (checkpoint.empty() || checkpoint == "true" || path_exists(checkpoint)) return;
  throw IoError("io.not-found",
                {.what = "--resume_from_checkpoint " + checkpoint + ": no such folder",
                 .hint = "check the path, or pass true to resume from the newest checkpoint in "
                         "output_dir"});
}

TrainConfiguration parse_train(const std::vector<std::string>& arguments,
                               const config::Environment& environment) {
  TrainConfiguration run;
  if (config::asks_for_help(arguments)) {
    const bool markdown =
        std::find(arguments.begin(), arguments.end(), "markdown") != arguments.end();
    run.action = markdown ? TrainAction::help_markdown : TrainAction::help;
    return run;
  }
  config::OptionTable table;
  describe(table, run.options);
  describe(table, run.arguments);
  return resolve_train(config::read_flags(table, arguments), environment);
}

TrainConfiguration resolve_train(const std::vector<config::Assignment>& flags,
                                 const config::Environment& environment) {
  TrainConfiguration run;
  config::OptionTable table;
  describe(table, run.options);
  describe(table, run.arguments);
  const config::Sources sources = config::read_sources(table, flags, environment, run.notices);
  config::resolve(table, sources.assignments, run.notices);
  run.options.config_file = sources.files;

  config::check_contradictions(run.arguments);
  config::check_status(table, run.notices);
  auto derived = config::derive(run.arguments);
  const auto actions = derive_actions(table, run.options, run.arguments);
  derived.insert(derived.end(), actions.begin(), actions.end());
  const auto columns = derive_columns(table, run.options);
  derived.insert(derived.end(), columns.begin(), columns.end());
  for (const auto& [name, from] : derived)
    table.find(name)->origin = {config::Origin::Source::derived, from};
  validate(run.options, run.arguments);

  run.values = config::snapshot(table);
  if (run.options.print_config) run.action = TrainAction::print_config;
  return run;
}

std::string resolved_text(const TrainConfiguration& configuration, config::ValueFilter filter) {
  std::vector<config::ResolvedValue> values;
  for (const config::ResolvedValue& value : configuration.values) {
    if (value.name != "config_file" && value.name != "print_config") values.push_back(value);
  }
  return config::resolved_text(values, filter);
}

std::string train_help(int width) {
  TrainOptions options;
  TrainingArguments arguments;
  config::OptionTable table;
  describe(table, options);
  describe(table, arguments);
  return "usage: hasten train --model MODEL --data FILE [--NAME VALUE ...]\n\n"
         "Fine-tunes a model and saves it as Transformers does. Each option is a flag, a key of\n"
         "--config_file or a variable HASTEN_NAME in the environment; flags override the others.\n"
         "Defaults are in brackets.\n" +
         config::help_text(table, width);
}

std::string train_reference() {
  TrainOptions options;
  TrainingArguments arguments;
  config::OptionTable table;
  describe(table, options);
  describe(table, arguments);
  return config::reference_text(table);
}

}  // namespace hasten
