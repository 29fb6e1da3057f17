#include "formats/module_tensors.h"

#include <cstdint>
#include <tuple>

#include "hasten/base/text.h"

namespace hasten {
namespace {

// Identifies a tensor by its memory: two names of one tensor have the same view.
using TensorView = std::tuple<const void*, std::int64_t, at::ScalarType, std::vector<std::int64_t>,
                              std::vector<std::int64_t>>;

TensorView view_of(const at::Tensor& tensor) {
  if (!tensor.has_storage() || tensor.numel() == 0)
    return {tensor.unsafeGetTensorImpl(), 0, tensor.scalar_type(), {}, {}};
  return {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.scalar_type(),
          tensor.sizes().vec(), tensor.strides().vec()};
}

}  // namespace

NamedTensors registered_tensors(const torch::nn::Module& module) {
  NamedTensors all;
  for (const auto& item : module.named_parameters()) all.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) all.emplace_back(item.key(), item.value());
  return all;
}

ModuleTensors tensors_of(const torch::nn::Module& module,
                         const std::map<std::string, std::string>& tied) {
  const NamedTensors all = registered_tensors(module);
  const TensorDict registered(all.begin(), all.end());
  ModuleTensors out{.tensors = {}, .aliases = tied, .order = {}};
  // A name that is declared as tied keeps its own tensor if it has one.
  std::erase_if(out.aliases, [&](const auto& alias) {
    const auto own = registered.find(alias.first), saved = registered.find(alias.second);
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
      out.order.push_back(name);
    } else {
      out.aliases[name] = kept;
    }
  }
  return out;
}

std::string shape_text(at::IntArrayRef sizes) {
  std::vector<std::string> parts;
  for (const std::int64_t size : sizes) parts.push_back(std::to_string(size));
  return "[" + join(parts, ", ") + "]";
}

std::int64_t parameter_count(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : module.parameters()) count += parameter.numel();
  return count;
}

}  // namespace hasten
