// File: hasten/models/hooks.h
// Functions that run before and after a module's forward pass, and in its backward pass, like
// PyTorch's register_forward_pre_hook, register_forward_hook and register_full_backward_hook.
//
//   std::vector<at::Tensor> features;
//   const HookHandle handle = register_forward_hook(
//       *net, [&](torch::nn::Module&, const std::vector<at::Tensor>&,
//                 std::vector<at::Tensor>& outputs) { features.push_back(outputs[0].detach()); });
//   call_module(*net, x);   // runs the hooks; net->forward(x) does not
//
//   // The gradients of every parameter of any module, however it is called.
//   const HookHandle norms = watch_gradients(
//       *net, [](const std::string& name, const at::Tensor& gradient) {
//         std::cout << name << ' ' << gradient.norm().item<double>() << '\n';
//       });
//
// Calls that run hooks. In Python, every call of a module passes through Module.__call__. C++ calls
// a module's forward() directly, and nothing can observe that. Hooks run in:
//
// - call_module(module, arguments...);
// - a member of type HookedModule<Linear> in place of Linear: fc1(x) runs hooks, fc1->forward(x)
// does not;
// - the modules in a Sequential, after hook_sequentials(root), without a change to their code;
// - the model that Accelerator::prepare returns: model(x).
//
// watch_gradients needs none of these, because it watches tensors.
//
// Tensors: hooks see the tensors of the arguments and of the result in order, including the tensors
// in pairs, tuples, vectors, maps, optionals and plain structs (hasten/data/batch.h). Hooks do not
// see an argument that contains anything other than tensors. Some tensors may be undefined. A hook
// may replace tensors, but must not change their number. Inside a Sequential, hooks see tensors and
// the results of LSTM, GRU and RNN.
//
// Backward hooks: the module's inputs and outputs are views that autograd made for the hook, so
// changing them in place (ReLU with inplace) is an error, as in PyTorch. A backward hook runs once
// in each backward pass that reaches the module's inputs, or its outputs if no input requires a
// gradient. A gradient that does not exist is undefined; so are all gradients of the outputs if a
// loss uses a tensor from inside the module but none of its outputs.
//
// Throws UsageError "models.hook-owner", "models.hook-tensors". Thread rule: hooks may be
// registered and removed on any thread; a hook runs on the thread of the call, and a backward hook
// on a thread of autograd.
// Source: torch/nn/modules/module.py and torch/utils/hooks.py of PyTorch 2.11.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/data/batch.h"

namespace hasten {

using ForwardPreHook =
    std::function<void(torch::nn::Module& module, std::vector<at::Tensor>& inputs)>;
using ForwardHook =
    std::function<void(torch::nn::Module& module, const std::vector<at::Tensor>& inputs,
                       std::vector<at::Tensor>& outputs)>;
using BackwardHook =
    std::function<void(torch::nn::Module& module, std::vector<at::Tensor>& grad_inputs,
                       const std::vector<at::Tensor>& grad_outputs)>;
using GradientWatcher = std::function<void(const std::string& name, const at::Tensor& gradient)>;

// Keeps a hook registered until it is destroyed.
class [[nodiscard]] HASTEN_API HookHandle {
 public:
  explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
  HookHandle(HookHandle&& other) noexcept : remove_(std::exchange(other.remove_, nullptr)) {}
  HookHandle& operator=(HookHandle&& other) noexcept;
  ~HookHandle() { remove(); }
  // Removes the hook now.
  void remove();

 private:
  std::function<void()> remove_;
};

// The module must be owned by a shared_ptr, as the module in a torch::nn::ModuleHolder is. Hooks
// run in the order of their registration.
HASTEN_API HookHandle register_forward_pre_hook(torch::nn::Module& module, ForwardPreHook hook);
HASTEN_API HookHandle register_forward_hook(torch::nn::Module& module, ForwardHook hook);
HASTEN_API HookHandle register_full_backward_hook(torch::nn::Module& module, BackwardHook hook);

// Calls `watcher` for each parameter that requires a gradient, whenever a backward pass has
// computed its gradient and before it is added to grad().
HASTEN_API HookHandle watch_gradients(const torch::nn::Module& module, GradientWatcher watcher);

// Lets the modules in every Sequential of `root` run hooks from now on. Modules, names, parameters
// and clone() of the Sequential stay the same, and ptr(i) returns the module; at<T>(i) and
// ptr<T>(i) throw.
HASTEN_API void hook_sequentials(torch::nn::Module& root);

namespace detail {

// One call of a module that has hooks.
class HASTEN_API HookedCall {
 public:
  explicit HookedCall(torch::nn::Module& module);
  HookedCall(const HookedCall&) = delete;
  HookedCall& operator=(const HookedCall&) = delete;
  ~HookedCall();

  // False if the module has no hooks; then nothing else may be called.
  explicit operator bool() const { return state_ != nullptr; }
  void before(std::vector<at::Tensor>& inputs);
  void after(std::vector<at::Tensor>& outputs);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// An argument of a call: a copy if it consists of tensors, which hooks may replace; otherwise a
// reference.
template <class Argument>
class CallArgument {
  using Value = std::remove_cvref_t<Argument>;
  static constexpr bool has_tensors = TensorBatch<Value>;

 public:
  explicit CallArgument(Argument&& argument) : value_(std::forward<Argument>(argument)) {}
  template <class F>
  void visit(F&& f) {
    if constexpr (has_tensors) for_each_tensor(value_, f);
  }
  Argument&& get() { return static_cast<Argument&&>(value_); }

 private:
  std::conditional_t<has_tensors, Value, Argument&&> value_;
};

// Calls `change` with the tensors that `visit` finds, and puts them back.
template <class Visit, class Change>
void change_tensors(Visit&& visit, Change&& change) {
  std::vector<at::Tensor> tensors;
  visit([&](at::Tensor& tensor) { tensors.push_back(tensor); });
  change(tensors);
  auto next = tensors.begin();
  visit([&](at::Tensor& tensor) { tensor = *next++; });
}

}  // namespace detail

// Calls module.forward(arguments...) with the module's hooks.
template <class Module, class... Arguments>
auto call_module(Module& module, Arguments&&... arguments) {
  detail::HookedCall call(module);
  if (!call) return module.forward(std::forward<Arguments>(arguments)...);
  std::tuple<detail::CallArgument<Arguments>...> all(
      detail::CallArgument<Arguments>(std::forward<Arguments>(arguments))...);
  detail::change_tensors(
      [&](auto&& f) { std::apply([&](auto&... each) { (each.visit(f), ...); }, all); },
      [&](std::vector<at::Tensor>& inputs) { call.before(inputs); });
  const auto forward = [&](auto&... each) { return module.forward(each.get()...); };
  if constexpr (std::is_void_v<decltype(std::apply(forward, all))>) {
    std::apply(forward, all);
    std::vector<at::Tensor> none;
    call.after(none);
  } else {
    auto result = std::apply(forward, all);
    detail::change_tensors([&](auto&& f) { for_each_tensor(result, f); },
                           [&](std::vector<at::Tensor>& outputs) { call.after(outputs); });
    return result;
  }
}

// A ModuleHolder whose calls run hooks.
//
//   struct Net : torch::nn::Module {
//     HookedModule<torch::nn::Linear> fc1 =
//         register_module("fc1", HookedModule<torch::nn::Linear>(2, 3));
//     at::Tensor forward(const at::Tensor& x) { return fc1(x); }
//   };
template <class Holder>
class HookedModule : public Holder {
 public:
  using Holder::Holder;
  HookedModule() = default;
  HookedModule(Holder holder) : Holder(std::move(holder)) {}

  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return call_module(*this->get(), std::forward<Arguments>(arguments)...);
  }
};

}  // namespace hasten
