#include "models/repeatable_model.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <iterator>

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
    : modules_(model.modules()), tensors_(model.parameters()) {
  const std::vector<at::Tensor> buffers = model.buffers();
  std::copy_if(buffers.begin(), buffers.end(), std::back_inserter(tensors_),
               [](const at::Tensor& each) { return each.defined(); });
  facts_ = facts();
}

bool ModelTensors::is_unchanged() const { return facts_ == facts(); }

std::vector<const void*> ModelTensors::facts() const {
  std::vector<const void*> all;
  all.reserve(3 * tensors_.size() + 2 * modules_.size());
  for (const at::Tensor& each : tensors_) {
    all.push_back(each.const_data_ptr());
    all.push_back(each.requires_grad() ? this : nullptr);
    all.push_back(has_gradient_hook(each) ? this : nullptr);
  }
  for (const auto& module : modules_) {
    all.push_back(module->is_training() ? this : nullptr);
    all.push_back(detail::HookedCall(*module) ? this : nullptr);
  }
  return all;
}

}  // namespace hasten
