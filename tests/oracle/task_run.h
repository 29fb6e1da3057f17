// Trains a task of `hasten train` from its files, and compares the run with the recorded one of the
// Hugging Face Trainer in the folder of its model.
#pragma once

#include "hasten/base/files.h"
#include "hasten/metrics/metric.h"
#include "hasten/trainer/task_data.h"
#include "oracle/trainer_cases.h"

namespace hasten::oracle {

inline constexpr Tolerance kTaskTolerance{.loss = 3e-5, .norm = 1e-4, .weights = 3e-5};
// The metrics of an evaluation; the rest of an entry is compared by check_entry.
inline void check_scores(const json& expected, const LogEntry& entry) {
  for (const auto& [key, value] : expected.items()) {
    if (key.rfind("eval_", 0) != 0 || key == "eval_loss" || value.is_null()) continue;
    CAPTURE(key);
    REQUIRE(entry.count(key) == 1);
    // The logits differ by their rounding, and a perplexity of 30 by 30 times as much.
    CHECK(entry.at(key) == doctest::Approx(value.get<double>()).epsilon(3e-5));
  }
}

// `metrics`: those of the recorded run, if they are not the ones of the task.
inline std::shared_ptr<PreTrainedModel> check_run(const TrainOptions& options,
                                                  std::shared_ptr<EvalMetric> metrics = nullptr) {
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
  Trainer trainer(loaded.model, args,
                  {.train_dataset = data->train(*loaded.model),
                   .eval_dataset = data->eval(*loaded.model),
                   .compute_metrics = metrics ? metrics : data->metrics(*loaded.model)});
  const TrainOutput result = trainer.train();
  CHECK(result.global_step == expected.at("steps").get<std::int64_t>());
  CHECK(std::abs(result.training_loss - expected.at("train_loss").get<double>()) <=
        kTaskTolerance.loss);
  const auto& history = trainer.state().log_history;
  REQUIRE(history.size() == expected.at("log_history").size());
  for (std::size_t i = 0; i < history.size(); ++i) {
    CAPTURE(i);
    json entry = expected.at("log_history")[i];
    check_scores(entry, history[i]);
    for (auto item = entry.begin(); item != entry.end();)
      item = item.key().rfind("eval_", 0) == 0 && item.key() != "eval_loss" ? entry.erase(item)
                                                                            : std::next(item);
    check_entry(entry, history[i], kTaskTolerance);
  }
  check_weights(*loaded.model, folder / "final.safetensors", kTaskTolerance.weights);
  return loaded.model;
}

}  // namespace hasten::oracle
