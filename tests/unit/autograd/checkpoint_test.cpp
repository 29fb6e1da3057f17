// Recomputation gives the same bits as the plain function, and detects a function that computes
// different results in the second run.
#include "hasten/autograd/checkpoint.h"

#include <ATen/autocast_mode.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "hasten/anatomy/dry_run.h"
#include "hasten/machine/gpus.h"
#include "hasten/ops/ops.h"
#include "hasten/prepare/detail/autocast.h"
#include "unit/code_of.h"

namespace autograd_checkpoint_test {

using namespace hasten;
using at::Tensor;

namespace {

const CheckpointOptions kFull{}, kSelective{.policy = RecomputePolicy::selective};

// A block with operators of every kind: products, attention, dropout with a seed and with a mask, a
// norm, and an operator that saves its result.
struct Block : torch::nn::Module {
  Block() {
    for (const char* name : {"q", "k", "v", "out"})
      weights[name] = register_parameter(name, torch::randn({16, 16}) * 0.2);
    bias = register_parameter("bias", torch::randn({16}) * 0.1);
    gamma = register_parameter("gamma", torch::ones({16}));
  }
  Tensor forward(const Tensor& x, const Tensor& scale) {
    const auto product = [&](const Tensor& y, const char* name) {
      return ops::linear(y, weights.at(name), {});
    };
    const Tensor seen = ops::attention(product(x, "q"), product(x, "k"), product(x, "v"),
                                       ops::KeyMask(Tensor()), 2, 0.2, is_training());
    Tensor y =
        ops::dropout_add_norm(product(seen, "out"), bias, x, gamma, bias, 1e-5, 0.1, is_training());
    y = torch::dropout(torch::gelu(torch::matmul(y, weights.at("out"))), 0.3, is_training());
    return torch::tanh(y * scale) + x;
  }
  std::map<std::string, Tensor> weights;
  Tensor bias, gamma;
};

// The result and all gradients of three blocks.
struct RunResult {
  Tensor y;
  std::vector<Tensor> gradients;
};

bool are_equal(const Tensor& a, const Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || torch::equal(a, b));
}

bool operator==(const RunResult& a, const RunResult& b) {
  if (!are_equal(a.y, b.y) || a.gradients.size() != b.gradients.size()) return false;
  for (std::size_t i = 0; i < a.gradients.size(); ++i)
    if (!are_equal(a.gradients[i], b.gradients[i])) return false;
  return true;
}

using Call = std::function<Tensor(Block&, const Tensor&, const Tensor&)>;

Tensor plain(Block& block, const Tensor& x, const Tensor& scale) { return block.forward(x, scale); }
Call recomputed(const CheckpointOptions& options) {
  return [options](Block& block, const Tensor& x, const Tensor& scale) {
    return checkpoint(
        options, [&block](const Tensor& a, const Tensor& b) { return block.forward(a, b); }, x,
        scale);
  };
}

struct Case {
  bool bf16 = false, input_requires_grad = true;
  int micro_batches = 1;
};

RunResult run(const Call& call, const Case& what = {}) {
  torch::manual_seed(3);
  std::vector<std::shared_ptr<Block>> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(std::make_shared<Block>());
  blocks[1]->weights.at("k").set_requires_grad(false);  // a frozen parameter
  const Tensor x = torch::randn({2, 5, 16}).set_requires_grad(what.input_requires_grad);
  const Tensor scale = torch::rand({16});  // an input without a gradient
  RunResult numbers;
  for (int batch = 0; batch < what.micro_batches; ++batch) {
    Tensor y = x;
    {
      const AutocastGuard guard(what.bf16 ? Precision::bf16 : Precision::no, at::kCPU);
      for (const auto& block : blocks) y = call(*block, y, scale);
    }
    y.to(at::kFloat).square().sum().backward();
    numbers.y = y.detach();
  }
  numbers.gradients.push_back(x.grad());
  for (const auto& block : blocks)
    for (const Tensor& each : block->parameters()) numbers.gradients.push_back(each.grad());
  // The generator has the same state as without recomputation.
  numbers.gradients.push_back(torch::rand({1}));
  return numbers;
}

}  // namespace

TEST_CASE("checkpoint: results, gradients and random numbers are those of the plain function") {
  for (const CheckpointOptions& options : {kFull, kSelective}) {
    for (const bool bf16 : {false, true}) {
      for (const bool input_requires_grad : {true, false}) {
        for (const int micro_batches : {1, 3}) {
          CAPTURE(bf16);
          const Case what{bf16, input_requires_grad, micro_batches};
          CHECK(run(plain, what) == run(recomputed(options), what));
        }
      }
    }
  }
}

TEST_CASE("checkpoint: without the saved random state, dropout differs") {
  CHECK_FALSE(run(plain) == run(recomputed({.preserve_rng_state = false})));
}

TEST_CASE("checkpoint: regions may contain regions") {
  for (const CheckpointOptions& outer : {kFull, kSelective}) {
    for (const CheckpointOptions& inner : {kFull, kSelective}) {
      const Call nested = [&](Block& block, const Tensor& x, const Tensor& scale) {
        return checkpoint(
            outer,
            [&](const Tensor& a, const Tensor& b) {
              const Tensor first = recomputed(inner)(block, a, b);
              return torch::tanh(recomputed(inner)(block, first * 0.5, b));
            },
            x, scale);
      };
      const Call same = [](Block& block, const Tensor& x, const Tensor& scale) {
        return torch::tanh(block.forward(block.forward(x, scale) * 0.5, scale));
      };
      CHECK(run(same, {.bf16 = true}) == run(nested, {.bf16 = true}));
      CHECK(run(same, {.input_requires_grad = false}) ==
            run(nested, {.input_requires_grad = false}));
    }
  }
}

TEST_CASE("checkpoint: it supports arguments and results of any type") {
  struct Pair {
    Tensor a, b;
  };
  const auto f = [](const Pair& pair, const std::vector<Tensor>& list, double factor) {
    return std::map<std::string, Tensor>{{"sum", (pair.a * pair.b).sin() + list[0]},
                                         {"product", (pair.a * list[1] * factor).exp()}};
  };
  const auto gradients = [&](bool recomputes) {
    torch::manual_seed(1);
    const Pair pair{torch::randn({3}).requires_grad_(), torch::randn({3})};
    const std::vector<Tensor> list = {torch::randn({3}).requires_grad_(),
                                      torch::randn({3}).requires_grad_()};
    const auto out = recomputes ? checkpoint(f, pair, list, 0.5) : std::invoke(f, pair, list, 0.5);
    (out.at("sum") * out.at("product")).sum().backward();
    CHECK_FALSE(pair.b.grad().defined());
    return RunResult{out.at("sum").detach(), {pair.a.grad(), list[0].grad(), list[1].grad()}};
  };
  CHECK(gradients(false) == gradients(true));
}

TEST_CASE("checkpoint: it frees activations, and the second run ends with the last saved tensor") {
  int begun = 0, ended = 0;
  bool was_recomputing = false;
  const Tensor x = torch::ones({4}).requires_grad_();
  const Tensor y = checkpoint(
      [&](const Tensor& a) {
        ++begun;
        was_recomputing = is_recomputing();
        const Tensor b = a.sin();  // saves a
        const Tensor c = b + 1;    // saves nothing
        ++ended;
        return c;
      },
      x);
  CHECK(begun == 1);
  CHECK_FALSE(was_recomputing);
  y.sum().backward();
  CHECK(begun == 2);
  CHECK(was_recomputing);
  CHECK(ended == 1);
  CHECK(torch::equal(x.grad(), x.detach().cos()));
  CHECK_FALSE(is_recomputing());
}

TEST_CASE("checkpoint: without gradients the function is only called") {
  int calls = 0;
  const torch::NoGradGuard no_grad;
  const Tensor x = torch::ones({4}).requires_grad_();
  const Tensor y = checkpoint([&](const Tensor& a) { return ++calls, a.sin(); }, x);
  CHECK(calls == 1);
  CHECK_FALSE(y.requires_grad());
}

TEST_CASE("checkpoint: hooks of parameters run once, after the recomputation") {
  const Tensor w = torch::ones({4}).requires_grad_();
  int calls = 0;
  w.register_hook([&](const Tensor&) {
    ++calls;
    CHECK_FALSE(is_recomputing());
  });
  checkpoint([&](const Tensor& a) { return (a * w).exp(); }, torch::ones({4})).sum().backward();
  CHECK(calls == 1);
}

TEST_CASE(
    "checkpoint: a graph that is kept serves several backward passes, also second derivatives") {
  const auto f = [](const Tensor& a) { return (a.matmul(a) * a.tanh()).exp(); };
  const auto derivatives = [&](const auto& function) {
    torch::manual_seed(2);
    const Tensor x = (torch::randn({3, 3}, at::kDouble) * 0.3).requires_grad_();
    const Tensor y = function(x).sum();
    const Tensor again = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true)[0];
    const Tensor first = torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
    first.square().sum().backward();
    return RunResult{first.detach(), {x.grad(), again}};
  };
  const RunResult expected = derivatives(f);
  for (const CheckpointOptions& options : {kFull, kSelective})
    CHECK(expected == derivatives([&](const Tensor& x) { return checkpoint(options, f, x); }));
}

TEST_CASE("checkpoint: the function may run a backward pass") {
  const auto f = [](const Tensor& a) {
    const Tensor inner = a.detach().requires_grad_();
    const Tensor slope = torch::autograd::grad({inner.sin().sum()}, {inner})[0];
    return (a * slope).exp() * a.cos();
  };
  const auto gradient = [&](const auto& function) {
    const Tensor x = torch::linspace(0, 1, 5).requires_grad_();
    function(x).sum().backward();
    return x.grad();
  };
  CHECK(torch::equal(gradient(f), gradient([&](const Tensor& x) { return checkpoint(f, x); })));
}

TEST_CASE("checkpoint: a function that computes something else the second time is an error") {
  const Tensor x = torch::ones({4}).requires_grad_();
  int calls = 0;
  const Tensor other_shape = checkpoint(
      [&](const Tensor& a) {
        return (++calls == 1 ? a : a.view({2, 2})).sin().sum();
      },
      x);
  CHECK(code_of([&] { other_shape.backward(); }) == "autograd.recomputed-tensors");
  calls = 0;
  const Tensor fewer = checkpoint(
      [&](const Tensor& a) { return ++calls == 1 ? a.sin().sin().sum() : a.sin().sum(); }, x);
  CHECK(code_of([&] { fewer.backward(); }) == "autograd.recomputed-tensors");
  const std::string message = [&] {
    try {
      calls = 0;
      checkpoint(
          [&](const Tensor& a) { return (++calls == 1 ? a : a.to(at::kDouble)).sin().sum(); }, x)
          .backward();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  }();
  CHECK(message.find("tensor 1 is Double [4] on cpu, expected Float [4] on cpu") !=
        std::string::npos);
}

TEST_CASE("checkpoint: changing a saved tensor in place is an error, as without it") {
  const Tensor x = torch::ones({4}).requires_grad_();
  // A tensor inside the region is changed.
  const Tensor inside = checkpoint(
      [](const Tensor& a) {
        Tensor b = a * 2;
        const Tensor c = b.sin();
        b.add_(1);
        return (c + b).exp();
      },
      x);
  CHECK_THROWS_AS(inside.sum().backward(), c10::Error);
  // An input is changed after the region.
  Tensor input = x * 1;
  const Tensor after = checkpoint([](const Tensor& a) { return a.sin(); }, input);
  input.add_(1);
  CHECK_THROWS_AS(after.sum().backward(), c10::Error);
}

TEST_CASE("checkpoint: selective recomputation recomputes results that were changed in place") {
  const Tensor w = torch::randn({4, 4});
  const std::vector<std::function<Tensor(const Tensor&)>> functions = {
      [&](const Tensor& a) {
        Tensor y = torch::matmul(a, w);
        y += 1;
        return y.exp();
      },
      [&](const Tensor& a) {
        Tensor y = torch::_unsafe_view(torch::matmul(a, w), {2, 8});
        y.relu_();
        return y.exp();
      },
      [&](const Tensor& a) { return torch::matmul(a.sin(), w); }};
  for (std::size_t i = 0; i < functions.size(); ++i) {
    CAPTURE(i);
    const auto gradient = [&](const auto& f) {
      torch::manual_seed(4);
      const Tensor x = torch::randn({4, 4}).requires_grad_();
      Tensor y = f(x);
      if (i == 2) y.mul_(2);  // the result of the region
      y.cos().sum().backward();
      return x.grad();
    };
    CHECK(torch::equal(gradient(functions[i]), gradient([&](const Tensor& x) {
                         return checkpoint(kSelective, functions[i], x);
                       })));
  }
}

TEST_CASE("checkpoint: a batch norm counts each batch once") {
  const auto run_norm = [](bool recomputes) {
    torch::manual_seed(5);
    torch::nn::BatchNorm1d norm(3);
    const Tensor x = torch::randn({6, 3}).requires_grad_();
    const auto f = [&](const Tensor& a) { return norm->forward(a.sin()).exp(); };
    const CheckpointOptions options{
        .state = {norm->running_mean, norm->running_var, norm->num_batches_tracked}};
    (recomputes ? checkpoint(options, f, x) : f(x)).sum().backward();
    return RunResult{norm->running_mean, {norm->running_var, norm->num_batches_tracked, x.grad()}};
  };
  CHECK(run_norm(false) == run_norm(true));
  const Tensor w = torch::ones({2}).requires_grad_();
  CHECK(code_of([&] {
          checkpoint(
              {.state = {w}}, [&](const Tensor& a) { return a * w; }, torch::ones({2}));
        }) == "autograd.changed-state");
}

TEST_CASE("checkpoint: weights that change before the backward pass are an error, as without it") {
  const Tensor x = torch::ones({4}).requires_grad_(), w = torch::ones({4}).requires_grad_();
  const auto f = [&](const Tensor& a) { return (a * w).sin(); };
  const auto change = [&] {
    const torch::NoGradGuard no_grad;
    w.add_(1);
  };
  const Tensor plain = f(x), recomputed = checkpoint(f, x), untouched = checkpoint(f, x * 2);
  untouched.sum().backward();
  change();
  CHECK_THROWS_AS(plain.sum().backward(), c10::Error);
  CHECK(code_of([&] { recomputed.sum().backward(); }) == "autograd.recomputed-tensors");
}

TEST_CASE("checkpoint: autocast is the same on a device that no argument is on") {
  const DryRun dry(find_gpu("cuda:a100-80gb"));
  const Tensor w = torch::ones({4, 4}, at::Device(at::kCUDA, 0)).requires_grad_();
  Tensor y;
  {
    const AutocastGuard guard(Precision::bf16, at::kCUDA);
    y = checkpoint([&](const Tensor&) { return torch::matmul(w, w).sin(); }, torch::ones({1}));
  }
  CHECK((y.scalar_type() == at::kBFloat16));
  CHECK(code_of([&] { y.sum().backward(); }) == "none");
}

TEST_CASE("checkpoint: destructors may call operators when the second run ends") {
  const Tensor left = torch::zeros({1}), x = torch::ones({4}).requires_grad_();
  struct Leaving {
    const Tensor& count;
    ~Leaving() {
      const torch::NoGradGuard no_grad;
      count.add_(1);
    }
  };
  const Tensor y = checkpoint(
      [&](const Tensor& a) {
        const Leaving leaving{left};
        return a.sin() + 1;
      },
      x);
  y.sum().backward();
  CHECK(left.item<double>() == 2);
  CHECK(torch::equal(x.grad(), x.detach().cos()));
}

TEST_CASE("checkpoint: the CPU has no other memory for inputs") {
  const Tensor x = torch::ones({2}).requires_grad_();
  CHECK(code_of([&] {
          checkpoint(
              {.offload = true}, [](const Tensor& a) { return a.sin(); }, x);
        }) == "autograd.offload");
}

TEST_CASE("checkpoint: an error of the function passes through both runs") {
  const Tensor x = torch::ones({2}).requires_grad_();
  int calls = 0;
  const auto f = [&](const Tensor& a) {
    if (++calls == 2) throw std::runtime_error("second");
    return a.sin();
  };
  const Tensor y = checkpoint(f, x);
  CHECK_THROWS_WITH(y.sum().backward(), "second");
  CHECK_FALSE(is_recomputing());
  calls = 1;
  CHECK_THROWS_WITH(checkpoint(f, x), "second");
  // The failed runs leave nothing behind that would call the function again.
  const Tensor z = x.sin();
  z.sum().backward();
  CHECK(calls == 2);
}

}  // namespace autograd_checkpoint_test
