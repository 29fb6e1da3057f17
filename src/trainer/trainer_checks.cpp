#include "trainer/trainer_checks.h"

#include <algorithm>
#include <string>
#include <typeinfo>
#include <vector>

#include "data/problem_type.h"
#include "formats/module_tensors.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/exported/exported_module.h"
#include "options/training_rules.h"
#include "trainer/best_metric.h"

namespace hasten {
namespace {

// Throws if nothing can find the best checkpoint, because the run would then save none.
void check_best_checkpoint(const TrainingArguments& args, const TrainerParts& parts) {
  const bool saves_best = args.save_strategy == SaveStrategy::best;
  if (parts.eval_dataset || (!saves_best && !args.load_best_model_at_end)) return;
  throw UsageError("trainer.no-eval-data",
                   {.what = saves_best ? "save_strategy best" : "load_best_model_at_end",
                    .got = "no evaluation data",
                    .expected = "evaluations, which find the best checkpoint",
                    .hint = str("pass eval_dataset (--eval_data), or ",
                                saves_best ? "choose another save_strategy"
                                           : "leave out load_best_model_at_end")});
}

// Returns the names of the metrics that an evaluation may have, or none if they are not known.
std::vector<std::string> names_of_metrics(const TrainingArguments& args, const EvalMetric* metric) {
  std::vector<std::string> names = {"loss", "runtime", "samples_per_second", "steps_per_second"};
  if (metric != nullptr && !args.prediction_loss_only) {
    const std::vector<std::string> scores = metric->score_names();
    if (scores.empty()) return {};
    names.insert(names.end(), scores.begin(), scores.end());
  }
  for (std::string& name : names) name = config::eval_metric_name(name);
  return names;
}

// Otherwise a run with a name that is misspelled ends at its first evaluation.
void check_best_metric(const TrainingArguments& args, const TrainerParts& parts) {
  const bool evaluates = args.eval_strategy != IntervalStrategy::no && parts.eval_dataset;
  if (args.metric_for_best_model.empty() || !evaluates) return;
  const std::string best = config::eval_metric_name(args.metric_for_best_model);
  const std::vector<std::string> names = names_of_metrics(args, parts.compute_metrics.get());
  const bool is_memory = !args.skip_memory_metrics && starts_with(best, "eval_mem_");
  if (names.empty() || is_memory || std::ranges::find(names, best) != names.end()) return;
  throw_unknown_metric("metric_for_best_model", best, names);
}

[[noreturn]] void throw_unsmoothable(const TrainingArguments& args, const std::string& got) {
  throw ConfigError("trainer.label-smoothing",
                    {.what = "label_smoothing_factor",
                     .got = str(args.label_smoothing_factor, ", with ", got),
                     .expected = "0, because smoothing is for labels that are one class each",
                     .hint = "leave out label_smoothing_factor"});
}

}  // namespace

void check_batch_types(const TrainerParts& parts, const LossFunction& forward) {
  const LossFunction& loss = parts.compute_loss ? parts.compute_loss : forward;
  for (const std::type_info* const given :
       {parts.train_dataset.batch_type(), parts.eval_dataset.batch_type()}) {
    for (const std::type_info* const expected : {loss.batch_type(), parts.labels.batch_type()}) {
      if (given != nullptr && expected != nullptr && *given != *expected)
        detail::throw_batch_type(*given, *expected);
    }
  }
}

void check_losses(const TrainingArguments& args, const TrainerParts& parts, std::int64_t ranks) {
  if (args.label_smoothing_factor != 0 && parts.compute_loss) {
    throw ConfigError("trainer.label-smoothing",
                      {.what = "label_smoothing_factor",
                       .got = str(args.label_smoothing_factor, ", with compute_loss"),
                       .expected = "0, because compute_loss computes the loss",
                       .hint = "smooth the labels in compute_loss, for example with the option "
                               "label_smoothing of torch::nn::functional::cross_entropy"});
  }
  if (!args.average_tokens_across_devices && ranks > 1) {
    throw ConfigError("trainer.average-tokens",
                      {.what = "average_tokens_across_devices",
                       .got = str("false, with ", ranks,
                                  args.elastic_ranks > 0 ? " virtual ranks" : " processes"),
                       .expected = "true, because a loss is the mean over the labels of all "
                                   "processes",
                       .hint = "leave out average_tokens_across_devices"});
  }
}

void check_evaluations(const TrainingArguments& args, const TrainerParts& parts) {
  check_best_checkpoint(args, parts);
  check_best_metric(args, parts);
}

void check_smoothed_model(const TrainingArguments& args, const torch::nn::Module& model) {
  const auto* const known = dynamic_cast<const PreTrainedModel*>(&model);
  if (args.label_smoothing_factor == 0 || known == nullptr || known->has_outputs_of_tokens())
    return;
  const std::string problem =
      problem_type_of(known->problem_type(), known->num_labels(), /*floating_labels=*/false);
  if (problem != kSingleLabel) throw_unsmoothable(args, "the problem type " + problem);
}

void check_smoothed_labels(const TrainingArguments& args, const torch::nn::Module& model,
                           const at::Tensor& labels, const at::Tensor& logits) {
  const auto* const known = dynamic_cast<const PreTrainedModel*>(&model);
  const bool is_configured = known != nullptr && logits.dim() == 2;
  const std::int64_t classes = logits.size(-1);
  const std::string problem = problem_type_of(is_configured ? known->problem_type() : "", classes,
                                              labels.is_floating_point());
  if (problem != kSingleLabel || labels.is_floating_point()) {
    throw_unsmoothable(args, str("labels of type ", c10::toString(labels.scalar_type()),
                                 " and the problem type ", problem));
  }
  if (labels.numel() * classes != logits.numel()) {
    throw_unsmoothable(args, str("labels of the shape ", shape_text(labels.sizes()),
                                 " and logits of the shape ", shape_text(logits.sizes())));
  }
}

void check_convertible(const torch::nn::Module& model) {
  // The operators of an exported program were chosen for the types that it was exported with.
  if (dynamic_cast<const ExportedModule*>(&model) == nullptr) return;
  throw ConfigError(
      "trainer.weights-dtype",
      {.what = "weights_dtype bfloat16",
       .got = "an exported program, whose operators were exported for its own types",
       .expected = "a module in C++",
       .hint = "export the model in bfloat16, model.to(torch.bfloat16), and leave out "
               "weights_dtype: AdamW takes such weights as they are"});
}

}  // namespace hasten
