#include "anatomy/modules.h"

#include <algorithm>

namespace hasten::anatomy {

void Modules::watch(torch::nn::Module& model) {
  for (const auto& item : model.named_modules()) {
    const auto number = static_cast<std::int32_t>(names_.size());
    bool has_own = false;
    const auto take = [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.has_storage()) return;
      owners_.emplace(tensor.storage().data(),
                      number);  // of tied parameters the first owner counts
      has_own = true;
    };
    for (const auto& own : item.value()->named_parameters(/*recurse=*/false)) take(own.value());
    for (const auto& own : item.value()->named_buffers(/*recurse=*/false)) take(own.value());
    if (has_own) names_.push_back(item.key().empty() ? "(model)" : item.key());
  }
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
  // Nodes are numbered upwards; a number that went back means that another graph has begun.
  while (!entered_.empty() && entered_.back().first >= next_node) entered_.pop_back();
  entered_.emplace_back(next_node, module);
}

std::int32_t Modules::of_node(std::int64_t node) const {
  const auto after =
      std::upper_bound(entered_.begin(), entered_.end(), node,
                       [](std::int64_t number, const auto& entry) { return number < entry.first; });
  return after == entered_.begin() ? -1 : std::prev(after)->second;
}

}  // namespace hasten::anatomy
