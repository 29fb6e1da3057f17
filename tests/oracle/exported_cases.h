// Code that the comparisons of exported models with eager PyTorch share.
#pragma once

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>

#include "hasten/base/text.h"
#include "hasten/exported/exported_module.h"
#include "oracle/near.h"

namespace hasten::oracle {

// Returns the tensors whose names begin with the prefix, without the prefix.
inline TensorDict part(const TensorDict& expected, const std::string& prefix) {
  TensorDict found;
  for (const auto& [name, tensor] : expected)
    if (starts_with(name, prefix)) found[name.substr(prefix.size())] = tensor.clone();
  return found;
}

inline const at::Tensor& logits_of(const TensorDict& outputs) {
  for (const char* name : {"logits", "logits_per_text"})
    if (outputs.contains(name)) return outputs.at(name);
  return outputs.at("output");
}

inline at::Tensor loss_of(const TensorDict& outputs, const at::Tensor& target) {
  if (outputs.contains("loss")) return outputs.at("loss");
  return torch::nn::functional::cross_entropy(logits_of(outputs), target);
}

inline void check_near(const std::string& what, const at::Tensor& tensor,
                       const at::Tensor& expected) {
  check_near(what, tensor, expected, 1e-6);
}

inline TensorDict named_tensors(const ExportedModule& model) {
  TensorDict all;
  for (const auto& item : model.named_parameters()) all[item.key()] = item.value();
  for (const auto& item : model.named_buffers()) all[item.key()] = item.value();
  return all;
}

}  // namespace hasten::oracle
