// File: hasten/trainer/task_data.h
// The data files of `hasten train` as datasets for its task, and the model options and evaluation
// scores that follow from the task and the data.
//
//   const std::unique_ptr<TaskData> data = read_task_data(options);  // reads and checks the files
//   LoadedModel loaded = load_model(options.model, data->model_options());
//   TrainerDataset train = data->train(*loaded.model), eval = data->eval(*loaded.model);
//   std::shared_ptr<EvalMetric> metrics = data->metrics(*loaded.model);
//
// docs/tasks.md describes the files of each task. Throws DataError, IoError, ConfigError. Thread
// rule: one thread at a time.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/metrics/metric.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/options/train_options.h"
#include "hasten/trainer/detail/trainer_dataset.h"

namespace hasten {

// Whether the evaluation data must have labels; a prediction does not need them.
enum class EvalLabels { required, optional };

class HASTEN_API TaskData {
 public:
  virtual ~TaskData() = default;

  // The options of the model that follow from the data and from TrainOptions.
  virtual ModelOptions model_options() const = 0;
  // The rows of --data, checked against the model.
  virtual TrainerDataset train(const PreTrainedModel& model) const = 0;
  // The rows of --eval_data, checked against the model; empty if it was not given.
  virtual TrainerDataset eval(const PreTrainedModel& model) const = 0;
  // The scores of an evaluation.
  virtual std::shared_ptr<EvalMetric> metrics(const PreTrainedModel& model) const = 0;
  // The files of the tokenizer or of the image processor in the model folder, to be saved with the
  // model.
  virtual std::vector<std::filesystem::path> tokenizer_files() const = 0;
};

// Reads the files for options.task.
HASTEN_API std::unique_ptr<TaskData> read_task_data(const TrainOptions& options,
                                                    EvalLabels eval_labels = EvalLabels::required);

}  // namespace hasten
