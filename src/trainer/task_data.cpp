#include "hasten/trainer/task_data.h"

#include "hasten/base/error.h"
#include "hasten/trainer/classification_data.h"
#include "trainer/arrow_rows.h"
#include "trainer/task_files.h"

namespace hasten {

std::unique_ptr<TaskData> read_task_data(const TrainOptions& given, EvalLabels eval_labels) {
  const TrainOptions options = with_splits(given);
  switch (options.task) {
    case TrainTask::text_classification:
      return std::make_unique<ClassificationFiles>(options, eval_labels);
    case TrainTask::token_classification:
      return read_token_classification_files(options, eval_labels);
    case TrainTask::masked_lm:
      return read_masked_lm_files(options);
    case TrainTask::causal_lm:
      return read_causal_lm_files(options);
    case TrainTask::image_classification:
      return read_image_classification_files(options, eval_labels);
  }
  throw UsageError("models.unknown-task", {.what = "a task that is not in the list"});
}

}  // namespace hasten
