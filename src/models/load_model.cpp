// Chooses the class of a model by its configuration and its task, and loads it.
#include <filesystem>
#include <utility>
#include <variant>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/weights.h"
#include "hasten/machine/model_folder.h"
#include "hasten/models/bert.h"
#include "hasten/models/gpt2.h"
#include "hasten/models/llama.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/models/resnet.h"
#include "hasten/models/vit.h"
#include "models/config_reader.h"

namespace hasten {
namespace {

using AnyConfig = std::variant<BertConfig, GPT2Config, LlamaConfig, ViTConfig, ResNetConfig>;

AnyConfig config_from(const std::filesystem::path& file) {
  const std::string text = read_file(file), where = file.string();
  const std::string type = model_type_in(text, where);
  if (type == "bert") return BertConfig::from_json(text, where);
  if (type == "gpt2") return GPT2Config::from_json(text, where);
  if (type == "llama") return LlamaConfig::from_json(text, where);
  if (type == "vit") return ViTConfig::from_json(text, where);
  if (type == "resnet") return ResNetConfig::from_json(text, where);
  throw DataError("models.unknown-type", {.what = where + ", key model_type",
                                          .got = type.empty() ? "none" : type,
                                          .expected = "bert, gpt2, llama, vit or resnet"});
}

struct TaskInfo {
  const char *name, *models;  // the types of models that have a head for it
};

TaskInfo task_info(Task task) {
  switch (task) {
    case Task::base:
      return {"base", "bert, gpt2 or llama"};
    case Task::text_classification:
      return {"text-classification", "bert, gpt2 or llama"};
    case Task::token_classification:
      return {"token-classification", "bert"};
    case Task::masked_lm:
      return {"masked-lm", "bert"};
    case Task::causal_lm:
      return {"causal-lm", "gpt2 or llama"};
    case Task::image_classification:
      return {"image-classification", "vit or resnet"};
  }
  throw UsageError("models.unknown-task", {.what = "a task that is not in the list"});
}

[[noreturn]] void throw_task(Task task, const char* type) {
  const TaskInfo info = task_info(task);
  throw DataError("models.task", {.what = str("the task ", info.name),
                                  .got = str("a model of type ", type),
                                  .expected = str("a model of type ", info.models)});
}

std::shared_ptr<PreTrainedModel> make_model(Task task, BertConfig config) {
  switch (task) {
    case Task::base:
      return std::make_shared<BertModel>(std::move(config));
    case Task::text_classification:
      return std::make_shared<BertForSequenceClassification>(std::move(config));
    case Task::token_classification:
      return std::make_shared<BertForTokenClassification>(std::move(config));
    case Task::masked_lm:
      return std::make_shared<BertForMaskedLM>(std::move(config));
    case Task::causal_lm:
    case Task::image_classification:
      break;
  }
  throw_task(task, "bert");
}

// Makes one of the three models that each decoder has.
template <class Base, class Classifier, class LanguageModel, class Config>
std::shared_ptr<PreTrainedModel> make_decoder(Task task, const char* type, Config config) {
  switch (task) {
    case Task::base:
      return std::make_shared<Base>(std::move(config));
    case Task::text_classification:
      return std::make_shared<Classifier>(std::move(config));
    case Task::causal_lm:
      return std::make_shared<LanguageModel>(std::move(config));
    case Task::token_classification:
    case Task::masked_lm:
    case Task::image_classification:
      break;
  }
  throw_task(task, type);
}

std::shared_ptr<PreTrainedModel> make_model(Task task, GPT2Config config) {
  return make_decoder<GPT2Model, GPT2ForSequenceClassification, GPT2LMHeadModel>(task, "gpt2",
                                                                                 std::move(config));
}

std::shared_ptr<PreTrainedModel> make_model(Task task, LlamaConfig config) {
  return make_decoder<LlamaModel, LlamaForSequenceClassification, LlamaForCausalLM>(
      task, "llama", std::move(config));
}

std::shared_ptr<PreTrainedModel> make_model(Task task, ViTConfig config) {
  if (task != Task::image_classification) throw_task(task, "vit");
  return std::make_shared<ViTForImageClassification>(std::move(config));
}

std::shared_ptr<PreTrainedModel> make_model(Task task, ResNetConfig config) {
  if (task != Task::image_classification) throw_task(task, "resnet");
  return std::make_shared<ResNetForImageClassification>(std::move(config));
}

template <class Config>
void apply_labels(const ModelOptions& options, Config& config) {
  if (options.num_labels > 0 && options.num_labels != config.num_labels) {
    config.num_labels = options.num_labels;
    config.id2label.clear();
  }
  if (!options.labels.empty()) {
    config.num_labels = static_cast<std::int64_t>(options.labels.size());
    config.id2label.clear();
    for (std::size_t i = 0; i < options.labels.size(); ++i)
      config.id2label[static_cast<std::int64_t>(i)] = options.labels[i];
  }
  if (!options.problem_type.empty()) config.problem_type = options.problem_type;
}

// Refuses a dropout rate that the model does not have.
void require_no_dropout(const char* type, const char* name, const std::optional<double>& rate) {
  if (!rate) return;
  throw DataError("models.config-value", {.what = str("the option ", name),
                                          .got = str(*rate, " for a model of type ", type),
                                          .expected = "a model with this dropout",
                                          .hint = "leave the option out"});
}

void apply(const ModelOptions& options, BertConfig& config) {
  apply_labels(options, config);
  if (options.hidden_dropout) config.hidden_dropout_prob = *options.hidden_dropout;
  if (options.attention_dropout) config.attention_probs_dropout_prob = *options.attention_dropout;
  if (options.classifier_dropout) config.classifier_dropout = options.classifier_dropout;
  config.attn_implementation = options.attn_implementation;
}

void apply(const ModelOptions& options, GPT2Config& config) {
  apply_labels(options, config);
  require_no_dropout("gpt2", "classifier_dropout", options.classifier_dropout);
  if (options.hidden_dropout) config.resid_pdrop = config.embd_pdrop = *options.hidden_dropout;
  if (options.attention_dropout) config.attn_pdrop = *options.attention_dropout;
  config.attn_implementation = options.attn_implementation;
}

void apply(const ModelOptions& options, LlamaConfig& config) {
  apply_labels(options, config);
  require_no_dropout("llama", "hidden_dropout", options.hidden_dropout);
  require_no_dropout("llama", "classifier_dropout", options.classifier_dropout);
  if (options.attention_dropout) config.attention_dropout = *options.attention_dropout;
  config.attn_implementation = options.attn_implementation;
}

void apply(const ModelOptions& options, ViTConfig& config) {
  apply_labels(options, config);
  require_no_dropout("vit", "classifier_dropout", options.classifier_dropout);
  if (options.hidden_dropout) config.hidden_dropout_prob = *options.hidden_dropout;
  if (options.attention_dropout) config.attention_probs_dropout_prob = *options.attention_dropout;
  config.attn_implementation = options.attn_implementation;
}

void apply(const ModelOptions& options, ResNetConfig& config) {
  apply_labels(options, config);
  require_no_dropout("resnet", "hidden_dropout", options.hidden_dropout);
  require_no_dropout("resnet", "attention_dropout", options.attention_dropout);
  require_no_dropout("resnet", "classifier_dropout", options.classifier_dropout);
}

// A model's configuration, and the folder of its files, which is empty if there is none.
struct ModelSource {
  AnyConfig config;
  std::filesystem::path folder;
};

std::optional<AnyConfig> built_in_config(const std::string& name) {
  if (auto config = BertConfig::by_name(name)) return *std::move(config);
  if (auto config = GPT2Config::by_name(name)) return *std::move(config);
  if (auto config = LlamaConfig::by_name(name)) return *std::move(config);
  return std::nullopt;
}

ModelSource find_source(const std::string& what) {
  if (auto config = built_in_config(what)) return {*std::move(config), {}};
  const std::filesystem::path path = model_folder(what);
  if (std::filesystem::is_directory(path)) {
    if (!std::filesystem::exists(path / "config.json")) {
      const std::string download = download_command(path);
      throw IoError("models.not-found",
                    {.what = "model " + what,
                     .got = "a folder without config.json",
                     .expected = "config.json and model.safetensors in it",
                     .hint = download.empty() ? "name the folder that holds both"
                                              : "fetch the missing files: " + download});
    }
    return {config_from(path / "config.json"), path};
  }
  if (std::filesystem::is_regular_file(path)) return {config_from(path), {}};
  throw IoError("models.not-found",
                {.what = "model " + what,
                 .got = "no such file or folder",
                 .expected = "a folder with config.json and model.safetensors, a config.json, "
                             "ORG/NAME in the Hugging Face cache, or a built-in name such as "
                             "bert-base, gpt2 or llama-3.2-1b",
                 .hint = "download the model first, because hasten downloads nothing"});
}

}  // namespace

Task default_task_of(const std::string& what) {
  const AnyConfig config = find_source(what).config;
  if (std::holds_alternative<BertConfig>(config)) return Task::text_classification;
  const bool is_decoder =
      std::holds_alternative<GPT2Config>(config) || std::holds_alternative<LlamaConfig>(config);
  return is_decoder ? Task::causal_lm : Task::image_classification;
}

std::int64_t vocab_size_of(const std::string& what) {
  const ModelSource source = find_source(what);
  return std::visit(
      [&](const auto& config) -> std::int64_t {
        if constexpr (requires { config.vocab_size; }) {
          return config.vocab_size;
        } else {
          throw DataError("models.task", {.what = "the ids of model " + what,
                                          .got = "a model for images, which has none",
                                          .expected = "a model of type bert, gpt2 or llama"});
        }
      },
      source.config);
}

namespace {

template <class Config>
ConfiguredLabels labels_of(const Config& config) {
  ConfiguredLabels out{
      .count = config.num_labels, .names = {}, .problem_type = config.problem_type};
  // Two labels without names are the format's default, so they do not specify any labels.
  if (config.id2label.empty() && config.num_labels == Config{}.num_labels) return out;
  for (std::int64_t id = 0; id < config.num_labels; ++id)
    out.names.push_back(label_name_of(config.id2label, id));
  return out;
}

}  // namespace

ConfiguredLabels configured_labels(const std::string& what) {
  return std::visit([](const auto& config) { return labels_of(config); }, find_source(what).config);
}

LoadedModel load_model(const std::string& what, const ModelOptions& options) {
  ModelSource source = find_source(what);
  LoadedModel loaded{.model = std::visit(
                         [&](auto& config) {
                           apply(options, config);
                           return make_model(options.task, std::move(config));
                         },
                         source.config),
                     .report = {},
                     .random = false};
  if (options.weights.empty() && source.folder.empty()) {
    loaded.model->initialize();
    loaded.random = true;
    return loaded;
  }
  const std::filesystem::path weights = options.weights.empty() ? source.folder : options.weights;
  loaded.report = loaded.model->load_weights(load_weights(weights), weights.string(),
                                             options.ignore_mismatched_sizes);
  return loaded;
}

}  // namespace hasten
