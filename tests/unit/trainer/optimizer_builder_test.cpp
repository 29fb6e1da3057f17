// The Hugging Face Trainer's rule decides which parameters decay, for any model.
#include "trainer/optimizer_builder.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <map>
#include <set>

#include "checkpoint/optimizer_state.h"
#include "hasten/optim/detail/adamw_8bit.h"
#include "hasten/optim/detail/ademamix.h"
#include "hasten/optim/detail/muon_adamw.h"
#include "hasten/optim/detail/schedule_free.h"
#include "unit/trainer/tiny.h"

namespace trainer_optimizer_builder_test {

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

bool has_parameter(const torch::optim::OptimizerParamGroup& group, const at::Tensor& parameter) {
  return std::any_of(group.params().begin(), group.params().end(),
                     [&](const at::Tensor& each) { return each.is_same(parameter); });
}

std::set<std::string> decayed_names(const torch::nn::Module& module) {
  ParameterNames names;
  for (const auto& item : module.named_parameters()) names[item.key()] = item.value();
  TrainingArguments args;
  args.weight_decay = 0.1;
  const auto optimizer = build_optimizer(args, module, names);
  std::set<std::string> out;
  std::size_t grouped = 0;
  for (auto& group : optimizer->param_groups()) {
    const auto& options = static_cast<const torch::optim::AdamWOptions&>(group.options());
    grouped += group.params().size();
    for (const auto& [name, parameter] : names) {
      if (has_parameter(group, parameter) && options.weight_decay() > 0) out.insert(name);
    }
  }
  CHECK(grouped == names.size());
  return out;
}

}  // namespace

TEST_CASE("optimizer: norms of any name do not decay, and neither do biases") {
  CHECK(decayed_names(NormsByManyNames()) ==
        std::set<std::string>{"normal.weight", "enormous.weight", "position"});
}

TEST_CASE("optimizer: a BERT's matrices and tables decay") {
  const auto model = tiny_runs::new_model();
  const std::set<std::string> found = decayed_names(*model);
  for (const auto& item : model->named_parameters()) {
    CAPTURE(item.key());
    CHECK(found.count(item.key()) == (item.value().dim() > 1 ? 1 : 0));
  }
}

TEST_CASE("optimizer: every name makes its optimizer, whose biases do not decay") {
  const std::map<OptimizerName, std::string> names = {
      {OptimizerName::adamw_torch, "AdamW"},
      {OptimizerName::adamw_torch_fused, "AdamW"},
      {OptimizerName::sgd, "SGD"},
      {OptimizerName::adafactor, "Adafactor"},
      {OptimizerName::adagrad, "Adagrad"},
      {OptimizerName::ademamix, "AdEMAMix"},
      {OptimizerName::lion_32bit, "Lion"},
      {OptimizerName::rmsprop, "RMSprop"},
      {OptimizerName::schedule_free_adamw, "ScheduleFreeAdamW"},
      {OptimizerName::schedule_free_sgd, "ScheduleFreeSGD"},
      {OptimizerName::stable_adamw, "StableAdamW"},
      {OptimizerName::adamax, "Adamax"},
      {OptimizerName::lamb, "Lamb"},
      {OptimizerName::lbfgs, "LBFGS"},
      {OptimizerName::muon, "MuonAdamW"},
      {OptimizerName::nadam, "NAdam"},
      {OptimizerName::radam, "RAdam"},
      {OptimizerName::adamw_8bit, "AdamW8bit"},
      {OptimizerName::lion_8bit, "Lion8bit"}};
  CHECK(names.size() == std::size(Names<OptimizerName>::text));
  const torch::nn::Linear module(3, 2);
  for (const auto& [optim, name] : names) {
    CAPTURE(name);
    const auto optimizer =
        build_optimizer({.learning_rate = 1e-3, .optim = optim, .weight_decay = 0.1}, *module,
                        parameters_of(*module));
    CHECK(name_of_optimizer(*optimizer) == name);
    if (optim == OptimizerName::lbfgs) continue;  // it has one group and no decay
    REQUIRE(optimizer->param_groups().size() == 2);
    CHECK(optimizer->param_groups()[0].params()[0].is_same(module->weight));
    CHECK(optimizer->param_groups()[1].options().get_lr() == 1e-3);
    // With gradients of zero, only weight decay changes a parameter.
    const at::Tensor bias = module->bias.detach().clone(), weight = module->weight.detach().clone();
    for (const at::Tensor& each : module->parameters()) each.mutable_grad() = at::zeros_like(each);
    if (auto* modes = dynamic_cast<WeightAveragingOptimizer*>(optimizer.get())) modes->train();
    for (int step = 0; step < 2; ++step) optimizer->step();
    CHECK(at::equal(module->bias, bias));
    CHECK_FALSE(at::equal(module->weight, weight));
  }
}

TEST_CASE("optimizer: with 8 bits, tables of embeddings have their own group and their own bits") {
  struct Net : torch::nn::Module {
    Net() {
      register_module("words", torch::nn::Embedding(10, 4));
      register_module("layer", torch::nn::Linear(4, 2));
    }
  };
  const auto owned = std::make_shared<Net>();  // modules() needs an owner
  const Net& net = *owned;
  const auto bits = [&](const Kwargs& kwargs) {
    const auto optimizer = build_optimizer({.learning_rate = 1e-3,
                                            .optim = OptimizerName::adamw_8bit,
                                            .optim_args = kwargs,
                                            .weight_decay = 0.1},
                                           net, parameters_of(net));
    std::vector<std::int64_t> of_groups;
    for (auto& group : optimizer->param_groups()) {
      const auto& options = static_cast<const AdamW8bitOptions&>(group.options());
      of_groups.push_back(options.bits());
      CHECK(options.min_8bit_size() == (kwargs.has("min_8bit_size") ? 1 : 4096));
    }
    REQUIRE(of_groups.size() == 3);
    CHECK(optimizer->param_groups()[2].params()[0].sizes() == at::IntArrayRef({10, 4}));
    CHECK(static_cast<const AdamW8bitOptions&>(optimizer->param_groups()[2].options())
              .weight_decay() == 0.1);
    return of_groups;
  };
  CHECK(bits({}) == std::vector<std::int64_t>{8, 8, 32});
  CHECK(bits({{"embedding_bits", 8}, {"min_8bit_size", 1}}) == std::vector<std::int64_t>{8, 8, 8});
}

TEST_CASE("optimizer: optim_args and the arguments of AdamW reach the options") {
  const torch::nn::Linear module(3, 2);
  const auto made = [&](const TrainingArguments& args) {
    return build_optimizer(args, *module, parameters_of(*module), /*num_training_steps=*/200);
  };
  const auto ademamix = made({.optim = OptimizerName::ademamix,
                              .optim_args = {{"beta3", 0.99}, {"t_alpha", 7}},
                              .adam_beta2 = 0.95,
                              .adam_epsilon = 1e-6});
  const auto& mixed = static_cast<const AdEMAMixOptions&>(ademamix->param_groups()[0].options());
  CHECK(std::get<1>(mixed.betas()) == 0.95);
  CHECK(mixed.beta3() == 0.99);
  CHECK(mixed.t_alpha() == 7);
  CHECK(mixed.eps() == 1e-6);
  const auto free = made({.warmup_steps = 0.1,
                          .optim = OptimizerName::schedule_free_adamw,
                          .optim_args = {{"r", 0.5}}});
  const auto& averaging =
      static_cast<const ScheduleFreeAdamWOptions&>(free->param_groups()[0].options()).averaging();
  CHECK(averaging.warmup_steps == 20);
  CHECK(averaging.r == 0.5);
  CHECK(averaging.weight_lr_power == 2);
}

TEST_CASE("optimizer: Muon steps the matrices of hidden layers, and AdamW all others") {
  const auto model = tiny_runs::new_model();
  const auto optimizer = build_optimizer({.learning_rate = 1e-3,
                                          .optim = OptimizerName::muon,
                                          .optim_args = {{"ns_steps", 3}},
                                          .weight_decay = 0.1},
                                         *model, parameters_of(*model));
  std::set<std::string> by_muon;
  for (const auto& group : optimizer->param_groups()) {
    const auto& options = static_cast<const MuonAdamWOptions&>(group.options());
    CHECK(options.ns_steps() == 3);
    for (const auto& [name, parameter] : parameters_of(*model)) {
      if (has_parameter(group, parameter) && options.use_muon()) by_muon.insert(name);
    }
  }
  CHECK(by_muon.count("bert.encoder.layer.0.attention.self.query.weight") == 1);
  CHECK(by_muon.count("bert.encoder.layer.0.output.dense.weight") == 1);
  CHECK(by_muon.count("bert.embeddings.word_embeddings.weight") == 0);
  CHECK(by_muon.count("classifier.weight") == 0);
  CHECK(by_muon.size() == 7);  // six weights of the layer, and the pooler's weight
}

TEST_CASE("optimizer: optim_args reach the options of LBFGS") {
  const torch::nn::Linear module(3, 2);
  const auto optimizer =
      build_optimizer({.learning_rate = 0.5,
                       .optim = OptimizerName::lbfgs,
                       .optim_args = {{"max_iter", 8}, {"line_search_fn", "strong_wolfe"}}},
                      *module, parameters_of(*module));
  const auto& options =
      static_cast<const torch::optim::LBFGSOptions&>(optimizer->param_groups()[0].options());
  CHECK(options.lr() == 0.5);
  CHECK(options.max_iter() == 8);
  CHECK(options.max_eval() == 10);
  CHECK(options.line_search_fn() == "strong_wolfe");
  CHECK(optimizer->param_groups()[0].params().size() == 2);
}

}  // namespace trainer_optimizer_builder_test
