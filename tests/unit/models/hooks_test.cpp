#include "hasten/models/hooks.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <map>
#include <string>

#include "hasten/base/error.h"
#include "hasten/formats/detail/tensor_dict.h"
#include "unit/code_of.h"

namespace models_hooks_test {

using namespace hasten;
namespace nn = torch::nn;
using Tensors = std::vector<at::Tensor>;

namespace {

struct Result {
  at::Tensor sum, product;
};

// Returns the sum of two inputs and their product times `factor`.
struct PairImpl : nn::Module {
  Result forward(const TensorDict& batch, int factor) {
    return {batch.at("a") + batch.at("b"), batch.at("a") * batch.at("b") * factor};
  }
};
TORCH_MODULE(Pair);

struct Net : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return second->forward(at::relu(first(x))); }
  HookedModule<nn::Linear> first = register_module("first", HookedModule<nn::Linear>(3, 4));
  HookedModule<nn::Linear> second = register_module("second", HookedModule<nn::Linear>(4, 2));
};

at::Tensor leaf(at::IntArrayRef sizes) { return at::rand(sizes).requires_grad_(); }

}  // namespace

TEST_CASE("hooks: forward hooks see and replace inputs and outputs") {
  nn::Linear layer(3, 2);
  const at::Tensor x = at::rand({5, 3}), plain = layer(x);
  std::string order;
  HookHandle first = register_forward_pre_hook(*layer, [&](nn::Module& module, Tensors& inputs) {
    order += "pre ";
    CHECK(&module == layer.get());
    CHECK(inputs.size() == 1);
    inputs[0] = inputs[0] * 2;
  });
  HookHandle second =
      register_forward_hook(*layer, [&](nn::Module&, const Tensors& inputs, Tensors& outputs) {
        order += "first ";
        CHECK(at::equal(inputs.at(0), x * 2));
        outputs.at(0) = outputs[0] - layer->bias;
      });
  const HookHandle third = register_forward_hook(
      *layer, [&](nn::Module&, const Tensors&, Tensors&) { order += "second "; });
  // The differences have the rounding errors of the larger numbers that they come from.
  CHECK(at::allclose(call_module(*layer, x), (plain - layer->bias) * 2, 1e-5, 1e-6));
  CHECK(order == "pre first second ");
  CHECK(at::equal(layer->forward(x), plain));  // a direct call runs no hook
  first.remove();
  first.remove();
  second = register_forward_hook(
      *layer, [&](nn::Module&, const Tensors&, Tensors& outputs) { outputs.clear(); });
  CHECK(code_of([&] { call_module(*layer, x); }) == "models.hook-tensors");
  second.remove();
  CHECK(at::equal(call_module(*layer, x), plain));
}

TEST_CASE("hooks: tensors are found in maps and structs, and other arguments are unchanged") {
  Pair pair;
  const TensorDict batch = {{"a", at::full({2}, 3.0)}, {"b", at::full({2}, 5.0)}};
  const HookHandle before = register_forward_pre_hook(
      *pair, [](nn::Module&, Tensors& inputs) { inputs.at(1) = at::full({2}, 7.0); });
  const HookHandle after =
      register_forward_hook(*pair, [](nn::Module&, const Tensors& inputs, Tensors& outputs) {
        CHECK(inputs.size() == 2);
        std::swap(outputs.at(0), outputs.at(1));
      });
  const Result result = call_module(*pair, batch, 10);
  CHECK(result.sum.eq(210).all().item<bool>());
  CHECK(result.product.eq(10).all().item<bool>());
  CHECK(batch.at("b").eq(5).all().item<bool>());  // the caller's batch is unchanged
}

TEST_CASE("hooks: backward hooks receive the gradients of this call alone") {
  nn::Linear layer(3, 2);
  const at::Tensor x = leaf({5, 3});
  Tensors seen_inputs, seen_outputs;
  int runs = 0;
  HookHandle handle = register_full_backward_hook(
      *layer, [&](nn::Module& module, Tensors& grad_inputs, const Tensors& grad_outputs) {
        ++runs;
        CHECK(&module == layer.get());
        seen_inputs = grad_inputs;
        seen_outputs = grad_outputs;
      });
  // x is also used outside the layer, as in a residual connection.
  ((call_module(*layer, x) * 3).sum() + x.sum()).backward();
  CHECK(runs == 1);
  CHECK(seen_outputs.at(0).eq(3).all().item<bool>());
  const at::Tensor expected = at::full({5, 2}, 3.0f).mm(layer->weight.detach());
  CHECK(at::allclose(seen_inputs.at(0), expected));
  CHECK(at::allclose(x.grad(), expected + 1));

  // The replaced gradient reaches the input. The gradients of the parameters do not change.
  const at::Tensor weight_gradient = layer->weight.grad().clone();
  handle = register_full_backward_hook(
      *layer, [](nn::Module&, Tensors& grad_inputs, const Tensors&) { grad_inputs[0].zero_(); });
  layer->zero_grad();
  x.mutable_grad() = at::Tensor();
  (call_module(*layer, x) * 3).sum().backward();
  CHECK(x.grad().eq(0).all().item<bool>());
  CHECK(at::allclose(layer->weight.grad(), weight_gradient));

  // The inputs of a first layer need no gradient, but the hook still runs.
  handle = register_full_backward_hook(
      *layer, [&](nn::Module&, Tensors& grad_inputs, const Tensors& grad_outputs) {
        ++runs;
        CHECK_FALSE(grad_inputs.at(0).defined());
        CHECK(grad_outputs.at(0).defined());
      });
  const at::Tensor y = call_module(*layer, x.detach()).sum();
  y.backward({}, /*keep_graph=*/true);
  y.backward();
  CHECK(runs == 3);
  {
    const torch::NoGradGuard no_grad;
    call_module(*layer, x);
  }
  CHECK(runs == 3);
}

TEST_CASE("hooks: a backward hook has undefined gradients for unused results") {
  Pair pair;
  const at::Tensor a = leaf({2}), b = at::rand({2});
  int runs = 0;
  HookHandle handle = register_full_backward_hook(
      *pair, [&](nn::Module&, Tensors& grad_inputs, const Tensors& grad_outputs) {
        ++runs;
        CHECK(grad_inputs.at(0).defined());
        CHECK_FALSE(grad_inputs.at(1).defined());
        CHECK_FALSE(grad_outputs.at(0).defined());
        CHECK(grad_outputs.at(1).defined());
      });
  call_module(*pair, TensorDict{{"a", a}, {"b", b}}, 2).product.sum().backward();
  CHECK(runs == 1);
  CHECK(at::allclose(a.grad(), b * 2));
  // A second derivative runs the hook again. It reaches the inputs without passing the outputs.
  handle =
      register_full_backward_hook(*pair, [&](nn::Module&, Tensors&, const Tensors& grad_outputs) {
        CHECK(grad_outputs.at(1).defined() == (runs++ == 0));
      });
  runs = 0;
  const at::Tensor product = call_module(*pair, TensorDict{{"a", a}, {"b", a}}, 1).product.sum();
  const at::Tensor gradient = torch::autograd::grad({product}, {a}, {}, {}, true)[0];
  CHECK(at::allclose(torch::autograd::grad({gradient.sum()}, {a})[0], at::full({2}, 2.0f)));
  CHECK(runs == 2);
}

TEST_CASE("hooks: a module calls members of type HookedModule with hooks") {
  const auto net = std::make_shared<Net>();
  CHECK(net->named_parameters().contains("first.weight"));
  std::map<std::string, int> calls;
  const auto count = [&](const char* name) {
    return [&calls, name](nn::Module&, const Tensors&, Tensors&) { ++calls[name]; };
  };
  const HookHandle first = register_forward_hook(*net->first, count("first"));
  const HookHandle second = register_forward_hook(*net->second, count("second"));
  net->forward(at::rand({2, 3}));
  CHECK(calls == std::map<std::string, int>{{"first", 1}});  // second is called with ->forward
}

TEST_CASE("hooks: an unmodified Sequential runs the hooks of its modules") {
  nn::Sequential net(nn::Linear(3, 4), nn::ReLU(),
                     nn::LSTM(nn::LSTMOptions(4, 2).batch_first(true)));
  const at::Tensor x = leaf({2, 5, 3});
  using Output = std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>>;
  const at::Tensor plain = std::get<0>(net->forward<Output>(x));
  hook_sequentials(*net);
  hook_sequentials(*net);
  CHECK(at::equal(std::get<0>(net->forward<Output>(x)), plain));
  CHECK(net->ptr(0)->as<nn::Linear>() != nullptr);
  CHECK(net->named_parameters().contains("0.weight"));
  CHECK(net->parameters().size() == 6);

  at::Tensor features, gradient;
  std::size_t outputs_of_lstm = 0;
  const HookHandle linear = register_forward_hook(
      *net->ptr(0), [&](nn::Module&, const Tensors&, Tensors& outputs) { features = outputs[0]; });
  const HookHandle relu = register_full_backward_hook(
      *net->ptr(1),
      [&](nn::Module&, Tensors& grad_inputs, const Tensors&) { gradient = grad_inputs[0]; });
  const HookHandle lstm = register_forward_hook(
      *net->ptr(2), [&](nn::Module&, const Tensors& inputs, Tensors& outputs) {
        CHECK(inputs.size() == 1);
        outputs_of_lstm = outputs.size();
      });
  const at::Tensor out = std::get<0>(net->forward<Output>(x));
  CHECK(at::equal(out, plain));
  CHECK(at::equal(features, net->ptr(0)->as<nn::Linear>()->forward(x)));
  CHECK(outputs_of_lstm == 3);
  out.sum().backward();
  CHECK(gradient.sizes() == features.sizes());
  CHECK(gradient.masked_select(features.le(0)).eq(0).all().item<bool>());

  // A clone has its own parameters and no hooks.
  features = at::Tensor();
  const auto copy = std::dynamic_pointer_cast<nn::SequentialImpl>(net->clone());
  CHECK(at::equal(std::get<0>(copy->forward<Output>(x)), plain));
  CHECK_FALSE(features.defined());
  CHECK_FALSE(copy->parameters()[0].is_same(net->parameters()[0]));
}

TEST_CASE("hooks: gradients of parameters are observed however the module is called") {
  const auto net = std::make_shared<Net>();
  net->second->bias.requires_grad_(false);
  std::map<std::string, double> norms;
  HookHandle handle = watch_gradients(*net, [&](const std::string& name, const at::Tensor& grad) {
    norms[name] = grad.norm().item<double>();
  });
  net->forward(at::rand({2, 3})).sum().backward();
  CHECK(norms.size() == 3);
  CHECK(norms.at("first.weight") == net->first->weight.grad().norm().item<double>());
  handle.remove();
  norms.clear();
  net->forward(at::rand({2, 3})).sum().backward();
  CHECK(norms.empty());
}

TEST_CASE("hooks: a hook may remove itself, and ends with its module") {
  auto layer = std::make_shared<nn::LinearImpl>(3, 2);
  HookHandle handle = register_forward_hook(
      *layer, [&](nn::Module&, const Tensors&, Tensors&) { handle.remove(); });
  call_module(*layer, at::rand({1, 3}));
  handle = register_forward_pre_hook(*layer, [](nn::Module&, Tensors&) {});
  layer.reset();
  handle.remove();
  nn::LinearImpl on_stack(3, 2);
  CHECK(code_of([&] { (void)register_forward_pre_hook(on_stack, {}); }) == "models.hook-owner");
  CHECK(call_module(on_stack, at::rand({1, 3})).sizes() == at::IntArrayRef({1, 2}));
}

TEST_CASE("hooks: the hook of a module that no longer exists may own the handle of another hook") {
  auto first = std::make_shared<nn::LinearImpl>(3, 2);
  const auto second = std::make_shared<nn::LinearImpl>(3, 2);
  int runs = 0;
  const auto count = [&](nn::Module&, const Tensors&, Tensors&) { ++runs; };
  auto inner = std::make_shared<HookHandle>(register_forward_hook(*second, count));
  HookHandle outer =
      register_forward_hook(*first, [inner](nn::Module&, const Tensors&, Tensors&) {});
  inner.reset();
  first.reset();
  // This registration destroys the hook of the first module, which removes the inner hook.
  const HookHandle next = register_forward_hook(*second, count);
  call_module(*second, at::rand({1, 3}));
  CHECK(runs == 1);
}

}  // namespace models_hooks_test
