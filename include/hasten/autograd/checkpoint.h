// File: hasten/autograd/checkpoint.h
// Recomputation (activation checkpointing): runs a part of a model without keeping what its
// backward pass needs, and runs it once more when the backward pass reaches it. This takes the time
// of one more forward pass of that part, and memory for its inputs instead of for everything inside
// it.
//
//   struct Tower : torch::nn::Module {
//     std::vector<torch::nn::Linear> layers;
//     at::Tensor forward(at::Tensor x) {
//       for (auto& layer : layers)
//         x = checkpoint([layer](const at::Tensor& y) mutable { return torch::gelu(layer(y)); }, x);
//       return x;
//     }
//   };
//
// `fn` may take any number of arguments and return anything. The tensors among the arguments (also
// inside the containers and structs of hasten/data/batch.h) are kept for the second run, so pass
// the tensors that fn computes with. Everything else that fn captures must still exist, unchanged,
// during the backward pass. Arguments need not require gradients: parameters that fn uses get
// theirs in any case. Regions may be nested. Without gradients (NoGradGuard) fn is simply called.
//
// Both runs have the same random numbers (of the CPU and of the devices of the inputs), the same
// autocast, and the same gradients as without checkpoint(), to the bit if the operators are
// deterministic. A backward pass with retain_graph or create_graph works, and so do
// torch::autograd::grad and hooks of parameters, which run once. Hooks of modules inside fn
// (hasten/models/hooks.h) run in both runs. The second run stops as soon as it has everything that
// the backward pass needs.
//
// RecomputePolicy::selective keeps the results of matrix products, convolutions and attention, so
// that the second run computes only the cheap operators between them: less time than `full`, and
// more memory.
//
// Throws UsageError "autograd.recomputed-tensors" in the backward pass if the second run saves
// other tensors than the first (the function depends on something that has changed), and
// "autograd.changed-state" for a tensor of `state` that requires a gradient. Thread rule: that of
// the module; a region may be used by several backward passes one after the other.
// Source: torch.utils.checkpoint of PyTorch with use_reentrant=False; Chen et al. 2016 (arXiv
// 1604.06174).
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/data/batch.h"
#include "hasten/options/detail/names.h"

namespace hasten {

enum class RecomputePolicy {
  full,       // Recomputes everything.
  selective,  // Keeps the results of products, convolutions and attention.
};

struct CheckpointOptions {
  RecomputePolicy policy = RecomputePolicy::full;
  // If false, the second run draws different random numbers, which is wrong for dropout. For
  // functions that draw none, false saves 5 KB per region.
  bool preserve_rng_state = true;
  // Keeps the inputs in host memory (hasten/autograd/activation_offload.h). The inputs must not be
  // on the CPU.
  bool offload = false;
  // Tensors without gradients that fn changes as a side effect, such as the running statistics of a
  // batch norm. The second run begins with the same values as the first, and restores the values
  // that it found, so that one step changes them once. They are copied.
  std::vector<at::Tensor> state = {};
};

// Returns whether this thread runs a region for the second time.
HASTEN_API bool is_recomputing();

namespace detail {

// The first run of a region. Tensors that this thread saves for the backward pass while the object
// exists belong to the region.
class [[nodiscard]] HASTEN_API RecomputedRegion {
 public:
  using Inputs = std::vector<at::Tensor>;
  // `run` runs the function again, with these inputs.
  RecomputedRegion(const CheckpointOptions& options, const Inputs& inputs,
                   std::function<void(const Inputs&)> run);
  RecomputedRegion(const RecomputedRegion&) = delete;
  RecomputedRegion& operator=(const RecomputedRegion&) = delete;
  ~RecomputedRegion();

  // Records the results of the first run, because code that uses them may change them in place.
  void record_outputs(const Inputs& outputs);

 private:
  struct FirstRunPolicy;
  std::unique_ptr<FirstRunPolicy> run_;
};

// Returns whether operators record gradients now.
HASTEN_API bool records_gradients();

// Calls f with each tensor of the arguments.
template <class Arguments, class F>
void for_each_argument_tensor(Arguments& arguments, F&& f) {
  std::apply([&](auto&... each) { (for_each_tensor(each, f), ...); }, arguments);
}

}  // namespace detail

template <class F, class... Inputs>
auto checkpoint(const CheckpointOptions& options, F&& fn, const Inputs&... inputs) {
  if (!detail::records_gradients()) return std::invoke(fn, inputs...);
  const auto kept = std::make_shared<std::decay_t<F>>(std::forward<F>(fn));
  std::vector<at::Tensor> tensors;
  // The region keeps the tensors, so the arguments that are kept here have none.
  std::tuple<std::decay_t<Inputs>...> arguments(inputs...);
  detail::for_each_argument_tensor(arguments, [&](at::Tensor& tensor) {
    tensors.push_back(std::exchange(tensor, at::Tensor()));
  });
  detail::RecomputedRegion region(
      options, tensors, [kept, arguments](const std::vector<at::Tensor>& again) {
        auto complete = arguments;
        auto next = again.begin();
        detail::for_each_argument_tensor(complete, [&](at::Tensor& tensor) { tensor = *next++; });
        std::apply([&](auto&... each) { std::invoke(*kept, std::as_const(each)...); }, complete);
      });
  tensors.clear();
  using Result = std::invoke_result_t<std::decay_t<F>&, const Inputs&...>;
  if constexpr (std::is_void_v<Result>) {
    std::invoke(*kept, inputs...);
  } else {
    std::decay_t<Result> result = std::invoke(*kept, inputs...);
    for_each_tensor(result, [&](at::Tensor& tensor) { tensors.push_back(tensor); });
    region.record_outputs(tensors);
    return result;
  }
}

template <class F, class... Inputs>
requires(!std::same_as<std::decay_t<F>, CheckpointOptions>) auto checkpoint(
    F&& fn, const Inputs&... inputs) {
  return checkpoint(CheckpointOptions{}, std::forward<F>(fn), inputs...);
}

template <>
struct Names<RecomputePolicy> {
  static constexpr std::string_view text[] = {"full", "selective"};
};

}  // namespace hasten
