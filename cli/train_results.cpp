#include "train_results.h"

#include <exception>
#include <filesystem>
#include <iostream>
#include <vector>

#include "base/file_calls.h"
#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/formats/detail/tensor_slice.h"
#include "hasten/formats/safetensors.h"
#include "hasten/process/detail/rank_agreement.h"
#include "hasten/process/once.h"
#include "trainer/final_results.h"
#include "trainer/output_folder.h"

namespace hasten::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPredictionsFile = "predictions.safetensors";

void print_evaluation(const Metrics& metrics) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : metrics) rows.push_back({name, fixed(value, 4)});
  std::cout << '\n' << table({"evaluation", "value"}, rows);
}

// True in the processes that write the results.
bool writes_results(const Trainer& trainer) {
  return trainer.args().save_on_each_node ? trainer.is_local_process_zero()
                                          : trainer.is_world_process_zero();
}

bool is_true_on_any_rank(const Group& group, bool own) {
  return !is_true_on_all_ranks(group, !own);
}

// Returns the checkpoint with the weights that a run at its last step ends with: the best one if
// the run has loaded it. Returns an empty path if it is not there, as after a run that resumed from
// another folder and has saved nothing.
fs::path final_checkpoint(const Trainer& trainer) {
  const TrainingArguments& args = trainer.args();
  const TrainerState& state = trainer.state();
  if (args.load_best_model_at_end && !state.best_model_checkpoint.empty())
    return state.best_model_checkpoint;
  const fs::path own = fs::path(args.output_dir) / str(kCheckpointPrefix, state.global_step);
  for (const fs::path& folder : {own, without_last_slash(args.resume_from_checkpoint)}) {
    if (step_of_checkpoint(folder) == state.global_step && path_exists(folder / kManifestFile))
      return folder;
  }
  return {};
}

// True if the folder's run has gone on beyond this step: its results belong to the later one.
bool has_later_checkpoint(const Trainer& trainer) {
  const std::vector<fs::path> all = checkpoints(trainer.args().output_dir);
  return !all.empty() && step_of_checkpoint(all.back()) > trainer.state().global_step;
}

// True if the folder has the model and the metrics that the end of the training saves.
bool is_saved(const Trainer& trainer) {
  const fs::path folder = trainer.args().output_dir, checkpoint = final_checkpoint(trainer);
  if (!checkpoint.empty() && !has_weights_of(folder, checkpoint)) {
    print_warning(str("the model in ", folder.string(), " is not that of ",
                      checkpoint.filename().string(),
                      ", with which the run ends: it is saved again, with its results"));
    return false;
  }
  return has_metrics(folder, "train");
}

// Only the main process writes the tensors.
bool has_predictions(const Trainer& trainer) {
  const fs::path folder = trainer.args().output_dir;
  const bool has_tensors = trainer.args().prediction_loss_only ||
                           !trainer.is_world_process_zero() ||
                           path_exists(folder / kPredictionsFile);
  return has_tensors && has_metrics(folder, "test");
}

// Returns the work that an earlier start of the run has left in a folder that has a model.
EndWork work_left(const Trainer& trainer, const EndWork& requested) {
  if (has_later_checkpoint(trainer)) return {};
  if (!is_saved(trainer)) return requested;
  return {.saves = false,
          .evaluates = requested.evaluates && !has_metrics(trainer.args().output_dir, "eval"),
          .predicts = requested.predicts && !has_predictions(trainer)};
}

}  // namespace

void print_warning(const std::string& text) { log_line("hasten: warning: " + text); }

EndWork work_at_end(const Trainer& trainer, const TrainOutput& result, EndWork requested) {
  requested.saves = true;
  if (result.steps > 0 || result.global_step == 0) return requested;
  if (result.global_step != trainer.state().max_steps) return {};
  if (!trainer.has_saved_model()) return requested;
  const Group& group = trainer.accelerator().group();
  EndWork left;  // that of this process's folder
  once(group, writes_results(trainer), [&] { left = work_left(trainer, requested); });
  // A machine with its own folder may lack what the others have.
  return {.saves = is_true_on_any_rank(group, left.saves),
          .evaluates = is_true_on_any_rank(group, left.evaluates),
          .predicts = is_true_on_any_rank(group, left.predicts)};
}

void save_trained(Trainer& trainer, const TrainOutput& result) {
  if (trainer.is_world_process_zero()) std::cout << '\n';
  // Until now, the folder has the earlier model with its own results, in case the run fails.
  if (writes_results(trainer)) remove_old_results(trainer.args().output_dir, print_warning);
  trainer.log_metrics("train", result.metrics, std::cout);
  std::exception_ptr failure;  // set in all processes or in none, because each part is a collective
  const auto attempt = [&](const auto& write) {
    try {
      write();
    } catch (const IoError& error) {
      // Without the other processes, the model cannot be saved either.
      if (!starts_with(error.code(), "io.")) throw;
      if (!failure) failure = std::current_exception();
    }
  };
  attempt([&] { trainer.save_metrics("train", result.metrics); });
  attempt([&] { trainer.save_state(); });
  trainer.save_model();  // last, so that a saved model implies that the rest is saved
  if (failure) std::rethrow_exception(failure);
}

void evaluate(Trainer& trainer) {
  const Metrics metrics = trainer.evaluate();
  trainer.save_state();
  trainer.save_metrics("eval", metrics);  // last, because has_metrics() asks for this file
  if (trainer.is_world_process_zero()) print_evaluation(metrics);
}

void predict(Trainer& trainer, const TrainerDataset& data) {
  const PredictionOutput out = trainer.predict(data);
  const fs::path file = fs::path(trainer.args().output_dir) / kPredictionsFile;
  const bool writes = trainer.is_world_process_zero() && out.predictions.defined();
  once(trainer.accelerator().group(), writes, [&] {
    TensorDict tensors = {{"predictions", out.predictions}};
    if (out.label_ids.defined()) tensors["label_ids"] = out.label_ids;
    make_directories(file.parent_path());
    save_safetensors(file, tensors);
  });
  trainer.save_metrics("test", out.metrics);
  if (writes) std::cout << "\nPredictions in " << file.string() << '\n';
}

}  // namespace hasten::cli
