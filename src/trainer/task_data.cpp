#include "hasten/trainer/task_data.h"

#include "hasten/base/error.h"
#include "hasten/trainer/classification_data.h"
#include "hasten/trainer/masked_lm_data.h"
#include "hasten/trainer/token_classification_data.h"

namespace hasten {

std::unique_ptr<TaskData> read_task_data(const TrainOptions& options, EvalLabels eval_labels) {
  switch (options.task) {
    case TrainTask::text_classification:
      return std::make_unique<ClassificationFiles>(options, eval_labels);
    case TrainTask::token_classification:
      return std::make_unique<TokenClassificationFiles>(options, eval_labels);
    case TrainTask::masked_lm:
      return std::make_unique<MaskedLmFiles>(options);
  }
  throw UsageError("models.unknown-task", {.what = "a task that is not in the list"});
}

}  // namespace hasten
