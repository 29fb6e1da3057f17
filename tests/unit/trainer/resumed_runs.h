// Runs of ten steps that stop and are resumed.
//
//   const ResumedRun whole = run(ten_steps(folder.path));
//   CHECK(run(resumed_at(ten_steps(folder.path), 4)).losses == whole.losses);
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/trainer/trainer.h"
#include "unit/data/error_of.h"
#include "unit/trainer/tiny.h"

namespace hasten::resumed_runs {

using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

using FolderNames = std::vector<std::string>;

// Ten steps over 20 rows in batches of four, with a checkpoint every second step.
inline TrainingArguments ten_steps(const fs::path& folder) {
  TrainingArguments args = short_run(folder);
  args.max_steps = 10;
  args.learning_rate = 1e-3;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 2;
  return args;
}

struct ResumedRun {
  TrainOutput out;
  std::string log;
  std::vector<double> losses;
  TensorDict weights;
  std::string best;
};

inline ResumedRun run(const TrainingArguments& args, const ColumnDataset& data = rows(20),
                      double dropout = 0.1, const TrainerDataset& eval = {}) {
  ResumedRun run;
  const auto model = new_model(dropout);
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(data),
                   .eval_dataset = eval,
                   .log_sink = [&](std::string_view line) { run.log += line; }});
  run.out = trainer.train();
  run.losses = logged(trainer);
  for (const auto& [name, tensor] : model->state_dict()) run.weights[name] = tensor.clone();
  run.best = trainer.state().best_model_checkpoint;
  return run;
}

inline TrainingArguments resumed_at(TrainingArguments args, std::int64_t step) {
  args.resume_from_checkpoint = (fs::path(args.output_dir) / str("checkpoint-", step)).string();
  return args;
}

inline FolderNames names_of_folders(const std::vector<fs::path>& folders) {
  FolderNames names;
  for (const fs::path& each : folders) names.push_back(each.filename().string());
  return names;
}

// The same rows in reverse order.
inline ColumnDataset reversed(const ColumnDataset& data) {
  TensorDict columns;
  for (const auto& [name, column] : data.columns()) columns[name] = column.flip(0);
  return ColumnDataset(columns);
}

}  // namespace hasten::resumed_runs
