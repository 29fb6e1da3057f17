#include "trainer/run_checkpoints.h"

#include <utility>

#include "anatomy/textbook.h"
#include "base/available_memory.h"
#include "checkpoint/gradient_bytes.h"
#include "checkpoint/gradient_state.h"
#include "checkpoint/job_lock.h"
#include "checkpoint/machine_checkpoints.h"
#include "checkpoint/optimizer_state.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/formats/safetensors.h"
#include "hasten/models/lora.h"
#include "hasten/models/training_traits.h"
#include "hasten/process/detail/rank_agreement.h"
#include "hasten/process/once.h"
#include "trainer/base_weights.h"
#include "trainer/output_folder.h"
#include "trainer/restarted_job.h"
#include "trainer/saved_model.h"

namespace hasten {

namespace fs = std::filesystem;

namespace {

// Returns the sum of the sizes of all files below the folder, or 0 if it cannot be listed. Leaves
// out the gradients of an open window, because the next checkpoint has others or none.
std::uintmax_t bytes_without_gradients(const fs::path& folder) {
  std::uintmax_t bytes = 0;
  std::error_code error;
  for (auto it = fs::recursive_directory_iterator(folder, error); !error && it != fs::end(it);
       it.increment(error)) {
    if (is_gradients_file(it->path().filename().string())) continue;
    std::error_code unknown;
    const std::uintmax_t size = it->file_size(unknown);  // an error for folders
    if (!unknown) bytes += size;
  }
  return bytes;
}

}  // namespace

Trainer::Impl::RunCheckpoints::RunCheckpoints(Impl& trainer, RunParts& run)
    : trainer_(trainer),
      run_(run),
      save_(trainer.group(), [this](const std::string& text) { report_failure(text, text); }) {}

void Trainer::Impl::RunCheckpoints::lock_output(Impl& trainer) {
  // Machines that share a folder by mistake are refused for this reason, in prepare_output().
  if (trainer.args.save_on_each_node) return;
  once(trainer.group(), trainer.writes(),
       [&] { trainer.output_lock = lock_output_dir(trainer.args, lock_reporter(trainer)); });
}

void Trainer::Impl::RunCheckpoints::check_output_unused(const Impl& trainer) {
  once(trainer.group(), trainer.writes(), [&] { hasten::check_output_unused(trainer.args); });
}

void Trainer::Impl::RunCheckpoints::prepare_output() const {
  const TrainingArguments& args = trainer_.args;
  once(trainer_.group(), trainer_.writes(), [&] { check_can_be_saved(); });
  once(trainer_.group(), trainer_.writes(), [&] { check_writable_directory(args.output_dir); });
  if (args.save_on_each_node)
    require_separate_folders(trainer_.group(), trainer_.writes(), args.output_dir);
  once(trainer_.group(), trainer_.writes(), [&] { prepare_folder(); });
}

// Finds what the first save would refuse, because the steps before it would be lost.
void Trainer::Impl::RunCheckpoints::check_can_be_saved() const {
  const TrainingArguments& args = trainer_.args;
  const bool saves = args.save_strategy != SaveStrategy::no || args.enable_jit_checkpoint;
  const bool reads_optimizer = (saves && !args.save_only_model) || run_.hashes;
  // Throws for an unknown optimizer.
  if (reads_optimizer) static_cast<void>(name_of_optimizer(run_.optimizer.unwrap()));
  if (saves) check_model_files(*trainer_.model, "a checkpoint in " + args.output_dir);
}

std::function<void(const std::string&)> Trainer::Impl::RunCheckpoints::lock_reporter(
    const Impl& trainer) {
  return [&trainer](const std::string& text) {
    trainer.logger.warning(text, {.main_process_only = !trainer.args.save_on_each_node});
  };
}

void Trainer::Impl::RunCheckpoints::prepare_folder() const {
  const TrainingArguments& args = trainer_.args;
  const fs::path folder = args.output_dir;
  // The folder may be new.
  trainer_.output_lock =
      lock_for_job(folder, !args.resume_from_checkpoint.empty(), lock_reporter(trainer_));
  remove_unfinished_saves(folder);
  if (args.save_strategy != SaveStrategy::no) check_free_space(folder, bytes(), "a checkpoint");
  if (!args.resume_from_checkpoint.empty()) return;
  hasten::check_output_unused(args);
  if (args.overwrite_output_dir) {
    for (const auto& all : {checkpoints(folder), abandoned_checkpoints(folder)}) {
      for (const fs::path& old : all) remove_directory(old);
    }
  }
  mark_job(folder);
}

// Returns the bytes of the model's files and of the optimizer's state for each weight.
std::uintmax_t Trainer::Impl::RunCheckpoints::bytes() const {
  std::uintmax_t weights = 0, trained = 0, numbers = 0;
  for (const auto& [name, parameter] : run_.parameters.by_name()) weights += parameter.nbytes();
  for (const at::Tensor& parameter : run_.trained) {
    numbers += static_cast<std::uintmax_t>(parameter.numel());
    trained += parameter.nbytes();
  }
  if (has_lora(*trainer_.model)) weights = trained;  // the file of adapters
  if (const TrainingTraits* const traits = traits_of(*trainer_.model))
    weights += traits->other_file_bytes();
  const auto states = anatomy::textbook_states(run_.optimizer.unwrap());
  if (!states || trainer_.args.save_only_model) return weights;
  return weights + static_cast<std::uintmax_t>(states->bytes * static_cast<double>(numbers));
}

std::uintmax_t Trainer::Impl::RunCheckpoints::expected_bytes(std::uintmax_t gradients) const {
  const std::uintmax_t latest = bytes_without_gradients(folder_of(last_saved_));
  return (latest > 0 ? latest : bytes()) + gradients;
}

// A collective.
std::uintmax_t Trainer::Impl::RunCheckpoints::gradient_bytes() const {
  if (trainer_.args.save_only_model) return 0;
  return bytes_of_gradients(trainer_.group(), trainer_.accelerator.open_windows().gradients,
                            trainer_.args.save_on_each_node);
}

std::vector<std::pair<std::string, TrainerCallback*>> Trainer::Impl::stateful_callbacks() const {
  std::vector<std::pair<std::string, TrainerCallback*>> found;
  std::map<std::string, int> counts;
  for (const auto& callback : parts.callbacks) {
    const std::string name = callback->name();
    if (name.empty()) continue;
    const int number = ++counts[name];
    found.emplace_back(number == 1 ? name : str(name, ' ', number), callback.get());
  }
  return found;
}

fs::path Trainer::Impl::RunCheckpoints::folder_of(std::int64_t step) const {
  return fs::path(trainer_.args.output_dir) / str("checkpoint-", step);
}

void Trainer::Impl::RunCheckpoints::save(const StepTotals& window, std::int64_t micro_batches) {
  finish();
  begin_state_of_save(micro_batches);
  const TrainingPosition now = position(window, micro_batches);
  trainer_.use_evaluated_weights();
  const std::uintmax_t gradients = micro_batches > 0 ? gradient_bytes() : 0;
  std::vector<TensorDict> random;
  SaveParts parts{.writes = trainer_.writes(),
                  .on_each_node = trainer_.args.save_on_each_node,
                  .asynchronous = is_asynchronous()};
  parts.begin = [&] { return begin_checkpoint(gradients); };
  if (!trainer_.args.save_only_model) {
    parts.call_hooks = [&](const fs::path& staged) {
      trainer_.accelerator.call_save_hooks(staged);
    };
    // A hook may draw random numbers, so the generators are saved as they are after it.
    parts.gather = [&](const fs::path&) { random = generators(); };
  }
  parts.write = [&](const fs::path& staged) { write(staged, now, random); };
  const auto give_up = [&](const Error& error) {
    report_failure(str("the checkpoint of step ", newest_.step, " was not saved: ", error.what()),
                   error.what());
    complete(false);
  };
  try {
    save_checkpoint(trainer_.group(), save_, parts);
  } catch (const IoError& error) {
    return give_up(error);
  } catch (const MemoryError& error) {
    return give_up(error);
  }
  if (!parts.asynchronous) complete(true);
}

// Brings the state up to date that the next checkpoint has, and keeps the old one in case of a
// failure.
void Trainer::Impl::RunCheckpoints::begin_state_of_save(std::int64_t micro_batches) {
  TrainerState& state = trainer_.state;
  run_.parameters.check_unchanged(*trainer_.model, state.global_step);
  state.callbacks.clear();
  for (const auto& [key, callback] : trainer_.stateful_callbacks())
    state.callbacks[key] = callback->attributes();
  best_before_ = state.best_model_checkpoint;
  update_best_checkpoint();
  before_ = newest_;
  newest_ = {.step = state.global_step, .micro_batches = micro_batches};
  state_of_save_ = state;
}

// Creates the folder of a checkpoint, in a process that writes one.
NewCheckpoint Trainer::Impl::RunCheckpoints::begin_checkpoint(std::uintmax_t gradients) const {
  const TrainingArguments& args = trainer_.args;
  // If output_dir was renamed since, another job may have locked a new folder of this name.
  make_directories(args.output_dir);
  trainer_.output_lock =
      lock_for_job(args.output_dir, /*continues=*/false, lock_reporter(trainer_));
  check_free_space(args.output_dir, expected_bytes(gradients), "a checkpoint");
  NewCheckpoint made{.save = std::make_shared<CheckpointSave>(folder_of(newest_.step)),
                     .rotation = {.limit = args.save_total_limit,
                                  .keep = trainer_.state.best_model_checkpoint,
                                  .keep_every = args.save_keep_every,
                                  .abandon_after = last_saved_}};
  mark_job(made.save->path());
  return made;
}

// Returns the generators of all processes. Elastic ranks draw the same numbers outside of
// micro-batches. A collective.
std::vector<TensorDict> Trainer::Impl::RunCheckpoints::generators() const {
  std::vector<TensorDict> of_ranks = random_states(trainer_.group());
  if (trainer_.is_elastic()) of_ranks.resize(1);
  return of_ranks;
}

void Trainer::Impl::RunCheckpoints::finish() {
  if (save_.is_in_flight()) complete(save_.finish());
}

void Trainer::Impl::RunCheckpoints::complete(bool succeeded) {
  if (!succeeded) {
    newest_ = before_;
    trainer_.state.best_model_checkpoint = best_before_;
    return;
  }
  last_saved_ = newest_.step;
  last_failure_.clear();
  // The run may have continued, so the callbacks get the state that was saved.
  const TrainerEvent event{.args = trainer_.args,
                           .state = state_of_save_,
                           .model = *trainer_.model,
                           .accelerator = &trainer_.accelerator};
  trainer_.for_each_callback([&](TrainerCallback& each) { each.on_save(event, trainer_.control); });
}

void Trainer::Impl::RunCheckpoints::report_failure(const std::string& text,
                                                   const std::string& reason) {
  const bool is_repeated = std::exchange(last_failure_, reason) == reason;
  const std::string folder = folder_of(newest_.step).string();
  trainer_.logger.warning(
      is_repeated
          ? folder + " was not saved either, for the same reason as the checkpoint before it"
          : text);
}

bool Trainer::Impl::RunCheckpoints::is_asynchronous() const {
  if (trainer_.args.async_save) return *trainer_.args.async_save;
  // The copy may take half of the free memory, because training needs some as well.
  const auto free = available_memory();
  const bool fits = !trainer_.writes() || (free && *free / 2 >= bytes());
  return is_true_on_all_ranks(trainer_.group(), fits);
}

// Sets the folder of the best model once its step is saved, which may never happen. A run that
// resumed from another folder may have its best checkpoint there.
void Trainer::Impl::RunCheckpoints::update_best_checkpoint() const {
  TrainerState& state = trainer_.state;
  const auto best = state.best_global_step;
  if (!best) return;
  const fs::path folder = folder_of(*best);
  std::error_code unknown;
  if (*best == state.global_step || (*best == last_saved_ && fs::is_directory(folder, unknown)))
    state.best_model_checkpoint = folder.string();
}

// Returns the position for a checkpoint. A collective.
TrainingPosition Trainer::Impl::RunCheckpoints::position(const StepTotals& window,
                                                         std::int64_t micro_batches) {
  TrainingPosition position{.num_processes = trainer_.data_ranks(),
                            .loader = run_.loader->state(),
                            .losses = run_.losses.position(),
                            .elastic = trainer_.accelerator.elastic_position(),
                            .loss_scale = trainer_.loss_scale_position(),
                            .due = due_};
  run_.schedule.save_in(position, trainer_.state.global_step);
  if (micro_batches > 0) position.windows = trainer_.gather_windows(window, run_.losses.open_sum());
  if (run_.hashes) position.hash_chain = run_.hashes->position();
  return position;
}

void Trainer::Impl::RunCheckpoints::write(const fs::path& folder, TrainingPosition position,
                                          const std::vector<TensorDict>& random) const {
  if (!position.windows.empty() && !trainer_.args.save_only_model) trainer_.save_gradients(folder);
  if (!trainer_.writes()) return;
  trainer_.write_model(folder);
  if (!trainer_.args.save_only_model) {
    position.data = run_.data_identity();
    save_training_state(folder, run_.optimizer.unwrap(), run_.parameters.by_name(), position,
                        random, run_.optimizer_options());
    for (const auto& [name, state] : trainer_.accelerator.registered_states())
      save_safetensors(folder / name, state);
    if (const auto& base = run_.base_digest()) save_base_digest(folder, *base);
  }
  write_file_atomically(folder / "trainer_state.json", trainer_.state.to_json());
}

}  // namespace hasten
