// Compares each optimizer with the Python library's optimizer, step by step
// (generate_optimizers.py).
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "device.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/detail/adafactor.h"
#include "hasten/optim/detail/adamax.h"
#include "hasten/optim/detail/ademamix.h"
#include "hasten/optim/detail/lamb.h"
#include "hasten/optim/detail/lion.h"
#include "hasten/optim/detail/muon.h"
#include "hasten/optim/detail/nadam.h"
#include "hasten/optim/detail/radam.h"
#include "hasten/optim/detail/schedule_free.h"
#include "hasten/optim/detail/stable_adamw.h"

namespace oracle_optimizers_test {

using namespace hasten;

namespace {

using Json = nlohmann::json;
using torch::nn::Linear;

at::Tensor tensor_of(const Json& numbers, at::IntArrayRef sizes) {
  return torch::tensor(numbers.get<std::vector<float>>()).view(sizes);
}

struct Model {
  explicit Model(const Json& start) {
    const torch::NoGradGuard no_grad;
    for (Linear* each : {&first, &last}) (*each)->to(tested::device());
    const std::vector<at::Tensor> all = parameters();
    for (std::size_t i = 0; i < all.size(); ++i) all[i].copy_(tensor_of(start[i], all[i].sizes()));
  }
  std::vector<at::Tensor> matrices() const { return {first->weight, last->weight}; }
  std::vector<at::Tensor> others() const { return {first->bias, last->bias, unused}; }
  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all = matrices();
    for (const at::Tensor& each : others()) all.push_back(each);
    return all;
  }
  at::Tensor weights() const {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& each : parameters()) flat.push_back(each.detach().flatten());
    return at::cat(flat).cpu();
  }
  at::Tensor loss(const at::Tensor& inputs, const at::Tensor& targets) {
    return torch::mse_loss(last(at::tanh(first(inputs))), targets);
  }

  Linear first{6, 5}, last{5, 3};
  at::Tensor unused = at::ones({2}, tested::device()).requires_grad_();
};

// Sets the options of a group from a JSON object.
template <class Options>
using Setters = std::map<std::string, std::function<void(Options&, const Json&)>>;

template <class Options>
Setters<Options> common() {
  return {{"lr", [](Options& o, const Json& v) { o.set_lr(v); }},
          {"weight_decay", [](Options& o, const Json& v) { o.weight_decay(v.get<double>()); }},
          {"maximize", [](Options& o, const Json& v) { o.maximize(v.get<bool>()); }}};
}

std::tuple<double, double> pair_of(const Json& v) { return {v[0], v[1]}; }

template <class Options>
Setters<Options> with_betas() {
  Setters<Options> setters = common<Options>();
  setters["betas"] = [](Options& o, const Json& v) { o.betas(pair_of(v)); };
  return setters;
}

template <class Options>
Setters<Options> adam() {
  Setters<Options> setters = with_betas<Options>();
  setters["eps"] = [](Options& o, const Json& v) { o.eps(v.get<double>()); };
  return setters;
}

template <class Options>
void set_averaging(Options& options, const Json& v) {
  Averaging averaging;
  averaging.warmup_steps = v.value("warmup_steps", averaging.warmup_steps);
  averaging.r = v.value("r", averaging.r);
  averaging.weight_lr_power = v.value("weight_lr_power", averaging.weight_lr_power);
  options.averaging(averaging);
}

#define HASTEN_TEST_SETTER(Options, option, Type)                        \
  {                                                                      \
#option, [](Options & o, const Json& v) { o.option(v.get<Type>()); } \
  }

template <class Options>
Setters<Options> setters();
template <>
Setters<AdamaxOptions> setters() {
  return adam<AdamaxOptions>();
}
template <>
Setters<NAdamOptions> setters() {
  auto all = adam<NAdamOptions>();
  all.insert({HASTEN_TEST_SETTER(NAdamOptions, momentum_decay, double),
              HASTEN_TEST_SETTER(NAdamOptions, decoupled_weight_decay, bool)});
  return all;
}
template <>
Setters<RAdamOptions> setters() {
  auto all = adam<RAdamOptions>();
  all.insert({HASTEN_TEST_SETTER(RAdamOptions, decoupled_weight_decay, bool)});
  return all;
}
template <>
Setters<LionOptions> setters() {
  return with_betas<LionOptions>();
}
template <>
Setters<AdEMAMixOptions> setters() {
  auto all = adam<AdEMAMixOptions>();
  all.insert({HASTEN_TEST_SETTER(AdEMAMixOptions, beta3, double),
              HASTEN_TEST_SETTER(AdEMAMixOptions, alpha, double),
              HASTEN_TEST_SETTER(AdEMAMixOptions, t_alpha, std::int64_t),
              HASTEN_TEST_SETTER(AdEMAMixOptions, t_beta3, std::int64_t)});
  return all;
}
template <>
Setters<StableAdamWOptions> setters() {
  auto all = adam<StableAdamWOptions>();
  all.insert({HASTEN_TEST_SETTER(StableAdamWOptions, max_lr, double)});
  return all;
}
template <>
Setters<ScheduleFreeAdamWOptions> setters() {
  auto all = adam<ScheduleFreeAdamWOptions>();
  all["averaging"] = &set_averaging<ScheduleFreeAdamWOptions>;
  return all;
}
template <>
Setters<ScheduleFreeSGDOptions> setters() {
  auto all = common<ScheduleFreeSGDOptions>();
  all.insert({HASTEN_TEST_SETTER(ScheduleFreeSGDOptions, momentum, double)});
  all["averaging"] = &set_averaging<ScheduleFreeSGDOptions>;
  return all;
}
template <>
Setters<LambOptions> setters() {
  auto all = adam<LambOptions>();
  all.insert({HASTEN_TEST_SETTER(LambOptions, bias_correction, bool),
              HASTEN_TEST_SETTER(LambOptions, trust_clip, bool),
              HASTEN_TEST_SETTER(LambOptions, always_adapt, bool)});
  return all;
}
template <>
Setters<MuonOptions> setters() {
  auto all = common<MuonOptions>();
  all.insert({HASTEN_TEST_SETTER(MuonOptions, momentum, double),
              HASTEN_TEST_SETTER(MuonOptions, nesterov, bool),
              HASTEN_TEST_SETTER(MuonOptions, ns_coefficients, std::vector<double>),
              HASTEN_TEST_SETTER(MuonOptions, eps, double),
              HASTEN_TEST_SETTER(MuonOptions, ns_steps, std::int64_t),
              HASTEN_TEST_SETTER(MuonOptions, adjust_lr_fn, std::string)});
  return all;
}
template <>
Setters<AdafactorOptions> setters() {
  auto all = common<AdafactorOptions>();
  all.insert({HASTEN_TEST_SETTER(AdafactorOptions, clip_threshold, double),
              HASTEN_TEST_SETTER(AdafactorOptions, decay_rate, double),
              HASTEN_TEST_SETTER(AdafactorOptions, beta1, double),
              HASTEN_TEST_SETTER(AdafactorOptions, scale_parameter, bool),
              HASTEN_TEST_SETTER(AdafactorOptions, relative_step, bool),
              HASTEN_TEST_SETTER(AdafactorOptions, warmup_init, bool)});
  all["eps"] = [](AdafactorOptions& o, const Json& v) { o.eps(pair_of(v)); };
  return all;
}

using Maker =
    std::function<std::unique_ptr<StatefulOptimizer>(const Model& model, const Json& groups)>;

template <class Optimizer, class Options>
std::pair<const std::string, Maker> maker() {
  return {Options::kName, [](const Model& model, const Json& groups) {
            const auto all = setters<Options>();
            std::vector<torch::optim::OptimizerParamGroup> out;
            for (std::size_t i = 0; i < groups.size(); ++i) {
              auto options = std::make_unique<Options>();
              for (const auto& [key, value] : groups[i].items()) all.at(key)(*options, value);
              out.emplace_back(i == 0 ? model.matrices() : model.others(), std::move(options));
            }
            return std::make_unique<Optimizer>(out);
          }};
}

const std::map<std::string, Maker> kMakers = {
    maker<Adamax, AdamaxOptions>(),
    maker<NAdam, NAdamOptions>(),
    maker<RAdam, RAdamOptions>(),
    maker<Lion, LionOptions>(),
    maker<AdEMAMix, AdEMAMixOptions>(),
    maker<StableAdamW, StableAdamWOptions>(),
    maker<ScheduleFreeAdamW, ScheduleFreeAdamWOptions>(),
    maker<ScheduleFreeSGD, ScheduleFreeSGDOptions>(),
    maker<Lamb, LambOptions>(),
    maker<Muon, MuonOptions>(),
    maker<Adafactor, AdafactorOptions>(),
};

void set_training(StatefulOptimizer& optimizer, bool training) {
  auto* with_modes = dynamic_cast<WeightAveragingOptimizer*>(&optimizer);
  if (!with_modes) return;
  if (training) {
    with_modes->train();
  } else {
    with_modes->eval();
  }
}

std::unique_ptr<StatefulOptimizer> reloaded(const StatefulOptimizer& optimizer, const Model& model,
                                            const Json& test) {
  std::stringstream bytes;
  torch::serialize::OutputArchive out;
  optimizer.save(out);
  out.save_to(bytes);
  // The groups get no options, because the archive has them.
  Json groups = test.at("groups");
  for (Json& group : groups) group = Json::object();
  auto again = kMakers.at(test.at("optimizer"))(model, groups);
  torch::serialize::InputArchive in;
  in.load_from(bytes);
  again->load(in);
  return again;
}

}  // namespace

TEST_CASE("optimizers: each step equals that of the Python library") {
  const std::string folder = tested::folder().string() + "/oracle/data/optimizers/";
  std::ifstream file(folder + "cases.json");
  const Json oracle = Json::parse(file);
  const TensorDict expected = load_safetensors(folder + "weights.safetensors");
  const std::int64_t steps = oracle.at("steps"), rows = oracle.at("rows");
  const at::Tensor inputs = tensor_of(oracle.at("inputs"), {steps, rows, 6}).to(tested::device()),
                   targets = tensor_of(oracle.at("targets"), {steps, rows, 3}).to(tested::device());
  REQUIRE(oracle.at("cases").size() == 23);
  for (const auto& [name, test] : oracle.at("cases").items()) {
    CAPTURE(name);
    Model model(oracle.at("start"));
    auto optimizer = kMakers.at(test.at("optimizer"))(model, test.at("groups"));
    // Muon computes in bfloat16, whose products differ between processors.
    const double tolerance = test.at("optimizer") == "Muon" ? 2e-3 : 1e-6;
    for (std::int64_t step = 0; step < steps; ++step) {
      CAPTURE(step);
      if (step == 11) optimizer = reloaded(*optimizer, model, test);
      set_training(*optimizer, true);
      for (at::Tensor& each : model.parameters()) each.mutable_grad().reset();
      model.loss(inputs[step], targets[step]).backward();
      for (const auto& skipped : oracle.at("skipped")) {
        if (skipped == step) model.first->bias.mutable_grad().reset();
      }
      optimizer->step();
      if (step % 5 == 4) set_training(*optimizer, false);
      const double error = (model.weights() - expected.at(name)[step]).abs().max().item<double>();
      REQUIRE(error <= tested::limit(tolerance));
    }
  }
}

}  // namespace oracle_optimizers_test
