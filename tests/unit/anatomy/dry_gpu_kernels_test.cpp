// Tests hasten's own kernels on a simulated GPU: which operators run, and how much memory they
// save.
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <doctest/doctest.h>
#include <stdlib.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/row_kernel_library.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/anatomy/report.h"
#include "hasten/models/gpt2.h"
#include "hasten/models/llama.h"
#include "hasten/models/recomputation.h"
#include "hasten/models/vit.h"
#include "hasten/ops/ops.h"
#include "hasten/prepare/detail/autocast.h"
#include "hasten/trainer/estimate.h"
#include "unit/code_of.h"

namespace anatomy_dry_gpu_kernels_test {

using namespace hasten;
using Names = std::set<std::string>;

namespace {

class KernelsVariable {
 public:
  explicit KernelsVariable(const char* value) { setenv("HASTEN_CUDA_KERNELS", value, 1); }
  ~KernelsVariable() { unsetenv("HASTEN_CUDA_KERNELS"); }
};

// Returns the names of the operators that a function calls, in order.
template <class Function>
std::vector<std::string> operators_in(Function function) {
  static std::vector<std::string> seen;
  seen.clear();
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& called)
                                     -> std::unique_ptr<at::ObserverContext> {
        seen.emplace_back(called.name());
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  function();
  at::removeCallback(handle);
  return seen;
}

// Returns the names of hasten's operators that a function calls.
template <class Function>
Names own_operators_in(Function function) {
  Names own;
  for (const std::string& name : operators_in(function)) {
    if (name.find("hasten::") == 0) own.insert(name);
  }
  return own;
}

// Returns the names of hasten's operators that run in a forward and a backward pass of each
// operator.
Names own_operators(at::ScalarType type, const char* gpu = "cuda:h100-80gb") {
  const DryRun dry(find_gpu(gpu));
  const auto on_gpu = at::TensorOptions().device(at::kCUDA);
  const auto leaf = [&](at::IntArrayRef sizes, at::ScalarType of) {
    return at::zeros(sizes, on_gpu.dtype(of)).requires_grad_();
  };
  const at::Tensor x = leaf({2, 8, 64}, type), residual = leaf({2, 8, 64}, type),
                   bias = leaf({64}, at::kFloat), word = leaf({10, 64}, at::kFloat),
                   ids = at::zeros({2, 8}, on_gpu.dtype(at::kLong));
  const Names seen = own_operators_in([&] {
    const at::Tensor y = ops::dropout_add_norm(ops::bias_gelu(x, bias), bias, residual, bias, bias,
                                               1e-5, 0.1, /*training=*/true);
    const at::Tensor embedded = ops::embedding_sum(word, {}, {}, ids, {}, {}, -1, /*sparse=*/true);
    (ops::dropout(y, 0.1, true).sum() + embedded.sum()).backward();
  });
  CHECK(x.grad().device().is_cuda());
  CHECK((residual.grad().scalar_type() == type));
  CHECK(bias.grad().sizes() == bias.sizes());
  CHECK(word.grad().layout() == at::kStrided);
  return seen;
}

// Returns the names of hasten's operators that run in a forward and a backward pass of a model
// under autocast. The model's norms come before its sublayers, and its attention is eager.
template <class Model, class Config>
Names operators_of_model(Config config, const std::function<TensorDict()>& make_batch,
                         const std::optional<Recomputation>& recomputation = {}) {
  config.attn_implementation = AttentionImplementation::eager;
  const DryRun dry(find_gpu("cuda:h100-80gb"));
  auto model = std::make_shared<Model>(config);
  model->to(at::kCUDA);
  model->train();
  if (recomputation) set_recomputation(*model, recomputation);
  at::autocast::set_autocast_enabled(at::kCUDA, true);
  at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
  const TensorDict batch = make_batch();
  const Names seen = own_operators_in([&] {
    const ModelOutput out = model->forward(batch);
    CHECK((out.logits.scalar_type() == at::kBFloat16));
    out.loss.backward();
  });
  at::autocast::set_autocast_enabled(at::kCUDA, false);
  for (const auto& item : model->named_parameters()) {
    CAPTURE(item.key());
    REQUIRE(item.value().grad().defined());
    CHECK(item.value().grad().sizes() == item.value().sizes());
    CHECK((item.value().grad().scalar_type() == at::kFloat));
  }
  return seen;
}

const GPT2Config kGpt2 = {
    .vocab_size = 20, .n_positions = 8, .n_embd = 64, .n_layer = 2, .n_head = 2};
const LlamaConfig kLlama = {.vocab_size = 20,
                            .hidden_size = 64,
                            .intermediate_size = 96,
                            .num_hidden_layers = 2,
                            .num_attention_heads = 2};
const ViTConfig kViT = {.hidden_size = 64,
                        .num_hidden_layers = 2,
                        .num_attention_heads = 2,
                        .intermediate_size = 96,
                        .image_size = {8, 8},
                        .patch_size = {4, 4}};

at::Tensor gpu_integers(at::IntArrayRef sizes) {
  return at::zeros(sizes, at::TensorOptions(at::kCUDA).dtype(at::kLong));
}
template <class Model, class Config>
Names operators_of_decoder(const Config& config,
                           const std::optional<Recomputation>& recomputation = {}) {
  const auto batch = [] {
    const at::Tensor ids = gpu_integers({2, 8});
    return TensorDict{{"input_ids", ids}, {"labels", ids}};
  };
  return operators_of_model<Model>(config, batch, recomputation);
}
Names operators_of_vit() {
  return operators_of_model<ViTForImageClassification>(kViT, [] {
    return TensorDict{{"pixel_values", at::zeros({2, 3, 8, 8}, at::kCUDA)},
                      {"labels", gpu_integers({2})}};
  });
}

const Names kKernelsOfModels = {"hasten::dropout_add_pre_norm",
                                "hasten::dropout_add_pre_norm_backward", "hasten::softmax_dropout",
                                "hasten::softmax_dropout_backward", "hasten::embedding_gradient"};
// The kernels of GPT-2.
const Names kKernelsOfGpt2 = [] {
  Names all = kKernelsOfModels;
  all.insert({"hasten::bias_tanh_gelu", "hasten::bias_tanh_gelu_backward"});
  return all;
}();

bool has_any(const Names& names, const Names& of) {
  return std::any_of(of.begin(), of.end(),
                     [&](const std::string& each) { return names.contains(each); });
}
bool has_all(const Names& names, const Names& of) {
  return std::all_of(of.begin(), of.end(),
                     [&](const std::string& each) { return names.contains(each); });
}

anatomy::Report estimate_of(const char* model) {
  return estimate({.model = model,
                   .length = 128,
                   .arguments = {.per_device_train_batch_size = 8, .bf16 = true},
                   .device = "cuda:h100-80gb"});
}

}  // namespace

TEST_CASE("dry GPU kernels: with HASTEN_CUDA_KERNELS=0 and on old GPUs operators are LibTorch's") {
  CHECK(own_operators(at::kFloat, "cuda:v100-16gb").empty());
  const KernelsVariable off("0");
  CHECK(own_operators(at::kFloat).empty());
}

TEST_CASE("dry GPU kernels: float, bfloat16 and half run hasten's operators") {
  const Names all = {"hasten::bias_gelu",         "hasten::bias_gelu_backward",
                     "hasten::dropout",           "hasten::dropout_add_norm",
                     "hasten::embedding_sum",     "hasten::dropout_add_norm_backward",
                     "hasten::embedding_gradient"};
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    CAPTURE(type);
    CHECK(own_operators(type) == all);
  }
  // The tables of embeddings are always float.
  CHECK(own_operators(at::kDouble) == Names{"hasten::embedding_gradient", "hasten::embedding_sum"});
}

TEST_CASE("dry GPU kernels: under autocast a bias is added in the type of the product") {
  const DryRun dry(find_gpu("cuda:h100-80gb"));
  at::autocast::set_autocast_enabled(at::kCUDA, true);
  at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
  const auto on_gpu = at::TensorOptions().device(at::kCUDA);
  const at::Tensor product = at::zeros({2, 64}, on_gpu.dtype(at::kBFloat16)),
                   bias = at::zeros({64}, on_gpu);
  for (const char* value : {"0", "1"}) {
    const KernelsVariable kernels(value);
    CHECK((ops::bias_gelu(product, bias).scalar_type() == at::kBFloat16));
    CHECK(ops::fuses_bias(bias) == (value[0] == '1'));
  }
  at::autocast::set_autocast_enabled(at::kCUDA, false);
  const KernelsVariable off("0");
  CHECK((ops::bias_gelu(product, bias).scalar_type() == at::kFloat));
}

TEST_CASE("dry GPU kernels: the classes of a loss are padded, and their gradients are not") {
  const DryRun dry(find_gpu("cuda:h100-80gb"));
  static std::vector<std::int64_t> columns;
  columns.clear();
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
            if (std::string(function.name()) == "hasten::cross_entropy")
              columns.push_back(function.inputs()[0].toTensor().size(1));
            return nullptr;
          })
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION}));
  const auto on_gpu = at::TensorOptions().device(at::kCUDA);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    CAPTURE(type);
    const at::Tensor hidden = at::zeros({6, 16}, on_gpu.dtype(type)).requires_grad_(),
                     weight = at::zeros({13, 16}, on_gpu.dtype(type)).requires_grad_(),
                     bias = at::zeros({13}, on_gpu.dtype(type)).requires_grad_(),
                     labels = at::zeros({6}, on_gpu.dtype(at::kLong));
    ops::linear_cross_entropy(hidden, weight, bias, labels).backward();
    CHECK(hidden.grad().sizes() == hidden.sizes());
    CHECK(weight.grad().sizes() == weight.sizes());
    CHECK(bias.grad().sizes() == bias.sizes());
  }
  at::removeCallback(handle);
  CHECK(columns == std::vector<std::int64_t>{16, 16});  // double has no kernel
}

TEST_CASE("dry GPU kernels: a step of BERT needs less memory, all of which is known") {
  const anatomy::Report own = estimate_of("bert-base");
  const KernelsVariable off("0");
  const anatomy::Report usual = estimate_of("bert-base");
  CHECK(anatomy::total(own.memory.at_peak) < anatomy::total(usual.memory.at_peak));
  CHECK(bytes_of(own.memory.at_peak, anatomy::Component::unknown) == 0);
}

TEST_CASE("dry GPU kernels: the models use their layers' kernels, and none if the variable is 0") {
  {
    const KernelsVariable off("0");
    CHECK_FALSE(has_any(operators_of_decoder<GPT2LMHeadModel>(kGpt2), kKernelsOfGpt2));
    CHECK_FALSE(has_any(operators_of_decoder<LlamaForCausalLM>(kLlama), kKernelsOfGpt2));
    CHECK_FALSE(has_any(operators_of_vit(), kKernelsOfGpt2));
    CHECK_FALSE(ops::fuses_pre_norm(at::zeros({2})));
  }
  CHECK_FALSE(ops::fuses_pre_norm(at::zeros({2})));  // on the CPU
  CHECK(has_all(operators_of_decoder<GPT2LMHeadModel>(kGpt2), kKernelsOfGpt2));
  CHECK(has_all(operators_of_decoder<LlamaForCausalLM>(kLlama), kKernelsOfModels));
  Names without_embeddings = kKernelsOfModels;
  without_embeddings.erase("hasten::embedding_gradient");
  CHECK(has_all(operators_of_vit(), without_embeddings));
  for (const std::int64_t n : {1, 2})
    CHECK(has_all(operators_of_decoder<GPT2LMHeadModel>(kGpt2, Recomputation{.every_n_layers = n}),
                  kKernelsOfGpt2));
}

TEST_CASE("dry GPU kernels: a step of GPT-2 takes less time with them, and all memory is known") {
  const anatomy::Report all = estimate_of("gpt2");
  const KernelsVariable off("0");
  const anatomy::Report usual = estimate_of("gpt2");
  CHECK(bytes_of(all.memory.at_peak, anatomy::Component::unknown) == 0);
  CHECK(anatomy::expected_step_time(all)->kernels < anatomy::expected_step_time(usual)->kernels);
}

TEST_CASE("dry GPU kernels: gradients of weights are float products, without casts") {
  const DryRun dry(find_gpu("cuda:h100-80gb"));
  const auto on_gpu = at::TensorOptions().device(at::kCUDA);
  const at::Tensor x = at::zeros({2, 8, 64}, on_gpu.dtype(at::kBFloat16)).requires_grad_(),
                   bias = at::zeros({32}, on_gpu).requires_grad_();
  const auto of_linear = [&](bool transposed) {
    const at::Tensor weight =
        at::zeros(transposed ? at::IntArrayRef{64, 32} : at::IntArrayRef{32, 64}, on_gpu)
            .requires_grad_();
    at::Tensor y;
    std::vector<std::string> names = operators_in([&] {
      const AutocastGuard autocast(Precision::bf16, at::kCUDA);
      y = transposed ? ops::linear_transposed(x, weight, bias) : ops::linear(x, weight, bias);
    });
    CHECK((y.scalar_type() == at::kBFloat16));
    CHECK(y.sizes() == at::IntArrayRef{2, 8, 32});
    const at::Tensor of_result = at::zeros_like(y);
    const auto backward = operators_in([&] { y.backward(of_result); });
    CHECK((weight.grad().scalar_type() == at::kFloat));
    CHECK(weight.grad().sizes() == weight.sizes());
    CHECK((x.grad().scalar_type() == at::kBFloat16));
    const bool casts = std::count(backward.begin(), backward.end(), "aten::_to_copy") > 0;
    names.insert(names.end(), backward.begin(), backward.end());
    return std::pair(names.size(), casts);
  };
  for (const bool transposed : {false, true}) {
    CAPTURE(transposed);
    const auto [own, own_casts] = of_linear(transposed);
    const KernelsVariable off("0");
    const auto [usual, usual_casts] = of_linear(transposed);
    CHECK(usual_casts);
    CHECK_FALSE(own_casts);
    CHECK(3 * own < 2 * usual);
  }
}

TEST_CASE("dry GPU kernels: a kernel sums large gradients of a bias") {
  const DryRun dry(find_gpu("cuda:h100-80gb"));
  const auto sums = [](std::int64_t rows) {
    const at::Tensor x = at::zeros({rows, 64}, at::kCUDA).requires_grad_(),
                     weight = at::zeros({1024, 64}, at::kCUDA).requires_grad_(),
                     bias = at::zeros({1024}, at::kCUDA).requires_grad_();
    const at::Tensor y = ops::linear(x, weight, bias), of_result = at::zeros_like(y);
    const Names own = own_operators_in([&] { y.backward(of_result); });
    CHECK(bias.grad().sizes() == bias.sizes());
    return own.contains("hasten::column_sum");
  };
  CHECK(sums(8192));
  CHECK_FALSE(sums(64));
  const KernelsVariable off("0");
  CHECK_FALSE(sums(8192));
}

TEST_CASE("dry GPU kernels: layers without autocast or gradients have the types of LibTorch's") {
  const DryRun dry(find_gpu("cuda:h100-80gb"));
  const auto on_gpu = at::TensorOptions().device(at::kCUDA);
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    CAPTURE(type);
    const at::Tensor x = at::zeros({3, 64}, on_gpu.dtype(type)),
                     weight = at::zeros({32, 64}, on_gpu.dtype(type)).requires_grad_();
    const at::Tensor y = ops::linear(x, weight, {});
    CHECK((y.scalar_type() == type));
    y.sum().backward();
    CHECK((weight.grad().scalar_type() == type));
    const at::NoGradGuard no_grad;
    CHECK_FALSE(ops::linear(x, weight, {}).requires_grad());
  }
}

TEST_CASE("dry GPU kernels: the products of the loss add the gradients of the weight") {
  const DryRun dry(find_gpu("cuda:h100-80gb"));
  const auto on_gpu = at::TensorOptions().device(at::kCUDA);
  const auto operators = [&](at::ScalarType type) {
    const at::Tensor hidden = at::zeros({6000, 16}, on_gpu.dtype(type)).requires_grad_(),
                     weight = at::zeros({50304, 16}, on_gpu).requires_grad_(),
                     labels = at::zeros({6000}, on_gpu.dtype(at::kLong));
    const auto names = operators_in([&] {
      const AutocastGuard autocast(type == at::kHalf ? Precision::fp16 : Precision::bf16,
                                   at::kCUDA);
      ops::linear_cross_entropy(hidden, weight, {}, labels).backward();
    });
    CHECK((weight.grad().scalar_type() == at::kFloat));
    CHECK(weight.grad().sizes() == weight.sizes());
    return names;
  };
  const auto count = [](const std::vector<std::string>& names, const char* name) {
    return std::count(names.begin(), names.end(), name);
  };
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    CAPTURE(type);
    const auto names = operators(type);
    CHECK(count(names, "aten::add_") == 0);
    CHECK(count(names, "aten::addmm") == 2);  // the second and the third of three parts
    const KernelsVariable off("0");
    CHECK(count(operators(type), "aten::add_") > 0);
  }
}

TEST_CASE("dry GPU kernels: products in float count the same FLOP as LibTorch's products") {
  const auto product_flops = [](const anatomy::Report& report) {
    double sum = 0;
    for (const auto& row : report.operations) {
      if (row.name == "aten::mm" || row.name == "aten::addmm") sum += row.flops;
    }
    return sum;
  };
  const double own = product_flops(estimate_of("gpt2"));
  const KernelsVariable off("0");
  CHECK(own == doctest::Approx(product_flops(estimate_of("gpt2"))).epsilon(2e-3));
}

TEST_CASE("dry GPU kernels: errors name a wrong value and a library that cannot be loaded") {
  {
    const KernelsVariable wrong("yes");
    CHECK(code_of([] { has_gpu_row_kernels(at::kFloat); }) == "config.bad-value");
  }
  const KernelsVariable on("1");
  CHECK_FALSE(has_gpu_row_kernels(at::kDouble));
  if (!torch::cuda::is_available())
    CHECK(code_of([] { has_gpu_row_kernels(at::kFloat); }) == "device.no-gpu-kernels");
}

}  // namespace anatomy_dry_gpu_kernels_test
