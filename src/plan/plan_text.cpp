// The forms in which a plan is shown.
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "hasten/base/text.h"
#include "hasten/plan/plan.h"
#include "plan/predictions.h"
#include "plan/techniques.h"

namespace hasten {
namespace {

using Json = nlohmann::ordered_json;

// Three digits, without an exponent.
std::string three_digits(double value) {
  return value < 100 ? significant(value, 3) : grouped(std::llround(value));
}

std::string duration(double seconds) {
  if (seconds <= 0) return "-";
  return seconds < 1 ? three_digits(1000 * seconds) + " ms" : three_digits(seconds) + " s";
}

std::string rate(const PlanStage& stage) {
  if (stage.needs.seconds <= 0) return "-";
  return three_digits(static_cast<double>(stage.rows * stage.accumulation) / stage.needs.seconds);
}

std::string limit(std::int64_t memory, std::int64_t process) {
  return str(" within ", human_bytes(memory),
             process > 0 ? str(", of which the program takes ", human_bytes(process)) : "");
}

std::string fit(std::int64_t bytes, std::int64_t memory) {
  return bytes <= memory ? "fits" : "does not fit";
}

// A sign and a size: "-1.2 GB".
std::string signed_bytes(std::int64_t bytes) {
  return bytes == 0 ? "0 B" : str(bytes < 0 ? "-" : "+", human_bytes(std::abs(bytes)));
}

std::string percent(double now, double before) {
  if (now <= 0 || before <= 0) return "-";
  const std::int64_t share = std::llround(100 * (now / before - 1));
  return str(share > 0 ? "+" : "", share, " %");
}

// The row of a step that can be made.
std::vector<std::string> row(const TechniqueComparison& comparison, const std::string& name,
                             const StepNeeds& needs, Exactness exactness) {
  const std::int64_t bytes = needs.bytes + comparison.process;
  return {name,
          human_bytes(bytes),
          signed_bytes(needs.bytes - comparison.asked.bytes),
          comparison.memory > 0 ? fit(bytes, comparison.memory) : "",
          duration(needs.seconds),
          percent(needs.seconds, comparison.asked.seconds),
          std::string(name_of(exactness))};
}

Json json_of(const PlanStage& stage, std::int64_t process) {
  return {{"change", stage.change},
          {"effect", stage.effect},
          {"exactness", name_of(stage.exactness)},
          {"rows", stage.rows},
          {"accumulation", stage.accumulation},
          {"bytes", stage.needs.bytes + process},
          {"seconds", stage.needs.seconds}};
}

}  // namespace

std::string to_text(const StepPlan& plan) {
  std::vector<std::vector<std::string>> rows;
  for (const PlanStage& each : plan.stages) {
    const std::int64_t bytes = each.needs.bytes + plan.process;
    rows.push_back({each.change, human_bytes(bytes), fit(bytes, plan.memory),
                    duration(each.needs.seconds), rate(each),
                    std::string(name_of(each.exactness))});
  }
  std::string text = str(plan.model, " on ", plan.device, limit(plan.memory, plan.process), "\n\n");
  text += table({"change", "memory", "", "step", "rows/s", "exactness"}, rows) + "\n";
  for (const PlanStage& each : plan.stages) {
    if (!each.effect.empty()) text += str(each.change, ": ", each.effect, "\n");
  }
  if (plan.next_rows > 0) {
    text += str("The next larger batch, of ", plan.next_rows, " rows, needs ",
                human_bytes(plan.next_bytes),
                plan.next_bytes > plan.memory ? ", which does not fit.\n"
                                              : ", which fits and is not faster.\n");
  }
  return text + str(plan.combinations, plan.combinations == 1 ? " combination" : " combinations",
                    " of techniques, ", plan.predictions, " dry runs.\n");
}

std::string to_json(const StepPlan& plan) {
  Json stages = Json::array(), settings = Json::object();
  for (const PlanStage& each : plan.stages) stages.push_back(json_of(each, plan.process));
  for (const auto& [name, value] : plan.settings) settings[name] = value;
  const Json out = {{"model", plan.model},
                    {"device", plan.device},
                    {"memory", plan.memory},
                    {"process", plan.process},
                    {"techniques", plan.techniques},
                    {"settings", settings},
                    {"rows", plan.rows},
                    {"accumulation", plan.accumulation},
                    {"bytes", plan.needs.bytes + plan.process},
                    {"seconds", plan.needs.seconds},
                    {"next_rows", plan.next_rows},
                    {"next_bytes", plan.next_bytes},
                    {"stages", stages},
                    {"combinations", plan.combinations},
                    {"predictions", plan.predictions}};
  return out.dump(1) + "\n";
}

std::string to_yaml(const StepPlan& plan) {
  std::string text =
      str("# hasten plan: ", plan.model, " on ", plan.device, ", ",
          human_bytes(plan.needs.bytes + plan.process), " of ", human_bytes(plan.memory), "\n");
  const Json defaults = Json::parse(hasten::to_json(resolved(TrainingArguments{}))),
             chosen = Json::parse(hasten::to_json(plan.arguments));
  for (const auto& [name, value] : chosen.items()) {
    const bool is_batch =
        name == "per_device_train_batch_size" || name == "gradient_accumulation_steps";
    // JSON is YAML on one line.
    if (is_batch || value != defaults.at(name)) text += str(name, ": ", value.dump(), "\n");
  }
  PlanSettings others = plan.model_settings;
  for (const auto& setting : plan.settings) {
    const std::string& name = setting.first;
    if (chosen.contains(name)) continue;
    std::erase_if(others, [&](const auto& each) { return each.first == name; });
    others.push_back(setting);
  }
  for (const auto& [name, value] : others) text += str(name, ": ", value, "\n");
  return text;
}

std::string to_text(const TechniqueComparison& comparison) {
  std::vector<std::vector<std::string>> rows = {
      row(comparison, "as asked", comparison.asked, Exactness::exact)};
  std::string refused;
  for (const TechniqueEffect& each : comparison.effects) {
    if (each.refused.empty()) {
      rows.push_back(row(comparison, each.name, each.needs, each.exactness));
    } else {
      refused += str("  ", each.name, ": ", each.refused, "\n");
    }
  }
  return str(comparison.model, " on ", comparison.device, ", ",
             to_text(StepBatch{.rows = comparison.rows, .accumulation = comparison.accumulation}),
             comparison.memory > 0 ? limit(comparison.memory, comparison.process) : "", "\n\n",
             table({"change", "memory", "difference", "", "step", "difference", "exactness"}, rows),
             refused.empty() ? "" : "\nNot possible with this step:\n" + refused);
}

std::string to_json(const TechniqueComparison& comparison) {
  Json effects = Json::array();
  for (const TechniqueEffect& each : comparison.effects) {
    Json effect = {
        {"technique", each.name}, {"effect", each.effect}, {"exactness", name_of(each.exactness)}};
    if (each.refused.empty()) {
      effect["bytes"] = each.needs.bytes + comparison.process;
      effect["seconds"] = each.needs.seconds;
    } else {
      effect["refused"] = each.refused;
    }
    effects.push_back(std::move(effect));
  }
  const Json out = {{"model", comparison.model},
                    {"device", comparison.device},
                    {"memory", comparison.memory},
                    {"process", comparison.process},
                    {"rows", comparison.rows},
                    {"accumulation", comparison.accumulation},
                    {"bytes", comparison.asked.bytes + comparison.process},
                    {"seconds", comparison.asked.seconds},
                    {"techniques", effects}};
  return out.dump(1) + "\n";
}

std::string techniques_text() {
  std::vector<std::vector<std::string>> rows;
  for (const Technique& each : techniques()) {
    // As a change of a step with AdamW, the usual optimizer.
    rows.push_back(
        {each.name, each.group, std::string(name_of(exactness_of({}, each))), each.effect});
  }
  return table({"technique", "group", "exactness", "effect"}, rows);
}

}  // namespace hasten
