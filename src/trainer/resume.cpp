#include "trainer/resume.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/file_calls.h"
#include "base/unfinished_files.h"
#include "checkpoint/machine_checkpoints.h"
#include "checkpoint/thread_count.h"
#include "data/loader_checks.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/models/lora.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/process/once.h"
#include "trainer/restarted_job.h"
#include "trainer/saved_model.h"

namespace hasten {

namespace fs = std::filesystem;

namespace {

std::string names_of(const std::vector<fs::path>& folders) {
  std::vector<std::string> names;
  for (const fs::path& folder : folders) names.push_back(folder.filename().string());
  return join(names, ", ");
}

[[noreturn]] void throw_no_training_state(const fs::path& folder) {
  ErrorText text{.what = "resume_from_checkpoint " + folder.string(),
                 .got = "a folder without training_position.json",
                 .expected = "a checkpoint with the optimizer's state",
                 .hint =
                     "a folder that save_only_model or the Hugging Face Trainer saved cannot be "
                     "resumed: pass it as --model to start a new run"};
  std::error_code unknown;
  const std::vector<fs::path> inside = checkpoints(folder);
  if (!inside.empty()) {
    text.got = "the folder of " + names_of(inside);
    text.hint = "name one of these, such as " + inside.back().string();
  } else if (!fs::is_directory(folder, unknown)) {
    text.got = "no such folder";
    text.hint = "check the path, or pass true to resume from the newest checkpoint in output_dir";
  }
  throw ConfigError("trainer.no-training-state", std::move(text));
}

[[noreturn]] void throw_no_checkpoint(const fs::path& output_dir) {
  const std::vector<fs::path> damaged = damaged_checkpoints(output_dir);
  const std::string what = "resuming the run in " + output_dir.string();
  if (damaged.empty()) {
    throw ConfigError(
        "trainer.no-checkpoint",
        {.what = what,
         .got = "no checkpoint",
         .expected = "a complete one",
         .hint = "start without resume_from_checkpoint, or give it the folder of a checkpoint"});
  }
  throw ConfigError("trainer.no-checkpoint",
                    {.what = what,
                     .got = "only damaged checkpoints: " + names_of(damaged),
                     .expected = "a complete one",
                     .hint = "the warnings of the run that renamed them say what is wrong with "
                             "each; to start from the beginning, choose another output_dir, or "
                             "move these folders elsewhere and start without "
                             "resume_from_checkpoint"});
}

void check_is_resumable(const fs::path& folder) {
  if (has_training_state(folder) || path_exists(folder / kManifestFile)) return;
  throw_no_training_state(folder);
}

}  // namespace

// Returns the same verified folder in all processes, whatever another process may be writing.
fs::path Trainer::Impl::Resume::folder() const {
  const TrainingArguments& args = trainer_.args;
  const auto report = [&](const std::string& damage) { trainer_.logger.warning(damage); };
  const bool is_newest = args.resume_from_checkpoint == "true";
  const fs::path named = without_last_slash(args.resume_from_checkpoint);
  if (args.save_on_each_node) {
    const bool writes = trainer_.writes();
    if (!is_newest) return common_checkpoint(trainer_.group(), writes, named);
    return newest_common_checkpoint(trainer_.group(), writes, args.output_dir, kCheckpointPrefix,
                                    report);
  }
  return broadcast_from_main(trainer_.group(), [&]() -> std::string {
    if (is_newest) return recover_last_checkpoint(args.output_dir, report).string();
    restore_replaced_folder(named);
    check_is_resumable(named);
    verify_checkpoint(named);
    return named.string();
  });
}

bool Trainer::Impl::Resume::is_true_for_a_writer(const Impl& trainer,
                                                 const std::function<bool()>& condition) {
  bool is_true = false;
  once(trainer.group(), trainer.writes(), [&] { is_true = condition(); });
  const auto of_ranks = trainer.group().gather_object(is_true ? "1" : "");
  return std::find(of_ranks.begin(), of_ranks.end(), "1") != of_ranks.end();
}

fs::path Trainer::Impl::Resume::newest_checkpoint_instead_of(const fs::path& named,
                                                             const Impl& trainer) {
  const Group& group = trainer.group();
  const auto replaces = [&](const fs::path& each) {
    return replaces_named_checkpoint(each, named);
  };
  const fs::path output_dir = trainer.args.output_dir;
  const auto report = [&](const std::string& damage) { trainer.logger.warning(damage); };
  if (!trainer.args.save_on_each_node) {
    return broadcast_from_main(group, [&] {
      return recover_last_checkpoint(output_dir, report, kCheckpointPrefix, replaces).string();
    });
  }
  const bool one_is_missing = is_true_for_a_writer(trainer, [&] {
    const std::vector<fs::path> found = checkpoints(output_dir);
    return std::none_of(found.begin(), found.end(), replaces);
  });
  if (one_is_missing) return {};
  return newest_common_checkpoint(group, trainer.writes(), output_dir, kCheckpointPrefix, report,
                                  replaces);
}

void Trainer::Impl::Resume::continue_if_restarted(Impl& trainer) {
  TrainingArguments& args = trainer.args;
  if (args.save_on_each_node)
    abandon_interrupted_first_save(trainer.group(), trainer.writes(), args.output_dir,
                                   kCheckpointPrefix,
                                   [&](const std::string& text) { trainer.logger.warning(text); });
  if (args.resume_from_checkpoint == "true") return;
  if (!args.resume_from_checkpoint.empty()) {
    const fs::path named = without_last_slash(args.resume_from_checkpoint);
    const fs::path newest = newest_checkpoint_instead_of(named, trainer);
    if (!newest.empty()) args.resume_from_checkpoint = newest.string();
    once(trainer.group(), trainer.writes(), [&] { check_clear_resume_point(args); });
    return;
  }
  const bool continues =
      is_true_for_a_writer(trainer, [&] { return should_resume_automatically(args); });
  if (!continues) return;
  args.resume_from_checkpoint = "true";
  args.overwrite_output_dir = false;  // the first start has overwritten it already
}

Trainer::Impl::Resume::PendingState Trainer::Impl::Resume::restore() {
  const fs::path from = folder();
  if (from.empty()) throw_no_checkpoint(trainer_.args.output_dir);
  if (!has_training_state(from)) throw_no_training_state(from);
  CheckpointToResume checkpoint(from);
  trainer_.accelerator.restore_elastic_position(checkpoint.position.elastic, from);
  check_resumable(checkpoint, trainer_.args, trainer_.data_ranks(), run_.rows());
  check_same_shards(checkpoint, trainer_.args,
                    run_.loader->reads_shard() ? trainer_.data_ranks() : 0);
  const bool begins_window_again =
      restarts_window(checkpoint, trainer_.args, trainer_.data_ranks());
  if (begins_window_again) go_to_start_of_window(checkpoint);
  once(trainer_.group(), true, [&] { trainer_.accelerator.call_load_hooks(from); });
  restore_parts(checkpoint);
  TrainerState before = checkpoint.state;
  find_best_checkpoint(before, from);
  restore_callbacks(before);
  trainer_.state = std::move(before);
  trainer_.set_process_flags(trainer_.state);
  trainer_.logger.info(
      str("resuming from ", from.string(), " at step ", trainer_.state.global_step));
  if (begins_window_again) {
    trainer_.logger.warning(
        str("the accumulation window in which ", from.string(),
            " was saved begins again, because the size of the micro-batches or the number of "
            "processes has changed"));
  }
  report_changes(checkpoint);
  PendingState pending{.folder = from, .windows = {}};
  restore_due_work(checkpoint, pending);
  if (trainer_.args.ignore_data_skip) return pending;  // the window begins again with the epoch
  pending.windows = checkpoint.position.windows;
  pending.loss_scale = checkpoint.position.loss_scale;
  return pending;
}

// Leaves out the work that was due only because the run ended inside of an epoch, if the run now
// has more steps.
void Trainer::Impl::Resume::restore_due_work(const CheckpointToResume& checkpoint,
                                             PendingState& pending) const {
  if (!checkpoint.position.due) return;
  const LoaderState& loader = checkpoint.position.loader;
  const std::int64_t step = checkpoint.state.global_step;
  const bool is_inside_epoch = detail::is_inside_pass(loader);
  DueWork& due = pending.due;
  due = *checkpoint.position.due;
  const bool is_end_done =
      !due.epoch_end && (!is_inside_epoch || step >= checkpoint.state.max_steps);
  if (!is_end_done) pending.open_epoch = is_inside_epoch ? loader.epoch : loader.epoch - 1;
  if (!is_inside_epoch || step >= run_.plan.max_steps) return;
  due.epoch_end = false;
  if (is_end_done) due.evaluation = false;
}

void Trainer::Impl::Resume::restore_parts(const CheckpointToResume& checkpoint) {
  const TrainingPosition& position = checkpoint.position;
  const std::vector<std::string> missing = load_model_files(*trainer_.model, checkpoint.folder);
  if (!missing.empty()) {
    throw DataError("trainer.incomplete-weights", {.what = checkpoint.folder.string(),
                                                   .got = "no tensor " + missing.front(),
                                                   .expected = "every weight of the model"});
  }
  once(trainer_.group(), true,
       [&] { trainer_.accelerator.restore_registered_states(checkpoint.folder); });
  if (!load_training_state(checkpoint.folder, run_.optimizer.unwrap(), run_.parameters.by_name(),
                           trainer_.is_elastic() ? 0 : trainer_.group().rank(),
                           trainer_.args.offload_optimizer_states
                               ? std::optional(at::Device(at::kCPU))
                               : std::nullopt)) {
    trainer_.logger.info(
        str("the checkpoint is from ", position.num_processes, " processes: rank ",
            trainer_.group().rank(), " has no saved random state and starts with a new one"),
        {.main_process_only = false});
  }
  run_.schedule.restore(position);
  restore_options(checkpoint);
  trainer_.restore_loss_scale(position.loss_scale);
  run_.loader->load_state(
      trainer_.args.ignore_data_skip
          ? LoaderState{.seed = position.loader.seed, .epoch = position.loader.epoch, .batch = 0}
          : position.loader);
  resume_hashes(checkpoint.state.global_step, position.hash_chain);
  run_.losses.restore(
      position.losses.value_or(LossPosition{.last_logged_step = checkpoint.state.global_step}));
}

// The schedule must have set its learning rates before.
void Trainer::Impl::Resume::restore_options(const CheckpointToResume& checkpoint) const {
  const auto& before = checkpoint.record.options;
  if (!before || continue_options(run_.optimizer.unwrap(), *before, checkpoint.folder)) return;
  trainer_.logger.warning(
      str("the optimizer has ", run_.optimizer.unwrap().param_groups().size(),
          " groups of parameters and had ", before->groups.size(),
          " when the checkpoint was made: the groups have the options of this run's arguments"));
}

void Trainer::Impl::Resume::resume_hashes(std::int64_t step,
                                          const std::optional<HashChainPosition>& position) {
  if (!run_.hashes) return;
  const ResumedChain chain = run_.hashes->resume(step, position);
  if (!chain.damage.empty()) {
    trainer_.logger.warning(str(chain.damage, ". The chain begins again after step ", step,
                                ": hasten verify and hasten diff compare the steps after it"));
  } else if (chain.begins_again) {
    trainer_.logger.info(str("the hash chain in ", trainer_.args.output_dir,
                             " begins again after step ", step,
                             ", because the links before this step are not there"));
  }
}

void Trainer::Impl::Resume::restore_callbacks(const TrainerState& before) const {
  auto saved = before.callbacks;
  for (const auto& [key, callback] : trainer_.stateful_callbacks()) {
    const auto found = saved.find(key);
    if (found == saved.end()) continue;
    callback->restore(found->second);
    saved.erase(found);
  }
  for (const auto& [key, attributes] : saved)
    trainer_.logger.warning(
        "the checkpoint has the state of the callback " + key +
        ", which this run does not have: it starts with a new state if it is added later");
}

// The checkpoints may have been moved or copied together. Another run may then have the folder that
// the state names, so the one beside the resumed checkpoint comes first. The folder that the state
// names may belong to a user whose folders this one may not enter.
void Trainer::Impl::Resume::find_best_checkpoint(TrainerState& state,
                                                 const fs::path& resumed) const {
  const fs::path best = state.best_model_checkpoint;
  if (best.empty()) return;
  std::error_code unknown;
  for (const fs::path& each : {resumed.parent_path() / best.filename(), best}) {
    restore_replaced_folder(each);
    if (!fs::is_directory(each, unknown)) continue;
    state.best_model_checkpoint = each.string();
    return;
  }
  state.best_model_checkpoint.clear();
  trainer_.logger.warning("the best checkpoint so far cannot be found: " + best.string());
}

void Trainer::Impl::Resume::report_changes(const CheckpointToResume& checkpoint) {
  for (const std::string& change : changed_arguments(checkpoint, trainer_.args))
    trainer_.logger.warning(change);
  if (const std::string change =
          change_of_threads(checkpoint.record.threads, at::get_num_threads());
      !change.empty() && trainer_.accelerator.device().is_cpu())
    trainer_.logger.warning(change);
  if (const auto* const model = dynamic_cast<const PreTrainedModel*>(trainer_.model.get())) {
    for (const std::string& change : changed_configuration(checkpoint, model->config_json()))
      trainer_.logger.warning(change);
  }
  if (has_lora(*trainer_.model)) {
    for (const std::string& change : changed_adapter(checkpoint, lora_options(*trainer_.model)))
      trainer_.logger.warning(change);
  }
  if (!trainer_.accelerator.is_main_process()) return;
  report_changed_data(checkpoint);
  report_changed_base(checkpoint);
  report_later_checkpoints();
}

void Trainer::Impl::Resume::report_changed_data(const CheckpointToResume& checkpoint) {
  const auto& before = checkpoint.position.data;
  if (!before || before->sample.empty() || trainer_.args.ignore_data_skip) return;
  const std::string now = run_.data_identity().sample;
  if (now.empty() || now == before->sample) return;
  trainer_.logger.warning(
      "the training data or their order differ from those of the checkpoint: some rows of "
      "this epoch may be used twice and others not at all. To avoid this, start the epoch "
      "again with --ignore_data_skip");
}

void Trainer::Impl::Resume::report_changed_base(const CheckpointToResume& checkpoint) {
  const std::optional<std::string>& before = checkpoint.base_digest;
  if (!before || !has_lora(*trainer_.model) || run_.base_digest() == before) return;
  trainer_.logger.warning(
      str("the weights of the model below the adapters differ from those with which ",
          checkpoint.folder.string(),
          " was made: the adapters were trained for other weights, so the results differ. To avoid "
          "this, resume with the same --model, --weights and --weights_dtype"));
}

void Trainer::Impl::Resume::report_later_checkpoints() const {
  const std::int64_t step = trainer_.state.global_step;
  const TrainingArguments& args = trainer_.args;
  if (args.save_strategy == SaveStrategy::no || step >= run_.plan.max_steps) return;
  std::vector<fs::path> later;
  for (const fs::path& each : checkpoints(args.output_dir)) {
    if (step_of_checkpoint(each) > step) later.push_back(each);
  }
  if (later.empty()) return;
  trainer_.logger.warning(
      str(args.output_dir,
          " has checkpoints of later steps than the one that this run resumes "
          "from: ",
          names_of(later), ". The first save of this run renames them to abandoned-checkpoint-N"));
}

}  // namespace hasten
