#include "plan/techniques.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/parse_number.h"
#include "base/strict_json.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/changed_arguments.h"
#include "plan/step_model.h"

namespace hasten {
namespace {

using Json = nlohmann::ordered_json;

// A setting that is not a training argument.
constexpr const char* kLength = "length";
constexpr const char* kRecomputation = "activation_checkpointing";
constexpr const char* kRecomputationOptions = "activation_checkpointing_kwargs";

// Returns the value of a setting as JSON: the parsed value if it is JSON, or else a text.
Json json_value(const std::string& text) {
  const Json parsed = parse_json_or_discard<Json>(text);
  return parsed.is_discarded() ? Json(text) : parsed;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// True if the technique also changes a step that does not train.
bool changes_forward_pass(const Technique& technique) {
  const std::string& group = technique.group;
  return group == "precision" || group == "weights" || group == "attention";
}

// True if the arguments allow all of these techniques together.
bool are_possible(const EstimateOptions& step, const TechniqueSet& set) {
  return is_valid(with_settings(step, settings_of(set)).arguments);
}

// True if the options already choose a setting of the technique's group that a plan keeps.
bool is_chosen(const EstimateOptions& step, const Technique& technique) {
  return technique.group == "recomputation" && step.arguments.activation_checkpointing;
}

[[noreturn]] void throw_contradiction(const std::string& got, const std::string& expected) {
  throw ConfigError(
      "plan.contradiction",
      {.what = "techniques of a plan", .got = got, .expected = expected, .hint = "leave one out"});
}

// Throws if two techniques that must be used exclude each other. `step` has no accumulation,
// because the plan chooses the batches.
void check_pair(const EstimateOptions& step, const Technique& one, const Technique& other) {
  if (&one == &other) return;
  const std::string both = str(one.name, " and ", other.name);
  if (one.group == other.group)
    throw_contradiction(both, str("one of them, because both choose the ", one.group));
  if (!are_possible(step, {&one, &other}))
    throw_contradiction(both, "one of them, because the training arguments exclude both together");
}

// Checks `use` and `avoid`. `step` has no accumulation, because the plan chooses the batches.
void check_use(const PlanOptions& options, const EstimateOptions& step) {
  for (const std::string& name : options.avoid) (void)find_technique(name);
  for (const std::string& name : options.use) {
    const Technique& one = find_technique(name);
    if (contains(options.avoid, name))
      throw_contradiction(name + ", used and avoided", "one of the two");
    if (is_set(step, one)) continue;
    if (const std::string reason = exclusion_reason(options, one); !reason.empty())
      throw_contradiction(str(name, ", although ", reason), "other techniques");
    if (!are_possible(step, {&one}))
      throw_contradiction(name, "techniques that the other training arguments allow");
    for (const std::string& other : options.use) check_pair(step, one, find_technique(other));
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
       "Products and activations are bfloat16; weights and optimizer states stay float.",
       {{"bf16", "true"}}},
      {"fp16",
       "precision",
       Exactness::rounding,
       "Products and activations are float16, with a loss scale; weights stay float.",
       {{"fp16", "true"}}},
      {"bf16_weights",
       "weights",
       Exactness::rounding,
       "Weights and gradients are bfloat16, moments float; AdamW rounds updates stochastically.",
       {{"weights_dtype", "bfloat16"}}},
      {"adamw_8bit",
       "optimizer",
       Exactness::rounding,
       "The moments of AdamW have 8 bits, with a scale for each block.",
       {{"optim", "adamw_8bit"}},
       {OptimizerName::adamw_torch, OptimizerName::adamw_torch_fused}},
      {"adafactor",
       "optimizer",
       Exactness::other,
       "Adafactor keeps one row and one column of second moments for each matrix.",
       {{"optim", "adafactor"}}},
      {"lion",
       "optimizer",
       Exactness::other,
       "Lion keeps one moment and steps by its sign, at 1/3 to 1/10 of AdamW's learning rate.",
       {{"optim", "lion_32bit"}}},
      {"lion_8bit",
       "optimizer",
       Exactness::rounding,
       "Lion with a moment of 8 bits, at 1/3 to 1/10 of AdamW's learning rate.",
       {{"optim", "lion_8bit"}},
       {OptimizerName::lion_32bit}},
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
      {"recompute_offload",
       "recomputation",
       Exactness::exact,
       "Every layer runs again in the backward pass, and its input waits in host memory.",
       {{kRecomputation, "true"}, {kRecomputationOptions, R"({"offload": true})"}}},
      {"offload_activations",
       "activations",
       Exactness::exact,
       "Activations wait in host memory for the backward pass; the host needs the memory.",
       {{"activation_offloading", "true"}}},
      {"offload_states",
       "optimizer states",
       Exactness::exact,
       "The states of the optimizer are in host memory, and the CPU makes its steps.",
       {{"offload_optimizer_states", "true"}}},
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
       {{kAttentionSetting, "sdpa"}}},
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

bool has_setting(const Technique& technique, const std::string& name) {
  return std::any_of(technique.sets.begin(), technique.sets.end(),
                     [&](const auto& setting) { return setting.first == name; });
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

Technique rows_of_length(std::int64_t length) {
  return {.name = str("rows of ", length, length == 1 ? " token" : " tokens"),
          .group = "length",
          .exactness = Exactness::other,
          .effect = "Rows are shorter, so the step has fewer tokens.",
          .sets = {{kLength, str(length)}}};
}

Technique without_technique(const Technique& technique) {
  const Json defaults = Json::parse(to_json(resolved(TrainingArguments{})));
  Technique without = technique;
  without.name = "without " + technique.name;
  without.effect = "The step leaves this out: " + technique.effect;
  // The options of recomputation are refused if recomputation is off.
  if (has_setting(technique, kRecomputation) && !has_setting(technique, kRecomputationOptions))
    without.sets.emplace_back(kRecomputationOptions, "");
  for (auto& [name, value] : without.sets) {
    value = name == kAttentionSetting ? std::string(name_of(EstimateOptions{}.attn_implementation))
                                      : defaults.at(name).dump();
  }
  return without;
}

PlanSettings settings_of(const TechniqueSet& set) {
  PlanSettings all;
  for (const Technique* each : set) all.insert(all.end(), each->sets.begin(), each->sets.end());
  return all;
}

std::string argument_changes(const PlanSettings& settings) {
  Json changes = Json::object();
  for (const auto& [name, value] : settings) {
    if (name == kAttentionSetting || name == kLength) continue;
    changes[name] = json_value(value);
    // The options of one optimizer do not apply to another.
    if (name == "optim") changes["optim_args"] = nullptr;
  }
  return changes.dump();
}

EstimateOptions with_settings(EstimateOptions options, const PlanSettings& settings) {
  for (const auto& [name, value] : settings) {
    if (name == kAttentionSetting)
      options.attn_implementation = from_name<AttentionImplementation>(value).value();
    if (name == kLength) options.length = parse_number<std::int64_t>(value).value();
  }
  if (!settings.empty())
    options.arguments = with_changes(options.arguments, argument_changes(settings));
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
  const EstimateOptions with = with_settings(options, technique.sets);
  return with.attn_implementation == options.attn_implementation && with.length == options.length &&
         to_json(with.arguments) == to_json(options.arguments);
}

Exactness exactness_of(const EstimateOptions& step, const Technique& technique) {
  const auto& known = technique.optimizers;
  const bool holds =
      known.empty() || std::find(known.begin(), known.end(), step.arguments.optim) != known.end();
  return holds ? technique.exactness : Exactness::other;
}

std::string exclusion_reason(const PlanOptions& options, const Technique& technique) {
  if (options.step.mode != EstimateMode::training && !changes_forward_pass(technique))
    return "it affects only training";
  return make_step_model(options)->exclusion_reason(options, technique);
}

std::vector<TechniqueSet> combinations(const PlanOptions& options) {
  // The search chooses the accumulation. A technique that excludes it gets batches with all rows of
  // the step.
  EstimateOptions step = options.step;
  step.arguments.gradient_accumulation_steps = 1;
  check_use(options, step);
  std::vector<TechniqueSet> all = {{}};
  for (const Technique& each : techniques()) {
    const bool is_used = contains(options.use, each.name);
    if (is_set(step, each) || contains(options.avoid, each.name)) continue;
    if (!is_used && (exactness_of(step, each) > options.exactness || is_chosen(step, each) ||
                     !exclusion_reason(options, each).empty()))
      continue;
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
  if (all.empty()) {
    throw_contradiction(join(options.use, ", "),
                        "techniques that the training arguments take together");
  }
  return all;
}

}  // namespace hasten
