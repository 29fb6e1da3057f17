// File: trainer/own_progress.h (internal)
// The bars and lines that a Trainer adds itself, as disable_tqdm and log_level say.
//
//   if (auto progress = progress_for(args)) callbacks.push_back(progress);
//
// Thread rule: pure functions, except that progress_for() asks whether standard error is a
// terminal.
#pragma once

#include <memory>

#include "hasten/options/training_arguments.h"
#include "hasten/trainer/callback.h"

namespace hasten {

// True if the callback shows the run. Another bar would overwrite what it draws.
bool shows_progress(const TrainerCallback& callback);

// True if a log_level hides the lines of a run, as it does in the Hugging Face Trainer.
inline bool hides_progress(LogLevel level) {
  return level == LogLevel::error || level == LogLevel::critical;
}

// Returns a callback that shows the run, or null if nothing is to be shown. If disable_tqdm is
// unset, a run is shown on a terminal only.
std::shared_ptr<TrainerCallback> progress_for(const TrainingArguments& args);

}  // namespace hasten
