// File: hasten/models/recomputation.h
// Recomputation of the layers of a model: which layers run again in the backward pass, instead of
// keeping their activations (hasten/autograd/checkpoint.h).
//
//   auto model = load_model("bert-base", {}).model;
//   set_recomputation(*model, Recomputation{.every_n_layers = 2});
//   set_recomputation(*model, std::nullopt);                        // as before
//
// Works for hasten's models, for exported programs, and for every module whose layers derive from
// RecomputableLayer:
//
//   struct Block : torch::nn::Module, RecomputableLayer {
//     torch::nn::Linear in = register_module("in", torch::nn::Linear(8, 32)),
//                       out = register_module("out", torch::nn::Linear(32, 8));
//     at::Tensor forward(const at::Tensor& x) {
//       return run_recomputable(
//           [this](const at::Tensor& y) { return out(torch::gelu(in(y))) + y; }, x);
//     }
//   };
//
// The Trainer does this with activation_checkpointing. A module with another structure calls
// checkpoint() in its forward(), which needs no switch. Throws UsageError
// "models.no-recomputation" for a module without such layers, and "models.recomputed-modules" for a
// pattern that matches no layer. Thread rule: no thread may run the module during a call. Source:
// GradientCheckpointingLayer of transformers 5.23, which counts layers in the same order.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hasten/autograd/checkpoint.h"
#include "hasten/base/detail/export.h"

namespace hasten {

struct Recomputation {
  // Recomputes every n-th layer, starting with the first; the others keep their activations.
  std::int64_t every_n_layers = 1;
  RecomputePolicy policy = RecomputePolicy::full;
  // Patterns of module paths, such as "bert.encoder.layer.*" (fnmatch: * matches any text, [0-5]
  // one of these characters). Selects the layers for which a pattern matches the path or a path
  // above it. An exported program recomputes each call of such a module, whether or not it is a
  // layer. If empty, all layers are selected.
  std::vector<std::string> modules = {};
  // Keeps the inputs of recomputed layers in host memory. The model must not be on the CPU.
  bool offload = false;
  bool preserve_rng_state = true;
};

// A layer that can be recomputed. It is not recomputed until set_recomputation() selects it.
class HASTEN_API RecomputableLayer {
 public:
  virtual ~RecomputableLayer() = default;
  void set_checkpoint(std::optional<CheckpointOptions> options) { options_ = std::move(options); }

 protected:
  bool is_recomputed() const { return options_.has_value(); }

  // Calls fn(inputs...), as a region of checkpoint() if the layer is recomputed.
  template <class F, class... Inputs>
  auto run_recomputable(F&& fn, const Inputs&... inputs) const {
    return options_ ? checkpoint(*options_, std::forward<F>(fn), inputs...)
                    : std::invoke(fn, inputs...);
  }

 private:
  std::optional<CheckpointOptions> options_;
};

// Recomputes layers of the module from now on, or none if `wanted` is unset. Returns their paths.
// Throws UsageError "models.no-recomputation" if the module has no layers that can be recomputed,
// and "models.recomputed-modules" for a pattern without a match and for every_n_layers below 1.
HASTEN_API std::vector<std::string> set_recomputation(torch::nn::Module& module,
                                                      const std::optional<Recomputation>& wanted);

// Returns the paths that `wanted` selects, in order. Throws "models.recomputed-modules".
HASTEN_API std::vector<std::string> select_layers(const std::vector<std::string>& paths,
                                                  const Recomputation& wanted);
// True if a pattern matches the path or a path above it.
HASTEN_API bool is_selected_path(const std::string& path, const std::vector<std::string>& patterns);

}  // namespace hasten
