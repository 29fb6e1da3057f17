// The linear layers of an exported program, for adapters.
#include <algorithm>

#include "exported/exported_binding.h"
#include "hasten/base/text.h"

namespace hasten {

std::vector<LinearLayer> ExportedModule::linear_layers() const {
  const exported::Program& program = *parts_->programs.front();
  const auto is_table = [&](const at::Tensor& weight) {
    return std::any_of(program.embedding_tables.begin(), program.embedding_tables.end(),
                       [&](const std::string& name) { return tensors_.at(name).is_same(weight); });
  };
  std::vector<LinearLayer> layers;
  for (const auto& [name, is_transposed] : program.linear_weights) {
    const std::string ending = ".weight";
    if (!ends_with(name, ending) || is_table(tensors_.at(name))) continue;
    layers.push_back({name.substr(0, name.size() - ending.size()), is_transposed});
  }
  return layers;
}

void ExportedModule::set_linear_weight(const std::string& path, const at::Tensor& weight) {
  const at::Tensor before = tensors_.at(path + ".weight");
  const auto replace = [&](at::Tensor& tensor) {
    if (tensor.is_same(before)) tensor = weight;
  };
  for (auto& [name, tensor] : tensors_) replace(tensor);
  for (Binding& binding : bindings_)
    for (at::Tensor& tensor : binding.state) replace(tensor);
}

}  // namespace hasten
