#include "models/module_weights.h"

#include <torch/torch.h>

#include <tuple>
#include <utility>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/weights.h"

namespace hasten {
namespace {

std::string shape_text(at::IntArrayRef sizes) {
  std::vector<std::string> parts;
  for (const std::int64_t size : sizes) parts.push_back(std::to_string(size));
  return "[" + join(parts, ", ") + "]";
}

// Identifies a tensor by its memory: two names of one tensor have the same view.
using TensorView = std::tuple<const void*, std::int64_t, at::ScalarType, std::vector<std::int64_t>,
                              std::vector<std::int64_t>>;

TensorView view_of(const at::Tensor& tensor) {
  if (!tensor.has_storage() || tensor.numel() == 0)
    return {tensor.unsafeGetTensorImpl(), 0, tensor.scalar_type(), {}, {}};
  return {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.scalar_type(),
          tensor.sizes().vec(), tensor.strides().vec()};
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

NamedTensors named_tensors_of(const torch::nn::Module& model,
                              std::map<std::string, std::string> tied) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const auto& item : model.named_parameters()) all.emplace_back(item.key(), item.value());
  for (const auto& item : model.named_buffers()) {
    // A norm without running statistics registers undefined buffers.
    if (item.value().defined()) all.emplace_back(item.key(), item.value());
  }
  const TensorDict registered(all.begin(), all.end());
  NamedTensors out{.tensors = {}, .aliases = std::move(tied)};
  // A name declared as tied that has a tensor of its own keeps it.
  std::erase_if(out.aliases, [&](const auto& tied) {
    const auto own = registered.find(tied.first), saved = registered.find(tied.second);
    return own != registered.end() &&
           (saved == registered.end() || view_of(own->second) != view_of(saved->second));
  });
  std::map<TensorView, std::string> saved;
  for (const auto& [name, target] : out.aliases) {
    if (registered.count(target) && !out.aliases.count(target))
      saved.emplace(view_of(registered.at(target)), target);
  }
  for (const auto& [name, tensor] : all) saved.emplace(view_of(tensor), name);
  for (const auto& [name, tensor] : all) {
    const std::string& kept = saved.at(view_of(tensor));
    if (kept == name) {
      out.tensors[name] = tensor;
    } else {
      out.aliases[name] = kept;
    }
  }
  return out;
}

LoadReport copy_weights(const NamedTensors& own, std::map<std::string, std::string> source,
                        const TensorDict& weights, const std::string& where,
                        bool ignore_mismatched_sizes) {
  LoadReport report;
  for (const auto& [name, tensor] : own.tensors) {
    const auto found = source.find(name);
    if (found == source.end()) {
      report.missing.push_back(name);
      continue;
    }
    const at::Tensor& in_file = weights.at(found->second);
    const std::string what = where + ", tensor " + found->second;
    if (in_file.sizes() != tensor.sizes()) {
      if (!ignore_mismatched_sizes) fail_shape(what, in_file.sizes(), tensor.sizes());
      report.mismatched.push_back({name, in_file.sizes().vec(), tensor.sizes().vec()});
      source.erase(found);
      continue;
    }
    check_type(what, in_file, tensor);
  }
  if (source.empty() && !own.tensors.empty()) {
    throw DataError("models.no-weights",
                    {.what = where,
                     .got = "no tensor that belongs to this model",
                     .expected = "names such as " + own.tensors.begin()->first});
  }
  const torch::NoGradGuard no_grad;
  for (const auto& [name, file_name] : source) own.tensors.at(name).copy_(weights.at(file_name));
  return report;
}

void save_module(const torch::nn::Module& module, const std::filesystem::path& folder) {
  if (const auto* const pretrained = dynamic_cast<const PreTrainedModel*>(&module))
    return pretrained->save_pretrained(folder);
  TensorDict weights;
  for (const auto& [name, tensor] : named_tensors_of(module).tensors)
    weights[name] = tensor.detach();
  make_directories(folder);
  save_weights(folder, weights);
}

LoadReport load_module(torch::nn::Module& module, const TensorDict& weights,
                       const std::string& where) {
  if (auto* const pretrained = dynamic_cast<PreTrainedModel*>(&module))
    return pretrained->load_weights(weights, where);
  const NamedTensors own = named_tensors_of(module);
  std::map<std::string, std::string> source;
  std::vector<std::string> unexpected;
  for (const auto& [name, tensor] : weights) {
    if (own.tensors.count(name)) {
      source.emplace(name, name);
    } else {
      unexpected.push_back(name);
    }
  }
  LoadReport report = copy_weights(own, std::move(source), weights, where, false);
  report.unexpected = std::move(unexpected);
  return report;
}

}  // namespace hasten
