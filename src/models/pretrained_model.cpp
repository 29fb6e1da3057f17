#include "hasten/models/pretrained_model.h"

#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <variant>

#include "formats/module_tensors.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/weights.h"
#include "hasten/machine/model_folder.h"
#include "hasten/models/bert.h"
#include "hasten/models/gpt2.h"
#include "hasten/models/llama.h"
#include "hasten/models/resnet.h"
#include "hasten/models/vit.h"
#include "models/config_reader.h"

namespace hasten {
namespace {

// The oldest checkpoints of transformers call the norms' parameters gamma and beta.
std::string modern_name(std::string name) {
  for (const auto& [old, now] : {std::pair{"LayerNorm.gamma", "LayerNorm.weight"},
                                 std::pair{"LayerNorm.beta", "LayerNorm.bias"}}) {
    if (ends_with(name, old))
      name.replace(name.size() - std::string(old).size(), std::string::npos, now);
  }
  return name;
}

// Returns whether it is a tensor that checkpoints of earlier versions of transformers contain and that
// is computed, not learned: positions, causal masks, frequencies.
bool is_computed(const std::string& name) {
  for (const char* ending :
       {"embeddings.position_ids", ".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq"}) {
    if (ends_with(name, ending)) return true;
  }
  return false;
}

// Finds the model's tensor for a tensor of a file.
class WeightNameMapper {
 public:
  WeightNameMapper(const ModuleTensors& model, const std::string& prefix)
      : model_(model), prefix_(prefix.empty() ? "" : prefix + ".") {}

  // Returns the names that may be meant, the likeliest first; a model's own names
  // are not converted.
  std::vector<std::string> candidates(const std::string& file_name) const {
    std::vector<std::string> out;
    for (const std::string& name : {file_name, modern_name(file_name)}) {
      add(out, name);
      if (!prefix_.empty()) add(out, prefix_ + name);  // the file is a base model's
      const std::size_t dot = name.find('.');
      if (prefix_.empty() && dot != std::string::npos) add(out, name.substr(dot + 1));
    }
    return out;
  }

 private:
  void add(std::vector<std::string>& out, const std::string& name) const {
    const std::string& saved = model_.saved_name(name);
    if (model_.tensors.count(saved)) out.push_back(saved);
  }

  const ModuleTensors& model_;
  std::string prefix_;
};

// Maps parameters to names in the file. A parameter's own name precedes one that is converted to
// it, so that no other tensor takes its place.
std::map<std::string, std::string> sources_of(const ModuleTensors& model, const std::string& prefix,
                                              const TensorDict& weights,
                                              std::vector<std::string>& unexpected) {
  std::map<std::string, std::string> source;
  for (const auto& [name, tensor] : model.tensors) {
    if (weights.count(name)) source.emplace(name, name);
  }
  const WeightNameMapper names(model, prefix);
  for (const auto& [file_name, tensor] : weights) {
    if (source.count(file_name)) continue;
    const auto found = names.candidates(file_name);
    if (!found.empty()) {
      source.emplace(found.front(), file_name);
    } else if (!is_computed(file_name)) {
      unexpected.push_back(file_name);
    }
  }
  return source;
}

[[noreturn]] void fail_shape(const std::string& tensor, at::IntArrayRef in_file,
                             at::IntArrayRef in_model) {
  throw DataError("models.shape",
                  {.what = tensor,
                   .got = "shape " + shape_text(in_file),
                   .expected = shape_text(in_model),
                   .hint = "for a new head, with other labels, set ignore_mismatched_sizes; "
                           "otherwise check that config.json belongs to the weights"});
}

void check_type(const std::string& tensor, const at::Tensor& in_file, const at::Tensor& in_model) {
  if (in_model.is_floating_point() ? in_file.is_floating_point()
                                   : in_file.scalar_type() == in_model.scalar_type())
    return;
  throw DataError("models.dtype", {.what = tensor,
                                   .got = c10::toString(in_file.scalar_type()),
                                   .expected = in_model.is_floating_point()
                                                   ? "a floating-point type"
                                                   : c10::toString(in_model.scalar_type())});
}

}  // namespace

LoadReport PreTrainedModel::load_weights(const TensorDict& weights, const std::string& where,
                                         bool ignore_mismatched_sizes) {
  const ModuleTensors own = tensors_of(*this, tied_parameters());
  LoadReport report;
  auto source = sources_of(own, base_prefix(), weights, report.unexpected);
  std::vector<std::string> fresh;
  for (const auto& [name, tensor] : own.tensors) {
    const auto found = source.find(name);
    if (found == source.end()) {
      report.missing.push_back(name);
      fresh.push_back(name);
      continue;
    }
    const at::Tensor& in_file = weights.at(found->second);
    const std::string what = where + ", tensor " + found->second;
    if (in_file.sizes() != tensor.sizes()) {
      if (!ignore_mismatched_sizes) fail_shape(what, in_file.sizes(), tensor.sizes());
      report.mismatched.push_back({name, in_file.sizes().vec(), tensor.sizes().vec()});
      fresh.push_back(name);
      source.erase(found);
      continue;
    }
    check_type(what, in_file, tensor);
  }
  if (source.empty()) {
    throw DataError("models.no-weights",
                    {.what = where,
                     .got = "no tensor that belongs to this model",
                     .expected = "names such as " + own.tensors.begin()->first});
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [name, file_name] : source) own.tensors.at(name).copy_(weights.at(file_name));
  if (!fresh.empty()) initialize(&fresh);
  return report;
}

std::optional<std::int64_t> PreTrainedModel::token_count(const TensorDict& batch) const {
  return tokens_in(batch);
}

std::optional<std::int64_t> PreTrainedModel::real_token_count(const TensorDict& batch) const {
  return real_tokens_in(batch);
}

std::int64_t PreTrainedModel::row_length(const TensorDict& batch) const {
  return row_length_in(batch);
}

namespace {

bool is_embedding_table(const std::string& parameter) {
  for (const char* ending :
       {"_embeddings.weight", "wte.weight", "wpe.weight", "embed_tokens.weight"}) {
    if (ends_with(parameter, ending)) return true;
  }
  return false;
}

}  // namespace

std::optional<double> PreTrainedModel::floating_point_ops(const TensorDict& batch) const {
  const std::optional<std::int64_t> tokens = token_count(batch);
  if (!tokens) return std::nullopt;
  if (!flos_per_token_) {
    std::int64_t multiplied = 0;
    std::set<const at::TensorImpl*> seen;  // a tied weight counts under its first name
    for (const auto& item : named_parameters()) {
      if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
      multiplied += is_embedding_table(item.key()) ? 0 : item.value().numel();
    }
    flos_per_token_ = 6.0 * static_cast<double>(multiplied);
  }
  return *flos_per_token_ * static_cast<double>(*tokens);
}

namespace {

// Adds the type of the weights to a configuration, under the name that transformers gives it.
std::string with_dtype(const std::string& config, const torch::nn::Module& model) {
  const std::map<at::ScalarType, const char*> names = {{at::kFloat, "float32"},
                                                       {at::kBFloat16, "bfloat16"},
                                                       {at::kHalf, "float16"},
                                                       {at::kDouble, "float64"}};
  const auto parameters = model.parameters();
  if (parameters.empty()) return config;
  const auto name = names.find(parameters.front().scalar_type());
  if (name == names.end()) return config;
  auto json = nlohmann::json::parse(config);
  json.erase("torch_dtype");  // its former name
  json["dtype"] = name->second;
  return json.dump(2) + "\n";
}

}  // namespace

TensorDict PreTrainedModel::state_dict() const {
  TensorDict out;
  for (const auto& [name, tensor] : tensors_of(*this, tied_parameters()).tensors)
    out[name] = tensor.detach();
  return out;
}

void PreTrainedModel::save_pretrained(const std::filesystem::path& folder,
                                      std::int64_t max_shard_size) const {
  make_directories(folder);
  // Saves weights first: if they are refused, the folder stays as it was.
  save_weights(folder, state_dict(), {.max_shard_size = max_shard_size});
  write_file_atomically(folder / "config.json", with_dtype(config_json(), *this));
}

bool PreTrainedModel::save_files(const std::filesystem::path& folder) const {
  save_pretrained(folder);
  return true;
}

std::optional<std::vector<std::string>> PreTrainedModel::load_files(
    const std::filesystem::path& folder) {
  return load_weights(hasten::load_weights(folder), folder.string()).missing;
}

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

struct TaskFacts {
  const char *name, *models;  // the types of models that have a head for it
};

TaskFacts facts_of(Task task) {
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

[[noreturn]] void refuse_task(Task task, const char* type) {
  const TaskFacts facts = facts_of(task);
  throw DataError("models.task", {.what = str("the task ", facts.name),
                                  .got = str("a model of type ", type),
                                  .expected = str("a model of type ", facts.models)});
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
  refuse_task(task, "bert");
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
  refuse_task(task, type);
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
  if (task != Task::image_classification) refuse_task(task, "vit");
  return std::make_shared<ViTForImageClassification>(std::move(config));
}

std::shared_ptr<PreTrainedModel> make_model(Task task, ResNetConfig config) {
  if (task != Task::image_classification) refuse_task(task, "resnet");
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

// Refuses a rate of a dropout that the model does not have.
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

// A model's configuration, and the folder of its files; empty without a folder.
struct ModelSource {
  AnyConfig config;
  std::filesystem::path folder;
};

std::optional<AnyConfig> built_in(const std::string& name) {
  if (auto config = BertConfig::by_name(name)) return *std::move(config);
  if (auto config = GPT2Config::by_name(name)) return *std::move(config);
  if (auto config = LlamaConfig::by_name(name)) return *std::move(config);
  return std::nullopt;
}

ModelSource find_source(const std::string& what) {
  if (auto config = built_in(what)) return {*std::move(config), {}};
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

Task usual_task_of(const std::string& what) {
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
  // Two labels without names are the format's default, so the configuration does not say.
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
