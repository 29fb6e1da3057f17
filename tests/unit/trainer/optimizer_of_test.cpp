// The Hugging Face Trainer's rule decides which parameters decay, for any model.
#include "trainer/optimizer_of.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <set>

#include "unit/trainer/tiny.h"

namespace trainer_optimizer_of_test {

using namespace hasten;

namespace {

// A custom norm, recognizable only by its class name.
struct TestRMSNorm : torch::nn::Module {
  explicit TestRMSNorm(std::int64_t n) { register_parameter("scale", at::ones({n})); }
};

struct NormsByManyNames : torch::nn::Module {
  NormsByManyNames() {
    register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})));
    register_module("ln_f", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})));
    register_module("rms", std::make_shared<TestRMSNorm>(4));
    register_module("norm", torch::nn::BatchNorm1d(4));
    register_module("final_norm", torch::nn::BatchNorm1d(4));
    register_module("RMSNorm_2", torch::nn::BatchNorm1d(4));
    register_module("normal", torch::nn::Linear(4, 4));
    register_module("enormous", torch::nn::Linear(4, 4));
    register_parameter("relative_bias_table", at::ones({4, 4}));
    register_parameter("position", at::ones({4, 4}));
  }
};

std::set<std::string> decaying(const torch::nn::Module& module) {
  ParameterNames names;
  for (const auto& item : module.named_parameters()) names[item.key()] = item.value();
  TrainingArguments args;
  args.weight_decay = 0.1;
  const auto optimizer = optimizer_of(args, module, names);
  std::set<std::string> out;
  std::size_t grouped = 0;
  for (auto& group : optimizer->param_groups()) {
    const auto& options = static_cast<const torch::optim::AdamWOptions&>(group.options());
    grouped += group.params().size();
    for (const auto& [name, parameter] : names) {
      const bool in_group =
          std::any_of(group.params().begin(), group.params().end(),
                      [&](const at::Tensor& each) { return each.is_same(parameter); });
      if (in_group && options.weight_decay() > 0) out.insert(name);
    }
  }
  CHECK(grouped == names.size());
  return out;
}

}  // namespace

TEST_CASE("optimizer: norms of any name do not decay, and neither do biases") {
  CHECK(decaying(NormsByManyNames()) ==
        std::set<std::string>{"normal.weight", "enormous.weight", "position"});
}

TEST_CASE("optimizer: a BERT's matrices and tables decay") {
  const auto model = tiny_runs::new_model();
  const std::set<std::string> found = decaying(*model);
  for (const auto& item : model->named_parameters()) {
    CAPTURE(item.key());
    CHECK(found.count(item.key()) == (item.value().dim() > 1 ? 1 : 0));
  }
}

}  // namespace trainer_optimizer_of_test
