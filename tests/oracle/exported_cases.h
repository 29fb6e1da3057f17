// What the comparisons of exported models with eager PyTorch share.
#pragma once

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <string>

#include "hasten/base/text.h"
#include "hasten/exported/exported_module.h"

namespace hasten::oracle {

// The tensors whose names begin with a prefix, without it.
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

// The tolerance is for other processors: on one like that of the data the numbers are equal.
inline void check_near(const std::string& what, const at::Tensor& tensor,
                       const at::Tensor& expected, double relative = 1e-6) {
  CAPTURE(what);
  REQUIRE(tensor.sizes() == expected.sizes());
  REQUIRE(tensor.dtype() == expected.dtype());
  if (at::equal(tensor.detach(), expected)) return;
  const double difference = (tensor.detach() - expected).abs().max().item<double>();
  const double tolerance = relative * (1 + expected.abs().max().item<double>());
  CHECK(difference <= tolerance);
}

inline TensorDict named_tensors(const ExportedModule& model) {
  TensorDict all;
  for (const auto& item : model.named_parameters()) all[item.key()] = item.value();
  for (const auto& item : model.named_buffers()) all[item.key()] = item.value();
  return all;
}

}  // namespace hasten::oracle
