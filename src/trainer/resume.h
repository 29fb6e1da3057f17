// File: trainer/resume.h (internal)
// Continues a run from the checkpoint that resume_from_checkpoint names: restores the parts of the
// run and the Trainer's state, and reports what has changed since.
//
//   const PendingState resumed = Resume(trainer, run).restore();   // a collective
//
// Throws ConfigError "trainer.no-checkpoint" and "trainer.no-training-state", DataError
// "trainer.incomplete-weights", and what check_resumable (trainer/resume_checks.h) throws. Thread
// rule: that of the Trainer's collectives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "trainer/resume_checks.h"
#include "trainer/run_parts.h"
#include "trainer/trainer_impl.h"

namespace hasten {

class Trainer::Impl::Resume {
 public:
  Resume(Impl& trainer, RunParts& run) : trainer_(trainer), run_(run) {}

  // The state that is restored once the model is prepared.
  struct PendingState {
    std::filesystem::path folder;
    std::vector<WindowPosition> windows;  // the windows of all processes; empty between two steps
    std::optional<LossScalePosition> loss_scale = {};  // the scale of the gradients in the windows
    DueWork due = {};  // the work that the run does before its first step
    // If work is due: the epoch of the last step. Unset if only an evaluation is missing of the
    // work at the end of that epoch.
    std::optional<std::int64_t> open_epoch = {};
  };
  PendingState restore();

  // Sets resume_from_checkpoint if the job was restarted and its run has a checkpoint
  // (trainer/restarted_job.h). A run that saves only its weights starts over if it may overwrite
  // output_dir. A collective.
  static void continue_if_restarted(Impl& trainer);
  // Returns whether the condition is true in a process that writes checkpoints. The others may not
  // see the folders. A collective.
  static bool is_true_for_a_writer(const Impl& trainer, const std::function<bool()>& condition);

 private:
  // Returns the newest whole checkpoint from which the run continues although the arguments name
  // another one, or an empty path if there is none. A collective.
  static std::filesystem::path newest_checkpoint_instead_of(const std::filesystem::path& named,
                                                            const Impl& trainer);
  std::filesystem::path folder() const;
  void restore_parts(const CheckpointToResume& checkpoint);
  void restore_options(const CheckpointToResume& checkpoint) const;
  void resume_hashes(std::int64_t step, const std::optional<HashChainPosition>& position);
  void restore_callbacks(const TrainerState& before) const;
  void restore_due_work(const CheckpointToResume& checkpoint, PendingState& pending) const;
  void find_best_checkpoint(TrainerState& state, const std::filesystem::path& resumed) const;
  void report_changes(const CheckpointToResume& checkpoint);
  void report_changed_data(const CheckpointToResume& checkpoint);
  void report_changed_base(const CheckpointToResume& checkpoint);
  void report_later_checkpoints() const;

  Impl& trainer_;
  RunParts& run_;
};

}  // namespace hasten
