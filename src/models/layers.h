// File: models/layers.h (internal)
// The layers of the models in this folder. They only hold parameters, which are uninitialized until
// they are loaded or initialize() is called. So no random numbers are drawn for weights that a file
// overwrites.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hasten/formats/detail/tensor_dict.h"
#include "hasten/models/linear_layers.h"
#include "hasten/ops/ops.h"
#include "ops/bias_tanh_gelu.h"

namespace hasten {

inline at::Tensor find_or_undefined(const TensorDict& batch, const char* name) {
  const auto found = batch.find(name);
  return found == batch.end() ? at::Tensor() : found->second;
}

// True if a batch has labels that may be classes. The loss of whole logits refuses other labels.
inline bool has_classes(const TensorDict& batch) {
  const at::Tensor labels = find_or_undefined(batch, "labels");
  return labels.defined() && !labels.is_floating_point();
}

// Files may hold ids as int32, but the operators take int64.
inline at::Tensor as_int64(const at::Tensor& ids) {
  return ids.defined() && ids.scalar_type() == at::kInt ? ids.to(at::kLong) : ids;
}

// Calls `set` with the name and the tensor of each parameter, or only of those in `names`, without
// recording gradients.
template <class Set>
void initialize_parameters(const torch::nn::Module& module, const std::vector<std::string>* names,
                           Set set) {
  const torch::NoGradGuard no_grad;
  for (const auto& item : module.named_parameters()) {
    if (!names || std::find(names->begin(), names->end(), item.key()) != names->end())
      set(item.key(), item.value());
  }
}

// Adds a module that only gives the parameters below it a part of their names.
inline std::shared_ptr<torch::nn::Module> add_submodule(torch::nn::Module& parent,
                                                        const char* name) {
  return parent.register_module(name, std::make_shared<torch::nn::Module>());
}

// A linear layer with weight [out, in] and bias [out], which may be left out.
class Projection : public torch::nn::Module, public LinearLayers {
 public:
  Projection(std::int64_t in, std::int64_t out, bool has_bias = true)
      : weight(register_parameter("weight", at::empty({out, in}))) {
    if (has_bias) bias = register_parameter("bias", at::empty({out}));
  }
  at::Tensor operator()(const at::Tensor& x) const { return ops::linear(x, weight, bias); }
  // Returns the product without the bias, which a later operation adds.
  at::Tensor product(const at::Tensor& x) const { return ops::linear(x, weight, {}); }

  std::vector<LinearLayer> linear_layers() const override { return {{}}; }
  void set_linear_weight(const std::string&, const at::Tensor& tensor) override { weight = tensor; }

  at::Tensor weight, bias;
};

// A linear layer with weight [in, out], as GPT-2 stores it, and bias [out]; transformers calls it
// Conv1D.
class TransposedProjection : public torch::nn::Module, public LinearLayers {
 public:
  TransposedProjection(std::int64_t in, std::int64_t out)
      : weight(register_parameter("weight", at::empty({in, out}))),
        bias(register_parameter("bias", at::empty({out}))) {}
  at::Tensor operator()(const at::Tensor& x) const {
    return ops::linear_transposed(x, weight, bias);
  }
  // Returns the product without the bias, which a later operation adds.
  at::Tensor product(const at::Tensor& x) const { return ops::linear_transposed(x, weight, {}); }

  std::vector<LinearLayer> linear_layers() const override { return {{.is_transposed = true}}; }
  void set_linear_weight(const std::string&, const at::Tensor& tensor) override { weight = tensor; }

  at::Tensor weight, bias;
};

// A layer normalization with weight [n] and bias [n].
class Norm : public torch::nn::Module {
 public:
  Norm(std::int64_t n, double epsilon)
      : weight(register_parameter("weight", at::empty({n}))),
        bias(register_parameter("bias", at::empty({n}))),
        epsilon(epsilon) {}
  at::Tensor operator()(const at::Tensor& x) const {
    return at::layer_norm(x, {x.size(-1)}, weight, bias, epsilon);
  }

  at::Tensor weight, bias;
  double epsilon;
};

// An embedding table with weight [rows, n].
class EmbeddingTable : public torch::nn::Module {
 public:
  EmbeddingTable(std::int64_t rows, std::int64_t n)
      : weight(register_parameter("weight", at::empty({rows, n}))) {}

  at::Tensor weight;
};

// Returns embeddings [batch, length, n] with NEFTune's noise: uniform in [-alpha, alpha] /
// sqrt(length * n).
inline at::Tensor with_noise(const at::Tensor& x, double alpha) {
  const double bound = alpha / std::sqrt(static_cast<double>(x.size(1) * x.size(2)));
  return x + at::empty_like(x).uniform_(-bound, bound);
}

// A two-dimensional convolution with weight [out, in, height, width], and bias [out] if it has one.
class Convolution : public torch::nn::Module {
 public:
  struct Options {
    std::vector<std::int64_t> kernel, stride, padding = {0, 0};
    bool has_bias = false;
  };
  Convolution(std::int64_t in, std::int64_t out, const Options& options)
      : weight(register_parameter(
            "weight", at::empty({out, in, options.kernel.at(0), options.kernel.at(1)}))),
        options_(options) {
    if (options.has_bias) bias = register_parameter("bias", at::empty({out}));
  }
  at::Tensor operator()(const at::Tensor& x) const {
    return at::conv2d(x, weight, bias, options_.stride, options_.padding);
  }

  at::Tensor weight, bias;

 private:
  Options options_;
};

// Activations have the names that transformers gives them.
inline bool is_tanh_gelu(const std::string& name) {
  return name == "gelu_new" || name == "gelu_pytorch_tanh";
}
inline at::Tensor activate(const std::string& name, const at::Tensor& u) {
  if (name == "gelu") return at::gelu(u);
  if (is_tanh_gelu(name)) return at::gelu(u, "tanh");
  if (name == "relu") return at::relu(u);
  if (name == "tanh") return at::tanh(u);
  return at::silu(u);
}

// Applies the activation to a projection of x.
template <class AnyProjection>
at::Tensor activate(const std::string& name, const AnyProjection& dense, const at::Tensor& x) {
  if (name == "gelu" && ops::fuses_bias(x)) return ops::bias_gelu(dense.product(x), dense.bias);
  if (is_tanh_gelu(name) && ops::fuses_bias_tanh_gelu(x, dense.bias))
    return ops::bias_tanh_gelu(dense.product(x), dense.bias);
  return activate(name, dense(x));
}

// Returns the normalized stream. `norm` computes it unless the layer before has done so.
template <class AnyNorm>
at::Tensor normalize_stream(const AnyNorm& norm, const ops::NormedStream& in) {
  return in.normed.defined() ? in.normed : norm(in.stream);
}

// Adds dropout(dense(x)) to a residual stream, and normalizes the sum for the next sublayer.
template <class Dense, class AnyNorm>
ops::NormedStream add_and_normalize(const Dense& dense, const AnyNorm& norm, const at::Tensor& x,
                                    const at::Tensor& stream, double p, bool training) {
  const bool fuses = ops::fuses_pre_norm(stream);
  return ops::dropout_add_pre_norm(fuses ? dense.product(x) : dense(x),
                                   fuses ? dense.bias : at::Tensor(), stream, norm.weight,
                                   norm.bias, norm.epsilon, p, training);
}

// Does the same at the end of a layer with the norm of the next layer. If `next` is null, only
// adds.
template <class Dense, class AnyNorm>
ops::NormedStream add_for_next(const Dense& dense, const AnyNorm* next, const at::Tensor& x,
                               const at::Tensor& stream, double p, bool training) {
  if (next != nullptr) return add_and_normalize(dense, *next, x, stream, p, training);
  return {.stream = stream + ops::dropout(dense(x), p, training), .normed = {}};
}

// Runs layers with norms before their sublayers: calls forward(layer, stream, norm of the next
// layer). The norm is null if the next layer computes it itself, from a stream without `normed`.
template <class Layer, class Forward>
at::Tensor run_pre_norm_layers(const std::vector<std::shared_ptr<Layer>>& layers, at::Tensor x,
                               Forward forward) {
  ops::NormedStream stream{.stream = std::move(x), .normed = {}};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto* next = i + 1 < layers.size() ? layers[i + 1]->norm_before(stream.stream) : nullptr;
    stream = forward(*layers[i], stream, next);
  }
  return stream.stream;
}

}  // namespace hasten
