// The forms in which a plan is shown.
#include <nlohmann/json.hpp>

#include "anatomy/comparison_text.h"
#include "hasten/base/text.h"
#include "hasten/plan/plan.h"
#include "plan/predictions.h"
#include "plan/techniques.h"

namespace hasten {
namespace {

using Json = nlohmann::ordered_json;

std::string rate(const PlanStage& stage) {
  if (stage.cost.seconds <= 0) return "-";
  return anatomy::three_digits(static_cast<double>(stage.rows * stage.accumulation) /
                               stage.cost.seconds);
}

Json json_of(const PlanStage& stage, std::int64_t process) {
  return {{"change", stage.change},
          {"effect", stage.effect},
          {"exactness", name_of(stage.exactness)},
          {"rows", stage.rows},
          {"accumulation", stage.accumulation},
          {"bytes", stage.cost.bytes + process},
          {"seconds", stage.cost.seconds}};
}

}  // namespace

std::string to_text(const StepPlan& plan) {
  std::vector<std::vector<std::string>> rows;
  for (const PlanStage& each : plan.stages) {
    const std::int64_t bytes = each.cost.bytes + plan.process;
    rows.push_back({each.change, human_bytes(bytes), anatomy::fit_text(bytes, plan.memory),
                    anatomy::step_duration(each.cost.seconds), rate(each),
                    std::string(name_of(each.exactness))});
  }
  std::string text =
      str(plan.model, " on ", plan.device, anatomy::limit_text(plan.memory, plan.process), "\n\n");
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
                    {"bytes", plan.cost.bytes + plan.process},
                    {"seconds", plan.cost.seconds},
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
          human_bytes(plan.cost.bytes + plan.process), " of ", human_bytes(plan.memory), "\n");
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

std::string techniques_text() {
  std::vector<std::vector<std::string>> rows;
  for (const Technique& each : techniques()) {
    // The exactness applies to a step with AdamW, the usual optimizer.
    rows.push_back(
        {each.name, each.group, std::string(name_of(exactness_of({}, each))), each.effect});
  }
  return table({"technique", "group", "exactness", "effect"}, rows);
}

}  // namespace hasten
