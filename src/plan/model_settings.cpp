#include "plan/model_settings.h"

#include <nlohmann/json.hpp>

#include "hasten/options/train_options.h"

namespace hasten {
namespace {

TrainTask task_of(const EstimateOptions& step) {
  switch (step.task ? *step.task : default_task_of(step.model)) {
    case Task::token_classification:
      return TrainTask::token_classification;
    case Task::masked_lm:
      return TrainTask::masked_lm;
    case Task::causal_lm:
      return TrainTask::causal_lm;
    case Task::image_classification:
      return TrainTask::image_classification;
    case Task::base:
    case Task::text_classification:
      break;
  }
  return TrainTask::text_classification;
}

}  // namespace

PlanSettings model_settings_of(const EstimateOptions& step) {
  using Json = nlohmann::ordered_json;
  PlanSettings all;
  const auto add = [&](const char* name, const auto& value, const auto& defaults) {
    if (value != defaults) all.emplace_back(name, Json(value).dump());
  };
  const TrainOptions defaults;
  const bool is_exported = is_exported_model(step.model);
  add("model", step.model, defaults.model);
  add("library", step.libraries, defaults.library);
  if (!is_exported) {
    add("task", name_of(task_of(step)), name_of(defaults.task));
    add("max_length", step.length, defaults.max_length);
  }
  add("num_labels", step.num_labels, 0);
  if (step.hidden_dropout) add("hidden_dropout", *step.hidden_dropout, -1.0);
  if (step.attention_dropout) add("attention_dropout", *step.attention_dropout, -1.0);
  if (step.classifier_dropout) add("classifier_dropout", *step.classifier_dropout, -1.0);
  add("ignore_mismatched_sizes", step.ignore_mismatched_sizes, defaults.ignore_mismatched_sizes);
  add("attn_implementation", name_of(step.attn_implementation),
      name_of(defaults.attn_implementation));
  if (step.lora.r <= 0) return all;
  add("lora_r", step.lora.r, 0);
  add("lora_alpha", step.lora.alpha, defaults.lora_alpha);
  add("lora_dropout", step.lora.dropout, defaults.lora_dropout);
  add("lora_target_modules", step.lora.target_modules, defaults.lora_target_modules);
  add("lora_modules_to_save", step.lora.modules_to_save, defaults.lora_modules_to_save);
  add("lora_bias", name_of(step.lora.bias), name_of(defaults.lora_bias));
  add("use_rslora", step.lora.use_rslora, defaults.use_rslora);
  return all;
}

}  // namespace hasten
