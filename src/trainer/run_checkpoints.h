// File: trainer/run_checkpoints.h (internal)
// The checkpoints that a run saves in output_dir, one folder for each saved step. resume.h reads
// them.
//
//   RunCheckpoints::lock_output(trainer);          // before the parts of the run are made
//   RunCheckpoints::check_output_unused(trainer);
//   RunCheckpoints checkpoints(trainer, run);
//   checkpoints.prepare_output();                  // before the first step
//   checkpoints.save(window);                      // after a step or a micro-batch; a collective
//   if (checkpoints.is_in_flight() && !is_writing) checkpoints.finish();
//
// Thread rule: that of the Trainer's collectives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/collective_save.h"
#include "checkpoint/group_save.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "trainer/run_parts.h"
#include "trainer/trainer_impl.h"

namespace hasten {

class Trainer::Impl::RunCheckpoints {
 public:
  RunCheckpoints(Impl& trainer, RunParts& run);

  // Both check output_dir if it exists already, and are collectives (trainer/output_folder.h). The
  // Trainer keeps the lock until the end of train().
  static void lock_output(Impl& trainer);
  static void check_output_unused(const Impl& trainer);
  // Creates and locks output_dir, and checks that it can take the checkpoints of this run. With
  // overwrite_output_dir, removes the checkpoints of another run. If the run saves checkpoints,
  // first checks that the optimizer and the model can be saved. Throws what the functions above
  // throw, ConfigError "checkpoint.shared-folder", and UsageError "checkpoint.unknown-optimizer"
  // and "safetensors.*". A collective.
  void prepare_output() const;
  // Saves the state after the current step or, if `window` has micro-batches, inside the window of
  // the next step. An error of the file system is logged, and training continues. An asynchronous
  // save is in flight until finish().
  void save(const StepTotals& window, std::int64_t micro_batches);
  // Waits for the save in flight, and calls on_save if it succeeds. All processes call it at the
  // same place. Does nothing if there is none.
  void finish();
  bool is_in_flight() const { return save_.is_in_flight(); }
  // True if this process is still writing.
  bool is_writing() const { return save_.is_in_flight() && !save_.has_finished(); }
  // True if this state has been saved, or is being saved.
  bool is_saved(std::int64_t step, std::int64_t micro_batches) const {
    return newest_.step == step && newest_.micro_batches == micro_batches;
  }
  // The step of the newest checkpoint of this run or, until there is one, of the checkpoint that it
  // resumed from.
  std::int64_t last_saved() const { return last_saved_; }
  void set_last_saved(std::int64_t step, std::int64_t micro_batches) {
    last_saved_ = step;
    newest_ = {.step = step, .micro_batches = micro_batches};
  }
  // The folder of a step.
  std::filesystem::path folder_of(std::int64_t step) const;
  // Sets the work that is due after the current step. The checkpoints of save() contain it.
  void set_due(const std::optional<DueWork>& due) { due_ = due; }
  // Sets the folder of the best model in the Trainer's state, once there is a checkpoint of the
  // best step.
  void update_best_checkpoint() const;

 private:
  // Returns a function that logs what the lock on output_dir reports.
  static std::function<void(const std::string&)> lock_reporter(const Impl& trainer);
  void check_can_be_saved() const;
  void prepare_folder() const;
  std::uintmax_t bytes() const;
  // Returns the number of bytes that the next checkpoint probably has, with this number of bytes of
  // gradients: those of the latest one, or bytes() if there is none.
  std::uintmax_t expected_bytes(std::uintmax_t gradients) const;
  std::uintmax_t gradient_bytes() const;
  void begin_state_of_save(std::int64_t micro_batches);
  NewCheckpoint begin_checkpoint(std::uintmax_t gradients) const;
  TrainingPosition position(const StepTotals& window, std::int64_t micro_batches);
  std::vector<TensorDict> generators() const;
  // True if the files are to be written in the background. A collective.
  bool is_asynchronous() const;
  void write(const std::filesystem::path& folder, TrainingPosition position,
             const std::vector<TensorDict>& random) const;
  void complete(bool succeeded);
  // Logs `text`, the sentence about a save that has failed. If the save before it has failed for
  // the same reason, logs a shorter one: a reason that lasts may concern every save of a long run.
  void report_failure(const std::string& text, const std::string& reason);

  // The state of a save that has begun.
  struct SavePosition {
    std::int64_t step = 0, micro_batches = 0;
  };
  Impl& trainer_;
  RunParts& run_;
  std::int64_t last_saved_ = 0;
  SavePosition newest_;         // the newest save that has begun and has not failed
  SavePosition before_;         // the one before it
  std::optional<DueWork> due_;  // the work after the current step
  std::string last_failure_;    // the reason, if the latest save has failed
  std::string best_before_;     // the folder of the best model before it
  TrainerState state_of_save_;  // the state that on_save receives
  GroupSave save_;              // its destructor waits
};

}  // namespace hasten
