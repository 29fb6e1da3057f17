// File: models/repeatable_model.h (internal)
// Decides whether a graph can repeat the steps of a model (docs/design/024). Code that runs on the
// host, such as a hook, runs once while a graph records the step, and not in its replays.
//
//   if (const std::string reason = unrepeatable_hook(*model); !reason.empty()) log(reason);
//   if (const std::string name = unknown_class(*model); !name.empty()) log(name);
//   const ModelTensors tensors(*model);
//   if (!tensors.is_unchanged()) record_again();
//
// Thread rule: that of the module.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

namespace hasten {

// True if a function is called with the gradient of this parameter before it is added to grad().
bool has_gradient_hook(const at::Tensor& parameter);
// Returns a description of a hook of the module, of a module in it, or of their parameters. Empty
// if there is none.
std::string unrepeatable_hook(const torch::nn::Module& model);
// Returns the name of a class of a module that is neither hasten's nor LibTorch's, because its
// forward() may compute with numbers of the host. Empty if there is none.
std::string unknown_class(const torch::nn::Module& model);
// The facts about a model that its graph has recorded in addition to operations: its modules, the
// addresses of its tensors, which tensors are trained, which modules are in training mode, and
// which have hooks. The program may change each of them between two steps.
class ModelTensors {
 public:
  // The model must outlive this object.
  explicit ModelTensors(const torch::nn::Module& model);
  ModelTensors(const ModelTensors&) = delete;
  ModelTensors& operator=(const ModelTensors&) = delete;
  bool is_unchanged() const;

 private:
  std::vector<const void*> facts() const;

  const torch::nn::Module& model_;
  // Modules and tensors that the program replaces stay alive, so that no address is used again.
  const std::vector<std::shared_ptr<torch::nn::Module>> modules_;
  const std::vector<at::Tensor> parameters_, buffers_;
  const std::vector<const void*> facts_;
};

}  // namespace hasten
