#include "hasten/models/pretrained_model.h"

#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "formats/module_tensors.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/weights.h"

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

// Returns whether the tensor is computed, not learned: positions, causal masks, frequencies.
// Checkpoints of earlier versions of transformers contain such tensors.
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

  // Returns the names in the model that the file's name may stand for, the likeliest first. A name
  // that the model has itself is not converted.
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

// Maps parameters to names in the file. A tensor with the parameter's own name takes precedence
// over one whose name is converted to it.
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
                   .hint = "to train a new head for different labels, set ignore_mismatched_sizes; "
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

}  // namespace hasten
