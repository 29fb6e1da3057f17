#include "models/repeatable_model.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "hasten/models/hooks.h"

namespace hasten {

bool has_gradient_hook(const at::Tensor& parameter) {
  const auto* const meta = torch::autograd::impl::get_autograd_meta(parameter);
  if (meta == nullptr || meta->cpp_hooks_list_ == nullptr) return false;
  // A removed hook leaves an empty function.
  return std::any_of(meta->cpp_hooks_list_->begin(), meta->cpp_hooks_list_->end(),
                     [](const auto& hook) { return static_cast<bool>(hook); });
}

std::string unrepeatable_hook(const torch::nn::Module& model) {
  for (const auto& module : model.modules()) {
    if (detail::HookedCall(*module)) return "a hook of the module " + module->name();
  }
  for (const auto& item : model.named_parameters()) {
    if (has_gradient_hook(item.value())) return "a hook of the parameter " + item.key();
  }
  return "";
}

std::string unknown_class(const torch::nn::Module& model) {
  for (const auto& module : model.modules()) {
    const std::string name = c10::demangle(typeid(*module).name());
    const bool is_known = name.starts_with("hasten::") || name.starts_with("torch::nn::");
    // This class holds a function of the program.
    if (!is_known || name == "torch::nn::FunctionalImpl") return name;
  }
  return "";
}

ModelTensors::ModelTensors(const torch::nn::Module& model)
    : model_(model),
      modules_(model.modules()),
      parameters_(model.parameters()),
      buffers_(model.buffers()),
      facts_(facts()) {}

bool ModelTensors::is_unchanged() const { return facts_ == facts(); }

std::vector<const void*> ModelTensors::facts() const {
  std::vector<const void*> all;
  const auto add_tensors = [&](const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& each : tensors) {
      if (!each.defined()) continue;
      all.push_back(each.const_data_ptr());
      all.push_back(each.requires_grad() ? this : nullptr);
      all.push_back(has_gradient_hook(each) ? this : nullptr);
    }
  };
  add_tensors(model_.parameters());
  add_tensors(model_.buffers());
  for (const auto& module : model_.modules()) {
    all.push_back(module.get());
    all.push_back(module->is_training() ? this : nullptr);
    all.push_back(detail::HookedCall(*module) ? this : nullptr);
  }
  return all;
}

}  // namespace hasten
