#include "trainer/repeatable_model.h"

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

bool has_memory_for_graph(std::int64_t total, std::int64_t used, std::int64_t peak) {
  return total - used >= peak;
}

}  // namespace hasten
