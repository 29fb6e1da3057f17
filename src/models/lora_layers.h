// File: models/lora_layers.h (internal)
// The linear layers of a module, and the adapter that add_lora gives to the weight of one.
//
//   for (const LoraLayer& layer : lora_layers(*model))
//     std::cout << layer.path << ' ' << layer.adapter->delta().norm().item<double>() << '\n';
//
// Thread rule: the same as for the module.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "hasten/models/linear_layers.h"
#include "hasten/options/detail/lora_options.h"
#include "ops/adapted_weight.h"

namespace hasten {

// One of the two matrices of an adapter; it has the parameter `weight`.
class LoraFactor : public torch::nn::Module {
 public:
  explicit LoraFactor(const at::Tensor& values)
      : Module("LoraFactor"), weight(register_parameter("weight", values)) {}

  at::Tensor weight;
};

// Computes y + scale dropout(x) A^T B^T.
class LoraAdapter : public ops::WeightAdapter {
 public:
  // Makes new factors for a weight: A as PyTorch initializes a Linear, B with zeros.
  LoraAdapter(const at::Tensor& weight, ops::WeightLayout layout,
              std::shared_ptr<const LoraOptions> options);

  at::Tensor apply(const at::Tensor& x, const at::Tensor& y) const override;
  // Returns scale B A in the form of the weight.
  at::Tensor delta() const;

  const std::shared_ptr<LoraFactor>& a() const { return a_; }
  const std::shared_ptr<LoraFactor>& b() const { return b_; }
  const std::shared_ptr<const LoraOptions>& options() const { return options_; }
  ops::WeightLayout layout() const { return layout_; }
  bool is_merged() const { return is_merged_; }
  void set_merged(bool merged) { is_merged_ = merged; }

 private:
  ops::WeightLayout layout_;
  std::shared_ptr<const LoraOptions> options_;
  double scale_ = 1;
  std::shared_ptr<LoraFactor> a_, b_;
  bool is_merged_ = false;
};

// A linear layer of a module.
struct AdaptableLayer {
  std::string path;
  ops::WeightLayout layout = ops::WeightLayout::out_in;
  std::shared_ptr<torch::nn::Module> owner;  // the module that has registered "weight"
  at::Tensor weight;
  bool is_shared = false;  // Another module has registered the weight, too.
  std::function<void(const at::Tensor&)> set_weight;  // replaces every handle
};
std::vector<AdaptableLayer> adaptable_layers(torch::nn::Module& module);

// A layer that is adapted.
struct LoraLayer {
  std::string path;
  std::shared_ptr<torch::nn::Module> owner;
  at::Tensor weight;
  std::shared_ptr<LoraAdapter> adapter;
};
std::vector<LoraLayer> lora_layers(const torch::nn::Module& module);

// The reason why a parameter or buffer of an adapted module belongs to the adapter, if it does.
enum class LoraTensorKind { none, factor, bias, saved_module };
class LoraTensorKinds {
 public:
  // `options` must have the paths of modules_to_save.
  LoraTensorKinds(const torch::nn::Module& module, const LoraOptions& options);
  LoraTensorKind of(const std::string& name) const;
  bool is_adapted(const std::string& path) const { return adapted_.contains(path); }

 private:
  const LoraOptions& options_;
  std::set<std::string> adapted_;
};

// Identifies the parameters that belong to the adapters. A parameter with several names belongs to
// them if it does so under one of the names. `options` must have the paths of modules_to_save.
std::set<const void*> adapter_parameters(const torch::nn::Module& module,
                                         const LoraOptions& options);

// Returns the path of the module that has registered this tensor.
std::string owner_of(const std::string& name);
// True if one of the paths is `inner` or the path of a module that contains it.
bool contains_path(const std::vector<std::string>& paths, const std::string& inner);

// True if the entry of target_modules or modules_to_save names this path.
bool matches_path(const std::string& entry, const std::string& path);

// Adds an adapter to each layer that the options name. After that, only the trained parameters
// require gradients. An entry that matches nothing is an error unless `is_lenient`, which is for
// options of files.
std::vector<std::string> attach_lora(torch::nn::Module& module, const LoraOptions& options,
                                     bool is_lenient);

}  // namespace hasten
