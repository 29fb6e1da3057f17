#include "prepare/state_checkpoint.h"

#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/file_calls.h"
#include "checkpoint/collective_save.h"
#include "checkpoint/gradient_bytes.h"
#include "checkpoint/gradient_state.h"
#include "checkpoint/job_lock.h"
#include "checkpoint/machine_checkpoints.h"
#include "checkpoint/random_state.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/formats/safetensors.h"
#include "hasten/process/once.h"
#include "prepare/loaded_state.h"
#include "prepare/registered_objects.h"
#include "prepare/state_contents.h"
#include "prepare/window_state.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

fs::path checkpoints_of(const ProjectConfiguration& project, const char* call) {
  if (project.automatic_checkpoint_naming && !project.project_dir.empty())
    return project.project_dir / "checkpoints";
  throw UsageError("checkpoint.no-folder",
                   {.what = call,
                    .got = "no folder",
                    .expected = "a folder, or project_config with project_dir and "
                                "automatic_checkpoint_naming",
                    .hint = str("call ", call, " with a folder")});
}

// Returns the folder in which a save creates the folder of its checkpoint.
fs::path parent_of_save(const ProjectConfiguration& project, const fs::path& folder) {
  if (folder.empty()) return checkpoints_of(project, "save_state()");
  return without_last_slash(fs::absolute(folder)).parent_path();
}

// Locks the project's folder for as long as the Accelerator exists. A program that only loads does
// not need the lock, so load_state() works while another job saves. The lock is not in `all`,
// because programs list the checkpoints there.
void lock_project(AcceleratorState& state, const fs::path& all) {
  const Logger logger("hasten", LogLevel::passive, state.process, state.group);
  make_directories(all);
  state.saved.project_lock = lock_for_job(
      all.parent_path(), /*continues=*/state.saved.iteration >= 0,
      [&](const std::string& text) { logger.warning(text, {.main_process_only = false}); });
}

// Returns the folder of the next checkpoint of a project. Throws if a run that has loaded nothing
// finds the checkpoints of another run in the folder. owns_project allows the run's own first
// checkpoint, which may exist even if its save failed: the last part of a save, which makes the
// rename durable, can fail.
fs::path next_folder(AcceleratorState& state, const fs::path& all) {
  const auto found = checkpoints(all, kProjectPrefix);
  if (state.saved.iteration < 0 && !state.saved.owns_project && !found.empty()) {
    throw ConfigError("checkpoint.project-in-use",
                      {.what = all.string(),
                       .got = "the checkpoints of another run",
                       .expected = "an empty or new folder",
                       .hint = "call load_state() before the loop to continue that run, or choose "
                               "another project_dir"});
  }
  state.saved.owns_project = true;
  return all / str(kProjectPrefix, state.saved.iteration + 1);
}

fs::path folder_of(const fs::path& all, const BestCheckpoint& checkpoint) {
  return all / str(kProjectPrefix, checkpoint.number);
}

// Makes the next checkpoint the best one if its metric is the best so far. Returns the folder of
// the best one, or an empty path if there is none.
fs::path update_best(SavedObjects& saved, const fs::path& all, const ProjectConfiguration& project,
                     const std::optional<double>& metric) {
  // The save of the best one has failed if its number is free or is used again now.
  if (saved.best &&
      (saved.best->number > saved.iteration || !path_exists(folder_of(all, *saved.best))))
    saved.best = saved.best_before;
  const auto before = saved.best ? std::optional(saved.best->metric) : std::nullopt;
  if (metric && is_better(*metric, before, project.greater_is_better)) {
    saved.best_before = saved.best;
    saved.best = {.number = saved.iteration + 1, .metric = *metric};
  }
  return saved.best ? folder_of(all, *saved.best) : fs::path();
}

// Returns what happens to the older checkpoints of the project when the next one is complete.
CheckpointRotation next_rotation(AcceleratorState& state, const fs::path& all,
                                 const ProjectConfiguration& project,
                                 const std::optional<double>& metric) {
  return {.limit = project.total_limit,
          .keep = update_best(state.saved, all, project, metric),
          .keep_every = project.keep_every,
          .abandon_after = state.saved.iteration};
}

void check_metric_of_folder(const fs::path& folder, const SaveStateOptions& options) {
  if (folder.empty() || !options.metric) return;
  throw UsageError("checkpoint.metric",
                   {.what = "save_state() with a metric",
                    .got = "the folder " + folder.string(),
                    .expected = "no folder, because hasten never deletes a folder that you name",
                    .hint = "set project_config with automatic_checkpoint_naming, and call "
                            "save_state({}, {.metric = ...})"});
}

void check_outside_elastic_window(const AcceleratorState& state) {
  if (!state.elastic) return;
  throw UsageError("checkpoint.open-window",
                   {.what = "save_state() with elastic_ranks",
                    .got = "a call inside an accumulation window",
                    .expected = "a call after optimizer.step() has made a step",
                    .hint = "save if accelerator.sync_gradients() is true: another number of "
                            "processes divides the window differently"});
}

// Returns the generator states for a checkpoint: those of all processes, or only that of the main
// process if there are elastic ranks. A collective.
std::vector<TensorDict> saved_random_states(const AcceleratorState& state) {
  std::vector<TensorDict> random = random_states(state.group);
  if (state.elastic) random.resize(1);
  return random;
}

bool writes_checkpoints(const AcceleratorState& state, const ProjectConfiguration& project) {
  return project.save_on_each_node ? state.process.is_local_main_process()
                                   : state.group.rank() == 0;
}

// Gathers what the processes that write need, and checks that it fits into the folder. Returns it
// in these processes. A collective.
StateContents gather_contents(AcceleratorState& state, const ProjectConfiguration& project,
                              const OpenWindows& open, bool writes, const fs::path& staged) {
  const Group& group = state.group;
  const std::vector<TensorDict> random = saved_random_states(state);
  const auto elastic = state.elastic ? std::optional(state.elastic->position()) : std::nullopt;
  Json windows = Json::array();
  for (const std::string& of_rank : group.gather_object(json_of(open.windows).dump()))
    windows.push_back(Json::parse(of_rank));
  const std::uintmax_t gradients =
      bytes_of_gradients(group, open.gradients, project.save_on_each_node);
  StateContents contents;
  once(group, writes, [&] {
    contents = state_contents(state, random, std::move(windows), elastic);
    check_free_space(staged, bytes_of_state(state, contents) + gradients, "a checkpoint");
  });
  return contents;
}

void require_none_damaged(const fs::path& all) {
  if (damaged_checkpoints(all, kProjectPrefix).empty()) return;
  throw DataError("checkpoint.none-whole",
                  {.what = all.string(),
                   .got = "only damaged checkpoints",
                   .expected = "an intact checkpoint",
                   .hint = "the folders with names that end in .damaged hold the remaining "
                           "files; remove or move them to start again"});
}

// Returns the verified folder, or an empty path if nothing was saved yet. A collective.
fs::path folder_to_load(AcceleratorState& state, const ProjectConfiguration& project,
                        const fs::path& folder) {
  const Group& group = state.group;
  const Logger logger("hasten", LogLevel::passive, state.process, group);
  const auto report = [&](const std::string& damage) { logger.warning(damage); };
  if (project.save_on_each_node) {
    const bool writes = writes_checkpoints(state, project);
    if (!folder.empty()) return common_checkpoint(group, writes, folder);
    const fs::path all = checkpoints_of(project, "load_state()");
    abandon_interrupted_first_save(group, writes, all, kProjectPrefix, report);
    const fs::path newest = newest_common_checkpoint(group, writes, all, kProjectPrefix, report);
    if (newest.empty()) once(group, writes, [&] { require_none_damaged(all); });
    return newest;
  }
  return broadcast_from_main(group, [&]() -> std::string {
    if (!folder.empty()) {
      remove_unfinished_saves_of(folder);
      verify_checkpoint(folder);
      return folder.string();
    }
    const fs::path all = checkpoints_of(project, "load_state()");
    const fs::path newest = recover_last_checkpoint(all, report, kProjectPrefix);
    if (newest.empty()) require_none_damaged(all);
    return newest.string();
  });
}

}  // namespace

namespace detail {

TensorDict tensors_from_numbers(const NumbersByName& numbers) {
  TensorDict tensors;
  for (const auto& [name, number] : numbers) tensors[name] = at::scalar_tensor(number, at::kDouble);
  return tensors;
}

NumbersByName numbers_from_tensors(const TensorDict& tensors) {
  NumbersByName numbers;
  for (const auto& [name, tensor] : tensors) numbers[name] = tensor.item<double>();
  return numbers;
}

}  // namespace detail

fs::path save_state_checkpoint(AcceleratorState& state, const ProjectConfiguration& project,
                               const fs::path& folder, const SaveStateOptions& options) {
  const Group& group = state.group;
  const bool writes = writes_checkpoints(state, project);
  state.gradients.announcer().require_all_have_data("save_state");
  state.background_save.finish();  // two saves at once would rotate each other's folders
  OpenWindows open;
  once(group, true, [&] {
    check_metric_of_folder(folder, options);
    open = open_windows_of(state);
    check_windows_resumable(open, "save_state()");
    if (!open.empty()) check_outside_elastic_window(state);
  });
  if (project.save_on_each_node)
    require_separate_folders(group, writes, parent_of_save(project, folder));
  fs::path target = folder;
  StateContents contents;  // of a process that writes
  SaveParts parts{.writes = writes,
                  .on_each_node = project.save_on_each_node,
                  .asynchronous = options.asynchronous};
  parts.begin = [&] {
    NewCheckpoint made;
    if (folder.empty()) {
      const fs::path all = checkpoints_of(project, "save_state()");
      lock_project(state, all);
      target = next_folder(state, all);
      made.rotation = next_rotation(state, all, project, options.metric);
    }
    made.save = std::make_shared<CheckpointSave>(target, kProjectPrefix);
    return made;
  };
  parts.call_hooks = [&](const fs::path& staged) { call_with(state.saved.before_save, staged); };
  parts.gather = [&](const fs::path& staged) {
    contents = gather_contents(state, project, open, writes, staged);
  };
  parts.write = [&](const fs::path& staged) {
    if (!open.empty()) save_safetensors(staged / gradients_file(group.rank()), open.gradients);
    if (writes) write_state(state, contents, staged);
  };
  save_checkpoint(group, state.background_save, parts);
  if (folder.empty()) ++state.saved.iteration;
  return path_of_writer(group, target.string());
}

bool load_state_checkpoint(AcceleratorState& state, const ProjectConfiguration& project,
                           const fs::path& folder) {
  const Group& group = state.group;
  state.gradients.announcer().require_all_have_data("load_state");
  state.background_save.finish();
  const fs::path from = folder_to_load(state, project, without_last_slash(folder));
  if (from.empty()) return false;
  once(group, true, [&] { call_with(state.saved.before_load, from); });
  std::optional<LoadedState> loaded;
  once(group, true, [&] { loaded.emplace(state, from); });
  once(group, true, [&] { loaded->apply(); });
  state.saved.iteration = std::max<std::int64_t>(-1, step_of_checkpoint(from, kProjectPrefix));
  if (state.saved.iteration < 0) state.saved.best.reset();  // it is in another folder
  return true;
}

}  // namespace hasten
