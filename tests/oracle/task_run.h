// Trains a task of `hasten train` from its files, and compares the run with the Hugging Face
// Trainer's run that is recorded in the folder of the model.
#pragma once

#include <limits>

#include "hasten/base/files.h"
#include "hasten/metrics/metric.h"
#include "hasten/trainer/task_data.h"
#include "oracle/trainer_cases.h"

namespace hasten::oracle {

inline constexpr Tolerance kTaskTolerance{.loss = 3e-5, .norm = 1e-4, .weights = 3e-5};
inline constexpr Tolerance kRoughTolerance{.loss = 3e-3, .norm = 0.2, .weights = 3e-3};
// Compares the metrics of an evaluation; check_entry compares the rest of an entry.
inline void check_scores(const json& expected, const LogEntry& entry) {
  for (const auto& [key, value] : expected.items()) {
    if (key.rfind("eval_", 0) != 0 || key == "eval_loss" || value.is_null()) continue;
    CAPTURE(key);
    REQUIRE(entry.count(key) == 1);
    // The logits differ by rounding errors. A perplexity of 30 multiplies them by 30.
    CHECK(entry.at(key) == doctest::Approx(value.get<double>()).epsilon(3e-5));
  }
}

struct RunComparison {
  // The metrics of the recorded run, if they differ from the task's metrics.
  std::shared_ptr<EvalMetric> metrics = nullptr;
  // The entries of the log that are compared with kTaskTolerance; the rest and the weights are
  // compared with kRoughTolerance.
  std::size_t exact_entries = std::numeric_limits<std::size_t>::max();
};

inline std::shared_ptr<PreTrainedModel> check_run(const TrainOptions& options,
                                                  const RunComparison& comparison = {}) {
  const fs::path folder = options.model;
  const json expected = json::parse(read_file(folder / "expected.json"));
  const auto data = read_task_data(options);
  const LoadedModel loaded = load_model(options.model, data->model_options());
  CHECK(loaded.report.missing.empty());
  CHECK(loaded.report.unexpected.empty());
  TrainingArguments args =
      training_arguments_from_json(expected.at("arguments").dump(), "expected.json");
  const TemporaryDirectory out;
  args.output_dir = out.path().string();
  args.train_sampling_strategy = SamplingStrategy::sequential;
  args.save_strategy = SaveStrategy::no;
  args.use_cpu = true;
  Trainer trainer(
      loaded.model, args,
      {.train_dataset = data->train(*loaded.model),
       .eval_dataset = data->eval(*loaded.model),
       .compute_metrics = comparison.metrics ? comparison.metrics : data->metrics(*loaded.model)});
  const TrainOutput result = trainer.train();
  CHECK(result.global_step == expected.at("steps").get<std::int64_t>());
  const auto& history = trainer.state().log_history;
  const Tolerance& at_end =
      comparison.exact_entries < history.size() ? kRoughTolerance : kTaskTolerance;
  CHECK(std::abs(result.training_loss - expected.at("train_loss").get<double>()) <= at_end.loss);
  REQUIRE(history.size() == expected.at("log_history").size());
  for (std::size_t i = 0; i < history.size(); ++i) {
    CAPTURE(i);
    json entry = expected.at("log_history")[i];
    const bool is_exact = i < comparison.exact_entries;
    if (is_exact) check_scores(entry, history[i]);
    for (auto item = entry.begin(); item != entry.end();)
      item = item.key().rfind("eval_", 0) == 0 && item.key() != "eval_loss" ? entry.erase(item)
                                                                            : std::next(item);
    check_entry(entry, history[i], is_exact ? kTaskTolerance : kRoughTolerance);
  }
  check_weights(*loaded.model, folder / "final.safetensors", at_end.weights,
                /*scale_free=*/true);
  return loaded.model;
}

}  // namespace hasten::oracle
