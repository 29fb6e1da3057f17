#include "hasten/models/pretrained_model.h"

#include <torch/torch.h>

#include <algorithm>
#include <filesystem>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/weights.h"
#include "hasten/models/bert.h"

namespace hasten {
namespace {

std::string shape_text(at::IntArrayRef sizes) {
  std::vector<std::string> parts;
  for (const std::int64_t size : sizes) parts.push_back(std::to_string(size));
  return "[" + join(parts, ", ") + "]";
}

// transformers' oldest checkpoints call the norms' parameters gamma and beta.
std::string modern_name(std::string name) {
  for (const auto& [old, now] : {std::pair{"LayerNorm.gamma", "LayerNorm.weight"},
                                 std::pair{"LayerNorm.beta", "LayerNorm.bias"}}) {
    if (ends_with(name, old))
      name.replace(name.size() - std::string(old).size(), std::string::npos, now);
  }
  return name;
}

}  // namespace

LoadReport PreTrainedModel::load_weights(const TensorDict& weights, const std::string& where) {
  std::map<std::string, at::Tensor> parameters;
  for (const auto& item : named_parameters()) parameters[item.key()] = item.value();
  for (const auto& item : named_buffers()) parameters[item.key()] = item.value();
  const std::string prefix = base_prefix().empty() ? "" : base_prefix() + ".";
  const auto tied = tied_parameters();

  const auto parameter_for = [&](const std::string& file_name) {
    std::string name = modern_name(file_name);
    if (const auto alias = tied.find(name); alias != tied.end()) name = alias->second;
    if (parameters.count(name)) return name;
    if (!prefix.empty() && parameters.count(prefix + name))
      return prefix + name;  // a base model's file
    const std::size_t dot = name.find('.');
    if (prefix.empty() && dot != std::string::npos && parameters.count(name.substr(dot + 1)))
      return name.substr(dot + 1);
    return std::string();
  };

  LoadReport report;
  std::map<std::string, std::string> source;  // parameter -> name in the file
  for (const auto& [file_name, tensor] : weights) {
    const std::string name = parameter_for(file_name);
    if (name.empty()) {
      if (!ends_with(file_name, "embeddings.position_ids")) report.unexpected.push_back(file_name);
      continue;
    }
    if (parameters[name].sizes() != tensor.sizes()) {
      throw DataError(
          "models.shape",
          {.what = where + ", tensor " + file_name,
           .got = "shape " + shape_text(tensor.sizes()),
           .expected = shape_text(parameters[name].sizes()),
           .hint = "do config.json and the weights belong together, and num_labels to the data?"});
    }
    if (!tensor.is_floating_point()) {
      throw DataError("models.dtype", {.what = where + ", tensor " + file_name,
                                       .got = c10::toString(tensor.scalar_type()),
                                       .expected = "a floating-point type"});
    }
    source.emplace(name, file_name);
  }
  for (const auto& [name, parameter] : parameters) {
    if (!source.count(name)) report.missing.push_back(name);
  }
  if (source.empty()) {
    throw DataError("models.no-weights",
                    {.what = where,
                     .got = "no tensor that belongs to this model",
                     .expected = "names such as " + parameters.begin()->first});
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [name, file_name] : source) parameters[name].copy_(weights.at(file_name));
  if (!report.missing.empty()) initialize(&report.missing);
  return report;
}

TensorDict PreTrainedModel::state_dict() const {
  TensorDict out;
  for (const auto& item : named_parameters()) out[item.key()] = item.value().detach();
  for (const auto& item : named_buffers()) out[item.key()] = item.value().detach();
  return out;
}

void PreTrainedModel::save_pretrained(const std::filesystem::path& folder,
                                      std::int64_t max_shard_size) const {
  make_directories(folder);
  write_file_atomically(folder / "config.json", config_json());
  save_weights(folder, state_dict(), {.max_shard_size = max_shard_size});
}

namespace {

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
  }
  throw UsageError("models.unknown-task", {.what = "a task that is not in the list"});
}

void apply(const ModelOptions& options, BertConfig& config) {
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
  if (options.hidden_dropout >= 0) {
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = options.hidden_dropout;
    config.classifier_dropout.reset();
  }
  config.attn_implementation = options.attn_implementation;
}

BertConfig read_config(const std::string& what) {
  if (const auto built_in = BertConfig::by_name(what)) return *built_in;
  const std::filesystem::path path = what;
  if (std::filesystem::is_directory(path)) {
    if (!std::filesystem::exists(path / "config.json")) {
      throw IoError("models.not-found", {.what = "model " + what,
                                         .got = "a folder without config.json",
                                         .expected = "config.json and model.safetensors in it",
                                         .hint = "name the folder that holds both"});
    }
    return BertConfig::from_file(path / "config.json");
  }
  if (std::filesystem::is_regular_file(path)) return BertConfig::from_file(path);
  throw IoError("models.not-found", {.what = "model " + what,
                                     .got = "no such file or folder",
                                     .expected = "a folder with config.json and model.safetensors, "
                                                 "a config.json, bert-base or bert-large",
                                     .hint = "hasten downloads nothing: fetch the model first"});
}

}  // namespace

std::int64_t vocabulary_of(const std::string& what) { return read_config(what).vocab_size; }

LoadedModel load_model(const std::string& what, const ModelOptions& options) {
  BertConfig config = read_config(what);
  apply(options, config);
  LoadedModel loaded{
      .model = make_model(options.task, std::move(config)), .report = {}, .random = false};
  const bool folder = std::filesystem::is_directory(what);
  if (options.weights.empty() && !folder) {
    loaded.model->initialize();
    loaded.random = true;
    return loaded;
  }
  const std::filesystem::path weights =
      options.weights.empty() ? std::filesystem::path(what) : options.weights;
  loaded.report = loaded.model->load_weights(load_weights(weights), weights.string());
  return loaded;
}

}  // namespace hasten
