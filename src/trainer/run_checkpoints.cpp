#include "trainer/run_checkpoints.h"

#include "anatomy/textbook.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/process/once.h"

namespace hasten {

namespace fs = std::filesystem;

void Trainer::Impl::RunCheckpoints::prepare_output() const {
  once(trainer_.group(), trainer_.writes(), [&] { prepare_folder(); });
}

void Trainer::Impl::RunCheckpoints::prepare_folder() const {
  const TrainingArguments& args = trainer_.args;
  const fs::path folder = args.output_dir;
  check_writable_directory(folder);
  remove_unfinished_saves(folder);
  if (args.save_strategy != SaveStrategy::no) check_free_space(folder, bytes(), "a checkpoint");
  if (!args.resume_from_checkpoint.empty()) return;
  if (!args.overwrite_output_dir && !checkpoints(folder).empty()) {
    throw ConfigError("trainer.output-in-use",
                      {.what = "output_dir " + folder.string(),
                       .got = "the checkpoints of another run",
                       .expected = "an empty or new folder",
                       .hint = "resume with --resume_from_checkpoint true, choose another "
                               "folder, or start over with --overwrite_output_dir"});
  }
  if (args.overwrite_output_dir) {
    for (const auto& all : {checkpoints(folder), abandoned_checkpoints(folder)}) {
      for (const fs::path& old : all) remove_directory(old);
    }
  }
}

// Returns the bytes of the weights and of what the optimizer keeps for each of them.
std::uintmax_t Trainer::Impl::RunCheckpoints::bytes() const {
  std::uintmax_t weights = 0, trained = 0;
  for (const auto& [name, parameter] : run_.parameters.by_name()) weights += parameter.nbytes();
  for (const at::Tensor& parameter : run_.trained) trained += parameter.nbytes();
  const auto states = anatomy::textbook_states(run_.optimizer.unwrap());
  if (!states || trainer_.args.save_only_model) return weights;
  const double kept = states->bytes / sizeof(float);
  return weights + static_cast<std::uintmax_t>(kept * static_cast<double>(trained));
}

fs::path Trainer::Impl::RunCheckpoints::folder_of(std::int64_t step) const {
  return fs::path(trainer_.args.output_dir) / str("checkpoint-", step);
}

void Trainer::Impl::RunCheckpoints::save() {
  TrainerState& state = trainer_.state;
  run_.parameters.check_unchanged(*trainer_.model, state.global_step);
  for (const auto& callback : trainer_.parts.callbacks) {
    if (!callback->name().empty()) state.callbacks[callback->name()] = callback->attributes();
  }
  note_best_checkpoint();
  const TrainingPosition now = position();
  trainer_.use_evaluated_weights();
  const std::vector<TensorDict> random =
      trainer_.args.save_only_model ? std::vector<TensorDict>{} : random_states(trainer_.group());
  once(trainer_.group(), trainer_.writes(),
       [&] { write(folder_of(state.global_step), now, random); });
  last_saved_ = state.global_step;
  trainer_.notify_callbacks(&TrainerCallback::on_save);
}

// Sets the folder of the best model once its step is saved, which may never happen. A run that
// resumed from another folder may have its best checkpoint there.
void Trainer::Impl::RunCheckpoints::note_best_checkpoint() const {
  TrainerState& state = trainer_.state;
  const auto best = state.best_global_step;
  if (!best) return;
  const fs::path folder = folder_of(*best);
  if (*best == state.global_step || (*best == last_saved_ && fs::is_directory(folder)))
    state.best_model_checkpoint = folder.string();
}

// Returns what a checkpoint keeps of the position. A collective.
TrainingPosition Trainer::Impl::RunCheckpoints::position() {
  TrainingPosition position{.num_processes = trainer_.group().size(),
                            .loader = run_.loader->state(),
                            .losses = run_.losses.position()};
  run_.schedule.save_in(position, trainer_.state.global_step);
  return position;
}

void Trainer::Impl::RunCheckpoints::write(const fs::path& target, TrainingPosition position,
                                          const std::vector<TensorDict>& random) const {
  CheckpointSave save(target);
  trainer_.write_model(save.path());
  if (!trainer_.args.save_only_model) {
    position.data = run_.data_identity();
    save_training_state(save.path(), run_.optimizer.unwrap(), run_.parameters.by_name(), position,
                        random);
  }
  write_file_atomically(save.path() / "trainer_state.json", trainer_.state.to_json());
  save.commit({.limit = trainer_.args.save_total_limit,
               .keep = trainer_.state.best_model_checkpoint,
               .abandon_after = last_saved_});
}

}  // namespace hasten
