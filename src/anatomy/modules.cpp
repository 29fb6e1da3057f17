#include "anatomy/modules.h"

#include <algorithm>

namespace hasten::anatomy {

void Modules::watch(torch::nn::Module& model) {
  for (const auto& item : model.named_modules()) {
    const std::string name = item.key().empty() ? kModelName : item.key();
    const auto take = [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.has_storage()) return;
      // A tied parameter keeps its first owner.
      owners_.emplace(tensor.storage().data(), index_of(name));
    };
    for (const auto& own : item.value()->named_parameters(/*recurse=*/false)) take(own.value());
    for (const auto& own : item.value()->named_buffers(/*recurse=*/false)) take(own.value());
  }
}

std::int32_t Modules::index_of(const std::string& name) {
  if (const auto known = indices_.find(name); known != indices_.end()) return known->second;
  const std::size_t dot = name.rfind('.');
  const std::int32_t parent = dot == std::string::npos ? -1 : index_of(name.substr(0, dot));
  const auto out = static_cast<std::int32_t>(names_.size());
  names_.push_back(name);
  parents_.push_back(parent);
  indices_[name] = out;
  return out;
}

std::int32_t Modules::shared_parent(const std::set<std::int32_t>& layers) const {
  const auto parent_of = [&](std::int32_t layer) {
    return parents_[static_cast<std::size_t>(layer)];
  };
  for (const std::int32_t layer : layers) {
    const std::int32_t parent = parent_of(layer);
    // Operands that the parent itself made also count.
    if (parent >= 0 && std::all_of(layers.begin(), layers.end(), [&](std::int32_t each) {
          return each == parent || parent_of(each) == parent;
        }))
      return parent;
  }
  return -1;
}

std::int32_t Modules::owner(const void* storage) const {
  const auto found = owners_.find(storage);
  return found == owners_.end() ? -1 : found->second;
}

const std::string& Modules::name(std::int32_t module) const {
  static const std::string none;
  return module < 0 ? none : names_[static_cast<std::size_t>(module)];
}

void Modules::enter(std::int32_t module, std::int64_t next_node) {
  if (module == current_) return;
  current_ = module;
  // Node numbers ascend; a lower one means that another graph has begun.
  while (!entered_.empty() && entered_.back().first >= next_node) entered_.pop_back();
  entered_.emplace_back(next_node, module);
}

std::int32_t Modules::layer_of_node(std::int64_t node) const {
  const auto after =
      std::upper_bound(entered_.begin(), entered_.end(), node,
                       [](std::int64_t number, const auto& entry) { return number < entry.first; });
  return after == entered_.begin() ? -1 : std::prev(after)->second;
}

}  // namespace hasten::anatomy
