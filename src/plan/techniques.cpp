#include "plan/techniques.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/machine/gpus.h"
#include "hasten/prepare/precision.h"

namespace hasten {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kAttention = "attn_implementation";  // the setting that is no argument
constexpr const char* kRecomputation = "activation_checkpointing";
constexpr const char* kRecomputationOptions = "activation_checkpointing_kwargs";

// The value of a setting as JSON: a word that JSON reads, or a text.
Json json_value(const std::string& text) {
  const Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_discarded() ? Json(text) : parsed;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// 16-bit numbers are fast on GPUs and on some CPUs; elsewhere a step takes some 20 times as long.
bool is_fast(const EstimateOptions& step, const Technique& technique) {
  if (technique.group != "precision" && technique.group != "weights") return true;
  if (step.device == "cpu") return technique.name != "fp16" && bf16_is_fast(at::kCPU);
  return technique.name == "fp16" || find_gpu(step.device).bf16_flops_per_second > 0;
}

// True if the device and the arguments take all of these techniques together.
bool are_possible(const EstimateOptions& step, const TechniqueSet& set) {
  return std::all_of(set.begin(), set.end(),
                     [&](const Technique* each) { return is_fast(step, *each); }) &&
         is_valid(with_settings(step, settings_of(set)).arguments);
}

[[noreturn]] void throw_contradiction(const std::string& got, const std::string& expected) {
  throw ConfigError(
      "plan.contradiction",
      {.what = "techniques of a plan", .got = got, .expected = expected, .hint = "leave one out"});
}

// Throws if two techniques that have to be used exclude each other. Batches are left out, because
// the plan chooses them.
void check_pair(const EstimateOptions& step, const Technique& one, const Technique& other) {
  if (&one == &other) return;
  const std::string both = str(one.name, " and ", other.name);
  if (one.group == other.group)
    throw_contradiction(both, str("one of them, because both choose the ", one.group));
  if (!are_possible(step, {&one, &other}))
    throw_contradiction(both, "one of them, because the training arguments exclude both together");
}

void check_use(const PlanOptions& options) {
  for (const std::string& name : options.avoid) (void)find_technique(name);
  for (const std::string& name : options.use) {
    const Technique& one = find_technique(name);
    if (contains(options.avoid, name))
      throw_contradiction(name + ", used and avoided", "one of both");
    if (!is_set(options.step, one) && !are_possible(options.step, {&one})) {
      throw_contradiction(name, str("techniques that ", options.step.device,
                                    " and the other training arguments allow"));
    }
    for (const std::string& other : options.use)
      check_pair(options.step, one, find_technique(other));
  }
}

bool has_group(const TechniqueSet& set, const std::string& group) {
  return std::any_of(set.begin(), set.end(),
                     [&](const Technique* each) { return each->group == group; });
}

}  // namespace

const std::vector<Technique>& techniques() {
  static const std::vector<Technique> all = {
      {"bf16",
       "precision",
       Exactness::rounding,
       "Products and activations are rounded to 8 bits; weights and optimizer states stay float.",
       {{"bf16", "true"}}},
      {"fp16",
       "precision",
       Exactness::rounding,
       "Products and activations are rounded to 11 bits, with a loss scale; weights stay float.",
       {{"fp16", "true"}}},
      {"bf16_weights",
       "weights",
       Exactness::rounding,
       "Weights, gradients and moments have 8 bits; AdamW rounds its updates stochastically.",
       {{"weights_dtype", "bfloat16"}}},
      {"adamw_8bit",
       "optimizer",
       Exactness::rounding,
       "The moments of AdamW have 8 bits, with a scale for each block.",
       {{"optim", "adamw_8bit"}}},
      {"adafactor",
       "optimizer",
       Exactness::other,
       "Adafactor keeps one row and one column of second moments for each matrix.",
       {{"optim", "adafactor"}}},
      {"lion",
       "optimizer",
       Exactness::other,
       "Lion keeps one moment and steps by its sign; its learning rate is 3 to 10 times smaller.",
       {{"optim", "lion_32bit"}}},
      {"lion_8bit",
       "optimizer",
       Exactness::other,
       "Lion with a moment of 8 bits; its learning rate is 3 to 10 times smaller.",
       {{"optim", "lion_8bit"}}},
      {"sgd", "optimizer", Exactness::other, "SGD keeps no states.", {{"optim", "sgd"}}},
      {"recompute",
       "recomputation",
       Exactness::exact,
       "Every layer runs again in the backward pass instead of keeping its activations.",
       {{kRecomputation, "true"}}},
      {"recompute_half",
       "recomputation",
       Exactness::exact,
       "Every second layer runs again in the backward pass.",
       {{kRecomputation, "true"}, {kRecomputationOptions, R"({"every_n_layers": 2})"}}},
      {"recompute_cheap",
       "recomputation",
       Exactness::exact,
       "The backward pass computes norms, dropout and activation functions again.",
       {{kRecomputation, "true"}, {kRecomputationOptions, R"({"policy": "selective"})"}}},
      {"step_in_backward",
       "gradients",
       Exactness::exact,
       "Each parameter is updated as soon as its gradient is complete; no accumulation.",
       {{"step_in_backward", "true"}}},
      {"step_in_backward_unclipped",
       "gradients",
       Exactness::other,
       "As step_in_backward, and gradients are not clipped any more.",
       {{"step_in_backward", "true"}, {"max_grad_norm", "0"}}},
      {"sdpa",
       "attention",
       Exactness::exact,
       "Attention is one kernel, which stores no probabilities.",
       {{kAttention, "sdpa"}}},
  };
  return all;
}

const Technique& find_technique(const std::string& name) {
  std::vector<std::string> names;
  for (const Technique& each : techniques()) {
    if (each.name == name) return each;
    names.push_back(each.name);
  }
  throw ConfigError("plan.unknown-technique",
                    {.what = "a technique of a plan", .got = name, .expected = join(names, ", ")});
}

Technique recomputation_of(const std::vector<std::string>& layers) {
  const Json options = {{"modules", join(layers, ":")}};
  return {.name = str("recompute_", layers.size()),
          .group = "recomputation",
          .exactness = Exactness::exact,
          .effect = str(layers.size(), layers.size() == 1 ? " layer runs" : " layers run",
                        " again in the backward pass: ", layers.front(),
                        layers.size() > 1 ? " to " + layers.back() : "", "."),
          .sets = {{kRecomputation, "true"}, {kRecomputationOptions, options.dump()}}};
}

PlanSettings settings_of(const TechniqueSet& set) {
  PlanSettings all;
  for (const Technique* each : set) all.insert(all.end(), each->sets.begin(), each->sets.end());
  return all;
}

EstimateOptions with_settings(EstimateOptions options, const PlanSettings& settings) {
  Json arguments = Json::parse(to_json(options.arguments));
  for (const auto& [name, value] : settings) {
    if (name == kAttention) {
      options.attn_implementation = from_name<AttentionImplementation>(value).value();
      continue;
    }
    arguments[name] = json_value(value);
    // The options of one optimizer mean nothing to another.
    if (name == "optim") arguments["optim_args"] = nullptr;
  }
  options.arguments = training_arguments_from_json(arguments.dump(), "a plan");
  return options;
}

bool is_valid(const TrainingArguments& arguments) {
  try {
    (void)resolved(arguments);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

bool is_set(const EstimateOptions& options, const Technique& technique) {
  const Json arguments = Json::parse(to_json(options.arguments));
  return std::all_of(technique.sets.begin(), technique.sets.end(), [&](const auto& setting) {
    const auto& [name, value] = setting;
    if (name == kAttention) return name_of(options.attn_implementation) == value;
    return arguments.contains(name) && arguments[name] == json_value(value);
  });
}

std::vector<TechniqueSet> combinations(const PlanOptions& options) {
  check_use(options);
  // Accumulation is the search's: what excludes it has batches of all rows.
  EstimateOptions step = options.step;
  step.arguments.gradient_accumulation_steps = 1;
  std::vector<TechniqueSet> all = {{}};
  for (const Technique& each : techniques()) {
    const bool is_used = contains(options.use, each.name);
    if (is_set(step, each) || contains(options.avoid, each.name)) continue;
    if (!is_used && each.exactness > options.exactness) continue;
    std::vector<TechniqueSet> with;
    for (const TechniqueSet& set : all) {
      if (has_group(set, each.group)) continue;
      with.push_back(set);
      with.back().push_back(&each);
      if (!are_possible(step, with.back())) with.pop_back();
    }
    if (!is_used) with.insert(with.begin(), all.begin(), all.end());
    all = std::move(with);
  }
  return all;
}

}  // namespace hasten
