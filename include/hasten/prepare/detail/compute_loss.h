// File: hasten/prepare/detail/compute_loss.h
// The functions with which the Trainer and a TrainingStep compute the loss of any module, and with
// which the Trainer finds the labels of any batch.
//
//   struct Net : torch::nn::Module {
//     at::Tensor forward(const at::Tensor& x) { return x; }
//   };
//   using Batch = std::pair<at::Tensor, at::Tensor>;
//   LossFunction compute_loss = [](Net& net, const Batch& batch) {
//     const at::Tensor logits = net.forward(batch.first);
//     return ModelOutput{.loss = torch::nn::functional::cross_entropy(logits, batch.second),
//                        .logits = logits};
//   };
//   LabelFunction labels = [](const Batch& batch) { return batch.second; };
//
// A function names the types of its parameters, which must match the module and its batches. The
// parameter for the module may be its class, a base class of it, or a TORCH_MODULE holder. A loss
// function returns the loss alone, or a ModelOutput with the logits, which metrics and predictions
// need. Calls throw UsageError "prepare.model-type" and "data.batch-type". Thread rule: the same as
// for the function.
#pragma once

#include <torch/nn/module.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "hasten/base/detail/export.h"
#include "hasten/data/detail/any_batch.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/prepare/detail/prepare.h"

namespace hasten {

// A module that computes the loss of such a batch itself.
template <class Model, class Batch>
concept ComputesLoss = requires(Model& model, Batch& batch) {
  { model.forward(batch) } -> std::same_as<ModelOutput>;
};

// A module that takes and returns tensors by name, such as an ExportedModule. Its loss is the
// output "loss"; its logits are "logits", or the only other output. All other outputs are in
// ModelOutput::others.
template <class Model>
concept ReturnsTensorDict = requires(Model& model, TensorDict& batch) {
  { model.forward(batch) } -> std::same_as<TensorDict>;
};

namespace detail {

[[noreturn]] HASTEN_API void throw_model_type(const torch::nn::Module& given,
                                              const std::type_info& expected);

// Finds the loss, the logits and the others among the outputs.
HASTEN_API ModelOutput output_of(const TensorDict& outputs);

// The types of a function's parameters and result.
template <class ResultType, class... Parameters>
struct Signature {
  using Result = ResultType;
  static constexpr std::size_t count = sizeof...(Parameters);
  template <std::size_t index>
  using Parameter = std::remove_cvref_t<std::tuple_element_t<index, std::tuple<Parameters...>>>;
};
template <class Result, class... Parameters>
Signature<Result, Parameters...> signature_of(Result (*)(Parameters...));
template <class Result, class Class, class... Parameters>
Signature<Result, Parameters...> signature_of(Result (Class::*)(Parameters...));
template <class Result, class Class, class... Parameters>
Signature<Result, Parameters...> signature_of(Result (Class::*)(Parameters...) const);

// The signature of a function or of an object with one call operator that is not a template.
template <class F>
struct SignatureOf {};
template <class F>
requires requires { signature_of(&F::operator()); }
struct SignatureOf<F> {
  using type = decltype(signature_of(&F::operator()));
};
template <class F>
requires requires(F f) { signature_of(f); }
struct SignatureOf<F> {
  using type = decltype(signature_of(std::declval<F>()));
};
template <class F, std::size_t count>
concept HasParameters = requires {
  requires SignatureOf<F>::type::count == count;
};

// Calls f with the module as the type that f takes.
template <class Model, class F>
auto call_with(torch::nn::Module& module, F&& f) {
  if constexpr (Holder<Model>) {
    using Impl = typename Model::ContainedType;
    if (dynamic_cast<Impl*>(&module) == nullptr) throw_model_type(module, typeid(Impl));
    Model holder(std::dynamic_pointer_cast<Impl>(module.shared_from_this()));
    return f(holder);
  } else {
    static_assert(std::is_base_of_v<torch::nn::Module, Model>,
                  "The first parameter of compute_loss must be the module.");
    if constexpr (std::is_same_v<Model, torch::nn::Module>) {
      return f(module);
    } else {
      auto* const model = dynamic_cast<Model*>(&module);
      if (model == nullptr) throw_model_type(module, typeid(Model));
      return f(*model);
    }
  }
}

// Returns the batch as the type that a function takes, which may be AnyBatch itself.
template <class Batch>
Batch& batch_as(AnyBatch& batch) {
  if constexpr (std::is_same_v<Batch, AnyBatch>) {
    return batch;
  } else {
    return batch.as<Batch>();
  }
}

template <class Batch>
const std::type_info* type_of_batch() {
  return std::is_same_v<Batch, AnyBatch> ? nullptr : &typeid(Batch);
}

}  // namespace detail

class LossFunction {
 public:
  // Holds no function: operator bool returns false, and it must not be called.
  LossFunction() = default;

  template <class F>
  requires(!std::is_same_v<F, LossFunction>) LossFunction(F compute_loss) {
    static_assert(detail::HasParameters<F, 2>,
                  "compute_loss takes the module and the batch, and names both types: "
                  "[](Net& net, const Batch& batch) { ... }");
    if constexpr (detail::HasParameters<F, 2>) {
      using Signature = typename detail::SignatureOf<F>::type;
      using Model = typename Signature::template Parameter<0>;
      using Batch = typename Signature::template Parameter<1>;
      static_assert(std::is_same_v<typename Signature::Result, ModelOutput> ||
                        std::is_convertible_v<typename Signature::Result, at::Tensor>,
                    "compute_loss returns the loss, a tensor, or a ModelOutput.");
      batch_type_ = detail::type_of_batch<Batch>();
      call_ = [compute_loss](torch::nn::Module& module, AnyBatch& batch) {
        return detail::call_with<Model>(module, [&](auto& model) -> ModelOutput {
          if constexpr (std::is_same_v<typename Signature::Result, ModelOutput>) {
            return compute_loss(model, detail::batch_as<Batch>(batch));
          } else {
            return {.loss = compute_loss(model, detail::batch_as<Batch>(batch))};
          }
        });
      };
    }
  }

  explicit operator bool() const { return static_cast<bool>(call_); }
  ModelOutput operator()(torch::nn::Module& model, AnyBatch& batch) const {
    return call_(model, batch);
  }
  // The type of the batches that the function takes; null if it takes any.
  const std::type_info* batch_type() const { return batch_type_; }

 private:
  std::function<ModelOutput(torch::nn::Module&, AnyBatch&)> call_;
  const std::type_info* batch_type_ = nullptr;
};

class LabelFunction {
 public:
  // Holds no function: AnyBatch::labels() finds the labels.
  LabelFunction() = default;

  template <class F>
  requires(!std::is_same_v<F, LabelFunction>) LabelFunction(F labels) {
    static_assert(detail::HasParameters<F, 1>,
                  "labels takes the batch and names its type: "
                  "[](const Batch& batch) { return batch.target; }");
    if constexpr (detail::HasParameters<F, 1>) {
      using Batch = typename detail::SignatureOf<F>::type::template Parameter<0>;
      batch_type_ = detail::type_of_batch<Batch>();
      call_ = [labels](AnyBatch& batch) -> at::Tensor {
        return labels(detail::batch_as<Batch>(batch));
      };
    }
  }

  explicit operator bool() const { return static_cast<bool>(call_); }
  at::Tensor operator()(AnyBatch& batch) const { return call_(batch); }
  // The type of the batches that the function takes; null if it takes any.
  const std::type_info* batch_type() const { return batch_type_; }

 private:
  std::function<at::Tensor(AnyBatch&)> call_;
  const std::type_info* batch_type_ = nullptr;
};

namespace detail {

// Returns the forward() of a module that computes its own loss, or no function for any other
// module. A forward() that is overloaded or a template is found if it takes a TensorDict.
template <class Model>
LossFunction forward_of() {
  if constexpr (ComputesLoss<Model, TensorDict>) {
    return LossFunction([](Model& model, TensorDict& batch) { return model.forward(batch); });
  } else if constexpr (ReturnsTensorDict<Model>) {
    return LossFunction(
        [](Model& model, TensorDict& batch) { return output_of(model.forward(batch)); });
  } else if constexpr (requires { signature_of(&Model::forward); }) {
    using Signature = decltype(signature_of(&Model::forward));
    if constexpr (std::is_same_v<typename Signature::Result, ModelOutput> &&
                  Signature::count == 1) {
      using Batch = typename Signature::template Parameter<0>;
      return LossFunction([](Model& model, Batch& batch) { return model.forward(batch); });
    } else {
      return {};
    }
  } else {
    return {};
  }
}

}  // namespace detail

}  // namespace hasten
