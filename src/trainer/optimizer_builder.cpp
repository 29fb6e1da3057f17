#include "trainer/optimizer_builder.h"

#include <torch/torch.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/saturated.h"
#include "hasten/base/text.h"
#include "hasten/models/training_traits.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/detail/adafactor.h"
#include "hasten/optim/detail/adamax.h"
#include "hasten/optim/detail/adamw_8bit.h"
#include "hasten/optim/detail/ademamix.h"
#include "hasten/optim/detail/lamb.h"
#include "hasten/optim/detail/lion.h"
#include "hasten/optim/detail/lion_8bit.h"
#include "hasten/optim/detail/muon_adamw.h"
#include "hasten/optim/detail/nadam.h"
#include "hasten/optim/detail/radam.h"
#include "hasten/optim/detail/schedule_free.h"
#include "hasten/optim/detail/stable_adamw.h"

namespace hasten {
namespace {

using OptimizerPointer = std::unique_ptr<torch::optim::Optimizer>;

// Returns the tables of embeddings: those of LibTorch's modules, and matrices with "embed" in their
// names.
std::set<std::string> embedding_tables_of(const torch::nn::Module& module) {
  std::set<const at::TensorImpl*> tables;
  for (const auto& each : module.modules()) {
    const auto* const table = dynamic_cast<const torch::nn::EmbeddingImpl*>(each.get());
    if (table != nullptr) tables.insert(table->weight.unsafeGetTensorImpl());
  }
  std::set<std::string> names;
  for (const auto& item : module.named_parameters()) {
    const bool is_table = tables.count(item.value().unsafeGetTensorImpl()) > 0 ||
                          lower(item.key()).find("embed") != std::string::npos;
    if (item.value().dim() == 2 && is_table) names.insert(item.key());
  }
  return names;
}

// Returns the matrices that Muon steps: all matrices except the tables of embeddings and the last
// matrix in the order of registration, which belongs to the output layer.
std::set<std::string> hidden_matrices_of(const torch::nn::Module& module) {
  const std::set<std::string> tables = embedding_tables_of(module);
  std::vector<std::string> matrices;
  for (const auto& item : module.named_parameters()) {
    if (item.value().dim() == 2 && tables.count(item.key()) == 0) matrices.push_back(item.key());
  }
  if (!matrices.empty()) matrices.pop_back();
  return {matrices.begin(), matrices.end()};
}

bool is_8bit(OptimizerName optimizer) {
  return optimizer == OptimizerName::adamw_8bit || optimizer == OptimizerName::lion_8bit;
}

// Makes optimizers of the two groups of parameters from their options.
class OptimizerBuilder {
 public:
  OptimizerBuilder(const TrainingArguments& args, const torch::nn::Module& module,
                   const ParameterNames& parameters, std::int64_t num_training_steps)
      : args_(args), num_training_steps_(num_training_steps) {
    const std::set<std::string> undecayed = undecayed_parameters_of(module);
    const std::set<std::string> hidden =
        args.optim == OptimizerName::muon ? hidden_matrices_of(module) : std::set<std::string>();
    const std::set<std::string> tables =
        is_8bit(args.optim) ? embedding_tables_of(module) : std::set<std::string>();
    for (const auto& [name, parameter] : parameters) {
      if (!parameter.requires_grad()) continue;
      if (hidden.count(name) > 0) {
        matrices_.push_back(parameter);
      } else if (tables.count(name) > 0 && undecayed.count(name) == 0) {
        tables_.push_back(parameter);
      } else {
        (undecayed.count(name) > 0 ? undecayed_ : decayed_).push_back(parameter);
      }
    }
  }

  OptimizerPointer build() const {
    switch (args_.optim) {
      case OptimizerName::adamw_torch:
      case OptimizerName::adamw_torch_fused:
        return make<AdamW>(adamw());
      case OptimizerName::sgd:
        return make<torch::optim::SGD>(torch::optim::SGDOptions(args_.learning_rate)
                                           .momentum(number("momentum", 0))
                                           .dampening(number("dampening", 0))
                                           .nesterov(flag("nesterov", false)));
      case OptimizerName::adafactor:
        return make<Adafactor>(adafactor());
      case OptimizerName::adagrad:
        return make<torch::optim::Adagrad>(
            torch::optim::AdagradOptions(args_.learning_rate)
                .lr_decay(number("lr_decay", 0))
                .initial_accumulator_value(number("initial_accumulator_value", 0))
                .eps(number("eps", 1e-10)));
      case OptimizerName::ademamix:
        return make<AdEMAMix>(ademamix());
      case OptimizerName::lion_32bit:
        return make<Lion>(with_betas(LionOptions(args_.learning_rate)));
      case OptimizerName::rmsprop:
        return make<torch::optim::RMSprop>(torch::optim::RMSpropOptions(args_.learning_rate)
                                               .alpha(number("alpha", 0.99))
                                               .eps(number("eps", 1e-8))
                                               .momentum(number("momentum", 0))
                                               .centered(flag("centered", false)));
      case OptimizerName::schedule_free_adamw:
        return make<ScheduleFreeAdamW>(
            adam(ScheduleFreeAdamWOptions(args_.learning_rate)).averaging(averaging()));
      case OptimizerName::schedule_free_sgd:
        return make<ScheduleFreeSGD>(ScheduleFreeSGDOptions(args_.learning_rate)
                                         .momentum(number("momentum", 0.9))
                                         .averaging(averaging()));
      case OptimizerName::stable_adamw:
        return make<StableAdamW>(stable_adamw());
      case OptimizerName::adamax:
        return make<Adamax>(adam(AdamaxOptions(args_.learning_rate)));
      case OptimizerName::lamb:
        return make<Lamb>(adam(LambOptions(args_.learning_rate))
                              .bias_correction(flag("bias_correction", true))
                              .trust_clip(flag("trust_clip", false))
                              .always_adapt(flag("always_adapt", false)));
      case OptimizerName::lbfgs:
        return lbfgs();
      case OptimizerName::muon:
        return muon();
      case OptimizerName::nadam:
        return make<NAdam>(adam(NAdamOptions(args_.learning_rate))
                               .momentum_decay(number("momentum_decay", 4e-3))
                               .decoupled_weight_decay(flag("decoupled_weight_decay", false)));
      case OptimizerName::radam:
        return make<RAdam>(adam(RAdamOptions(args_.learning_rate))
                               .decoupled_weight_decay(flag("decoupled_weight_decay", false)));
      case OptimizerName::adamw_8bit:
        return quantized<AdamW8bit>(adam(AdamW8bitOptions(args_.learning_rate)));
      case OptimizerName::lion_8bit:
        return quantized<Lion8bit>(with_betas(Lion8bitOptions(args_.learning_rate)));
    }
    TORCH_INTERNAL_ASSERT(false, "an optimizer without a name");
  }

 private:
  double number(const char* name, double fallback) const {
    return args_.optim_args.number(name, fallback);
  }
  std::int64_t whole(const char* name, double fallback) const {
    return saturated_count(number(name, fallback));
  }
  bool flag(const char* name, bool fallback) const { return args_.optim_args.flag(name, fallback); }

  template <class Options>
  Options with_betas(Options options) const {
    options.betas({args_.adam_beta1, args_.adam_beta2});
    return options;
  }
  template <class Options>
  Options adam(Options options) const {
    options.eps(args_.adam_epsilon);
    return with_betas(std::move(options));
  }

  AdamWOptions adamw() const {
    const bool is_half = args_.optim_args.text("state_dtype", "float32") == "bfloat16";
    return adam(AdamWOptions(args_.learning_rate))
        .state_dtype(is_half ? at::kBFloat16 : at::kFloat)
        .stochastic_rounding(flag("stochastic_rounding", true))
        .rounding_seed(args_.seed);
  }

  AdafactorOptions adafactor() const {
    AdafactorOptions options(args_.learning_rate);
    options.relative_step(false)
        .scale_parameter(flag("scale_parameter", false))
        .clip_threshold(number("clip_threshold", 1))
        .decay_rate(number("decay_rate", -0.8));
    if (args_.optim_args.has("beta1")) options.beta1(number("beta1", 0));
    return options;
  }

  AdEMAMixOptions ademamix() const {
    AdEMAMixOptions options(args_.learning_rate);
    options.betas({number("beta1", args_.adam_beta1), number("beta2", args_.adam_beta2)})
        .beta3(number("beta3", 0.9999))
        .alpha(number("alpha", 5))
        .eps(number("eps", args_.adam_epsilon))
        .t_alpha(whole("t_alpha", 0))
        .t_beta3(whole("t_beta3", 0));
    return options;
  }

  StableAdamWOptions stable_adamw() const {
    StableAdamWOptions options = adam(StableAdamWOptions(args_.learning_rate));
    if (flag("decouple_lr", false)) options.max_lr(number("max_lr", args_.learning_rate));
    return options;
  }

  // LibTorch's LBFGS takes one group of parameters.
  OptimizerPointer lbfgs() const {
    std::vector<at::Tensor> all = decayed_;
    all.insert(all.end(), undecayed_.begin(), undecayed_.end());
    const std::int64_t max_iter = whole("max_iter", 20);
    const std::int64_t max_eval = saturated_product(max_iter, 5) / 4;  // as in PyTorch
    torch::optim::LBFGSOptions options(args_.learning_rate);
    options.max_iter(max_iter)
        .max_eval(whole("max_eval", static_cast<double>(max_eval)))
        .tolerance_grad(number("tolerance_grad", 1e-7))
        .tolerance_change(number("tolerance_change", 1e-9))
        .history_size(whole("history_size", 100));
    if (args_.optim_args.has("line_search_fn"))
      options.line_search_fn(args_.optim_args.text("line_search_fn", ""));
    return std::make_unique<torch::optim::LBFGS>(all, options);
  }

  OptimizerPointer muon() const {
    MuonAdamWOptions options = adam(MuonAdamWOptions(args_.learning_rate));
    options.momentum(number("momentum", 0.95))
        .nesterov(flag("nesterov", true))
        .ns_steps(whole("ns_steps", 5))
        .adjust_lr_fn(args_.optim_args.text("adjust_lr_fn", "match_rms_adamw"));
    std::vector<torch::optim::OptimizerParamGroup> groups;
    const auto add = [&](const std::vector<at::Tensor>& members, bool use_muon, double decay) {
      MuonAdamWOptions own = options;
      own.use_muon(use_muon).weight_decay(decay);
      if (!members.empty()) groups.emplace_back(members, own.clone());
    };
    add(matrices_, /*use_muon=*/true, args_.weight_decay);
    add(decayed_, /*use_muon=*/false, args_.weight_decay);
    add(undecayed_, /*use_muon=*/false, 0);
    return std::make_unique<MuonAdamW>(groups, options);
  }

  // The tables of embeddings have a group of their own, with moments in float, as in the Hugging
  // Face Trainer with bitsandbytes: their rare, large gradients suffer most from 8 bits.
  template <class Optimizer, class Options>
  OptimizerPointer quantized(Options options) const {
    options.min_8bit_size(whole("min_8bit_size", 4096));
    std::vector<torch::optim::OptimizerParamGroup> groups;
    const auto add = [&](const std::vector<at::Tensor>& members, double decay, double bits) {
      Options own = options;
      own.bits(static_cast<std::int64_t>(bits)).weight_decay(decay);
      if (!members.empty()) groups.emplace_back(members, own.clone());
    };
    add(decayed_, args_.weight_decay, 8);
    add(undecayed_, 0, 8);
    add(tables_, args_.weight_decay, number("embedding_bits", 32));
    return std::make_unique<Optimizer>(groups, options);
  }

  Averaging averaging() const {
    return {.warmup_steps = absolute_steps(args_.warmup_steps, num_training_steps_),
            .r = number("r", 0),
            .weight_lr_power = number("weight_lr_power", 2)};
  }

  template <class Optimizer, class Options>
  OptimizerPointer make(const Options& options) const {
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (const auto& [members, decay] :
         {std::pair{&decayed_, args_.weight_decay}, std::pair{&undecayed_, 0.0}}) {
      auto own = std::make_unique<Options>(options);
      own->weight_decay(decay);
      if (!members->empty()) groups.emplace_back(*members, std::move(own));
    }
    return std::make_unique<Optimizer>(groups, options);
  }

  const TrainingArguments& args_;
  std::int64_t num_training_steps_;
  std::vector<at::Tensor> decayed_, undecayed_;
  std::vector<at::Tensor> matrices_;  // the weights of hidden layers, for Muon
  std::vector<at::Tensor> tables_;    // the tables of embeddings, for optimizers of 8 bits
};

}  // namespace

ParameterNames parameters_of(const torch::nn::Module& module) {
  ParameterNames out;
  std::set<const at::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) out[item.key()] = item.value();
  }
  return out;
}

std::unique_ptr<torch::optim::Optimizer> build_optimizer(const TrainingArguments& args,
                                                         const torch::nn::Module& module,
                                                         const ParameterNames& parameters,
                                                         std::int64_t num_training_steps) {
  return OptimizerBuilder(args, module, parameters, num_training_steps).build();
}

}  // namespace hasten
