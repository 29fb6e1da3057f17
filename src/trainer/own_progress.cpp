#include "trainer/own_progress.h"

#include <unistd.h>

#include "hasten/trainer/dashboard_callback.h"
#include "hasten/trainer/progress_callback.h"

namespace hasten {

bool shows_progress(const TrainerCallback& callback) {
  return dynamic_cast<const ProgressCallback*>(&callback) != nullptr ||
         dynamic_cast<const DashboardCallback*>(&callback) != nullptr;
}

std::shared_ptr<TrainerCallback> progress_for(const TrainingArguments& args) {
  const bool is_silent = hides_progress(args.log_level);
  if (args.disable_tqdm.value_or(is_silent || isatty(STDERR_FILENO) == 0)) return nullptr;
  return std::make_shared<ProgressCallback>(ProgressOptions{.lines = !is_silent});
}

}  // namespace hasten
