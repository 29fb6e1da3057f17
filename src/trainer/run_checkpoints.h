// File: trainer/run_checkpoints.h (internal)
// The checkpoints that a run saves in output_dir, one folder for each saved step. resume.h reads
// them.
//
//   RunCheckpoints checkpoints(trainer, run);
//   checkpoints.prepare_output();                  // before the first step
//   checkpoints.save();                            // after a step; a collective
//
// Thread rule: that of the Trainer's collectives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "trainer/run_parts.h"
#include "trainer/trainer_impl.h"

namespace hasten {

class Trainer::Impl::RunCheckpoints {
 public:
  RunCheckpoints(Impl& trainer, RunParts& run) : trainer_(trainer), run_(run) {}

  // Checks that output_dir can take the checkpoints of this run, and removes those of another one
  // with overwrite_output_dir. Throws ConfigError "trainer.output-in-use" and what the checks of the
  // folder throw.
  void prepare_output() const;
  // Saves the state after the current step.
  void save();
  // The step of the newest checkpoint of this run or, until there is one, that it resumed from.
  std::int64_t last_saved() const { return last_saved_; }
  void set_last_saved(std::int64_t step) { last_saved_ = step; }
  // The folder of a step.
  std::filesystem::path folder_of(std::int64_t step) const;

 private:
  void prepare_folder() const;
  std::uintmax_t bytes() const;
  void note_best_checkpoint() const;
  TrainingPosition position();
  void write(const std::filesystem::path& target, TrainingPosition position,
             const std::vector<TensorDict>& random) const;

  Impl& trainer_;
  RunParts& run_;
  std::int64_t last_saved_ = 0;
};

}  // namespace hasten
