#include "prepare/state_checkpoint.h"

#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/json_number.h"
#include "base/strict_json.h"
#include "checkpoint/elastic_position.h"
#include "checkpoint/loss_scale_position.h"
#include "checkpoint/machine_checkpoints.h"
#include "checkpoint/optimizer_options.h"
#include "checkpoint/optimizer_state.h"
#include "checkpoint/random_state.h"
#include "data/loader_checks.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/checkpoint/training_state.h"
#include "hasten/formats/module_weights.h"
#include "hasten/formats/safetensors.h"
#include "hasten/process/once.h"
#include "prepare/window_state.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kStateFile = "accelerator_state.json";
constexpr const char* kRandomFile = "random_state.safetensors";

// Returns "model.safetensors", "model_1.safetensors" and so on, as Accelerate names its files.
std::string numbered_file(const char* what, std::size_t number) {
  return str(what, number == 0 ? "" : str('_', number), ".safetensors");
}

std::string object_file(std::size_t number) {
  return str("custom_checkpoint_", number, ".safetensors");
}

// The files that the main process writes, apart from the weights.
struct Contents {
  Json json;
  std::map<std::string, TensorDict> files;
};

Json json_of_position(const detail::SavedPosition& position, std::size_t number,
                      TensorDict& generators) {
  if (position.is_of_hasten) {
    return {{"seed", position.loader.seed},
            {"epoch", position.loader.epoch},
            {"batch", position.loader.batch},
            {"rows", position.loader.rows}};
  }
  if (position.pass.batches > 0 && position.pass.generator.defined())
    generators[str("loader.", number)] = position.pass.generator;
  return {{"batches", position.pass.batches}};
}

detail::SavedPosition position_of_json(const Json& json, std::size_t number,
                                       const TensorDict& generators) {
  if (json.contains("seed")) {
    return {.is_of_hasten = true,
            .loader = {.seed = unsigned_number_at(json, "seed"),
                       .epoch = whole_number_at(json, "epoch"),
                       .batch = whole_number_at(json, "batch"),
                       .rows = whole_number_at(json, "rows")},
            .pass = {}};
  }
  const auto generator = generators.find(str("loader.", number));
  return {.is_of_hasten = false,
          .loader = {},
          .pass = {.batches = whole_number_at(json, "batches"),
                   .generator =
                       generator == generators.end() ? at::Tensor() : generator->second.clone()}};
}

Contents contents_of(AcceleratorState& state, const std::vector<TensorDict>& random, Json windows,
                     const std::optional<ElasticPosition>& elastic) {
  Contents contents;
  Json& json = contents.json;
  json = {{"models", state.saved.models().size()}, {"num_processes", state.group.size()},
          {"objects", state.saved.objects.size()}, {"optimizers", Json::array()},
          {"schedulers", Json::array()},           {"loaders", Json::array()},
          {"windows", std::move(windows)}};
  add_elastic(json, elastic);
  if (state.scaling) add_loss_scale(json, state.scaling->position());
  const auto optimizers = state.saved.optimizers();
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    torch::optim::Optimizer& optimizer = optimizers[i]->optimizer();
    json["optimizers"].push_back({{"name", name_of_optimizer(optimizer)},
                                  {"steps", optimizers[i]->steps},
                                  {"groups", options_of(optimizer)}});
    contents.files[numbered_file("optimizer", i)] =
        optimizer_tensors(optimizer, names_of_parameters(optimizer, state.saved));
  }
  for (const auto& scheduler : state.saved.schedulers()) {
    const SyncedScheduler::Counts counts = scheduler->counts();
    json["schedulers"].push_back({{"steps", counts.steps},
                                  {"step_count", counts.step_count},
                                  {"optimizer_steps", counts.optimizer_steps}});
  }
  TensorDict& generators = contents.files[kRandomFile] = joined_random_states(random);
  const auto loaders = state.saved.loaders();
  for (std::size_t i = 0; i < loaders.size(); ++i)
    json["loaders"].push_back(json_of_position(loaders[i]->position(), i, generators));
  for (std::size_t i = 0; i < state.saved.objects.size(); ++i)
    contents.files[object_file(i)] = state.saved.objects[i]->state_dict();
  return contents;
}

std::uintmax_t bytes_of(AcceleratorState& state, const Contents& contents) {
  std::uintmax_t bytes = 0;
  for (const auto& model : state.saved.models()) {
    for (const at::Tensor& tensor : model->parameters()) bytes += tensor.nbytes();
    for (const at::Tensor& tensor : model->buffers()) bytes += tensor.nbytes();
  }
  for (const auto& [name, tensors] : contents.files) {
    for (const auto& [key, tensor] : tensors) bytes += tensor.nbytes();
  }
  return bytes;
}

void write_contents(AcceleratorState& state, const Contents& contents, const fs::path& folder) {
  check_free_space(folder, bytes_of(state, contents), "a checkpoint");
  const auto models = state.saved.models();
  for (std::size_t i = 0; i < models.size(); ++i)
    save_weights(*models[i], folder / numbered_file("model", i));
  for (const auto& [name, tensors] : contents.files) save_safetensors(folder / name, tensors);
  write_file_atomically(folder / kStateFile, contents.json.dump(2) + "\n");
}

void call_all(const std::vector<std::shared_ptr<CheckpointFunction>>& functions,
              const fs::path& folder) {
  for (const auto& function : functions) {
    if (*function) (*function)(folder);
  }
}

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

// Returns the folder of the next checkpoint of a project. A run that has loaded nothing does not
// write into the folder that has the checkpoints of another one. Its own first checkpoint may be
// there although the call that wrote it has failed, if only the last step, making the rename
// durable, went wrong.
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

void refuse_inside_elastic_window(const AcceleratorState& state) {
  if (!state.elastic) return;
  throw UsageError("checkpoint.open-window",
                   {.what = "save_state() with elastic_ranks",
                    .got = "a call inside an accumulation window",
                    .expected = "a call after optimizer.step() has made a step",
                    .hint = "save if accelerator.sync_gradients() is true: another number of "
                            "processes divides the window differently"});
}

// Returns the generators that a checkpoint keeps: those of all processes, or of the main process if
// there are elastic ranks. A collective.
std::vector<TensorDict> saved_random_states(const AcceleratorState& state) {
  std::vector<TensorDict> random = random_states(state.group);
  if (state.elastic) random.resize(1);
  return random;
}

// The contents of a checkpoint's files, read and compared with what is prepared before anything
// changes.
class LoadedState {
 public:
  LoadedState(AcceleratorState& state, fs::path folder)
      : state_(state), folder_(std::move(folder)), json_(parsed()) {
    try {
      check();
    } catch (const Json::exception& error) {
      throw_bad_state(error.what());
    } catch (const JsonError& error) {
      throw_bad_state(error.what());
    }
  }

  void apply() {
    if (state_.scaling && loss_scale_) state_.scaling->restore(*loss_scale_);
    restore_windows(state_, windows_);
    if (elastic_) state_.elastic->restore(*elastic_);
    const auto models = state_.saved.models();
    for (std::size_t i = 0; i < models.size(); ++i)
      load_weights(*models[i], folder_ / numbered_file("model", i));
    const auto schedulers = state_.saved.schedulers();
    for (std::size_t i = 0; i < schedulers.size(); ++i) schedulers[i]->set_counts(counts_[i]);
    const auto optimizers = state_.saved.optimizers();
    for (std::size_t i = 0; i < optimizers.size(); ++i) {
      torch::optim::Optimizer& optimizer = optimizers[i]->optimizer();
      const fs::path file = folder_ / numbered_file("optimizer", i);
      restore_optimizer(
          optimizer, names_of_parameters(optimizer, state_.saved), load_safetensors(file), file,
          state_.stepping.offloads_states ? std::optional(at::Device(at::kCPU)) : std::nullopt);
      set_options(optimizer, json_.at("optimizers").at(i).at("groups"));
      optimizers[i]->forget_unscaling();
      optimizers[i]->steps = steps_[i];
      state_.group.set_step(optimizers[i]->steps);
    }
    for (std::size_t i = 0; i < state_.saved.objects.size(); ++i)
      state_.saved.objects[i]->load_state_dict(load_safetensors(folder_ / object_file(i)));
    const TensorDict random = load_safetensors(folder_ / kRandomFile);
    const auto loaders = state_.saved.loaders();
    for (std::size_t i = 0; i < loaders.size(); ++i)
      loaders[i]->set_position(position_of_json(json_.at("loaders").at(i), i, random));
    restore_randomness(random);
  }

 private:
  Json parsed() const {
    if (!fs::exists(folder_ / kStateFile)) throw_bad_state("no such file");
    Json json = read_json_or_discard(folder_ / kStateFile);
    if (!json.is_object()) throw_bad_state("no JSON object");
    return json;
  }

  [[noreturn]] void throw_bad_state(const std::string& got) const {
    throw DataError("checkpoint.state", {.what = (folder_ / kStateFile).string(),
                                         .got = got,
                                         .expected = "the state of an Accelerator",
                                         .hint = "load a folder that save_state() has written"});
  }

  void check() {
    SavedObjects& saved = state_.saved;
    processes_ = whole_number_at(json_, "num_processes");
    elastic_ = elastic_of(json_);
    loss_scale_ = loss_scale_of(json_);
    ElasticRanks::check_same_run(elastic_, state_.elastic.get(), folder_.string());
    check_count("models", "prepared", saved.models().size(), json_.at("models"));
    check_count("optimizers", "prepared", saved.optimizers().size(), json_.at("optimizers").size());
    check_count("schedulers", "prepared", saved.schedulers().size(), json_.at("schedulers").size());
    check_count("loaders", "prepared", saved.loaders().size(), json_.at("loaders").size());
    check_count("objects", "registered", saved.objects.size(), json_.at("objects"));
    check_optimizers(saved.optimizers());
    check_loaders(saved.loaders());
    for (const Json& each : json_.at("optimizers"))
      steps_.push_back(whole_number_at(each, "steps"));
    for (const Json& each : json_.at("schedulers")) {
      counts_.push_back({.steps = whole_number_at(each, "steps"),
                         .step_count = whole_number_at(each, "step_count"),
                         .optimizer_steps = whole_number_at(each, "optimizer_steps")});
    }
    // Earlier versions had no windows.
    windows_ = read_windows(state_, json_.value("windows", Json::array()), folder_);
    if (loss_scale_) windows_.loss_scale = loss_scale_->scale;
  }

  void check_count(const char* what, const char* verb, std::size_t now, std::size_t before) const {
    if (now == before) return;
    throw UsageError("checkpoint.other-objects",
                     {.what = folder_.string(),
                      .got = str(now, ' ', what, " that are ", verb, " now"),
                      .expected = str(before, ", as when the checkpoint was saved"),
                      .hint = "prepare and register the same objects, in the same order, before "
                              "load_state()"});
  }

  void check_optimizers(const std::vector<std::shared_ptr<SyncedOptimizer>>& optimizers) const {
    for (std::size_t i = 0; i < optimizers.size(); ++i) {
      const Json& saved = json_.at("optimizers").at(i);
      torch::optim::Optimizer& optimizer = optimizers[i]->optimizer();
      const std::string before = saved.at("name").get<std::string>();
      const std::string now = name_of_optimizer(optimizer);
      if (before != now) {
        throw DataError("checkpoint.optimizer-kind",
                        {.what = (folder_ / kStateFile).string(),
                         .got = "the state of " + before,
                         .expected = "the state of " + now,
                         .hint = "load it with the optimizer that the checkpoint was made with"});
      }
      check_options(optimizer, saved.at("groups"), (folder_ / kStateFile).string());
    }
  }

  void check_loaders(const std::vector<std::shared_ptr<detail::PositionedLoader>>& loaders) const {
    for (std::size_t i = 0; i < loaders.size(); ++i) {
      const Json& saved = json_.at("loaders").at(i);
      const bool was_of_hasten = position_of_json(saved, i, {}).is_of_hasten;
      if (was_of_hasten == loaders[i]->is_of_hasten()) {
        check_parts(saved, i, *loaders[i]);
        continue;
      }
      const auto kind = [](bool of_hasten) {
        return of_hasten ? "a loader of hasten" : "a loader that hasten did not make";
      };
      throw UsageError(
          "checkpoint.other-objects",
          {.what = str(folder_.string(), ", loader ", i),
           .got = kind(loaders[i]->is_of_hasten()),
           .expected = kind(was_of_hasten),
           .hint = "prepare the same loaders, in the same order, before load_state()"});
    }
  }

  // Other parts of a stream have other rows.
  void check_parts(const Json& json, std::size_t number,
                   const detail::PositionedLoader& loader) const {
    if (!loader.is_of_hasten()) return;
    const LoaderState saved = position_of_json(json, number, {}).loader;
    const std::int64_t before = detail::parts_of(saved, processes_),
                       now = detail::parts_of(loader.position().loader, state_.group.size());
    if (!detail::is_inside_pass(saved) || before == now) return;
    throw DataError("data.state",
                    {.what = str(folder_.string(), ", loader ", number),
                     .got = detail::parts_text(now),
                     .expected = detail::parts_text(before) + ", as when the checkpoint was saved",
                     .hint = "continue with as many processes and with the same dispatch_batches, "
                             "or from a checkpoint at the start of an epoch"});
  }

  void restore_randomness(const TensorDict& saved) const {
    TensorDict generators;
    for (const auto& [name, tensor] : saved) {
      if (!starts_with(name, "loader.")) generators.emplace(name, tensor);
    }
    // Outside of micro-batches elastic ranks draw the same numbers.
    const std::int64_t rank = elastic_ ? 0 : state_.group.rank();
    const TensorDict own = random_state_of(generators, rank);
    if (!own.empty()) return restore_random_state(own);
    if (rank >= processes_) {
      const Logger logger("hasten", LogLevel::passive, state_.process, state_.group);
      logger.warning(str("the checkpoint is from ", processes_, " processes: rank ", rank,
                         " has no saved random state and goes on with its own"),
                     {.main_process_only = false});
      return;
    }
    throw DataError("checkpoint.random-state",
                    {.what = (folder_ / kRandomFile).string(),
                     .got = str("no state of rank ", rank),
                     .expected = str("the generators of ", processes_, " processes")});
  }

  AcceleratorState& state_;
  fs::path folder_;
  Json json_;
  std::int64_t processes_ = 0;
  OpenWindows windows_;
  std::optional<ElasticPosition> elastic_;
  std::optional<LossScalePosition> loss_scale_;
  std::vector<std::int64_t> steps_;              // of each optimizer
  std::vector<SyncedScheduler::Counts> counts_;  // of each scheduler
};

bool writes_checkpoints(const AcceleratorState& state, const ProjectConfiguration& project) {
  return project.save_on_each_node ? state.process.is_local_main_process()
                                   : state.group.rank() == 0;
}

void require_none_damaged(const fs::path& all) {
  if (damaged_checkpoints(all, kProjectPrefix).empty()) return;
  throw DataError("checkpoint.none-whole",
                  {.what = all.string(),
                   .got = "only damaged checkpoints",
                   .expected = "a checkpoint that is whole",
                   .hint = "the folders whose names end in .damaged have what is left; remove "
                           "or move them to start again"});
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

TensorDict tensors_of_numbers(const NumbersByName& numbers) {
  TensorDict tensors;
  for (const auto& [name, number] : numbers) tensors[name] = at::scalar_tensor(number, at::kDouble);
  return tensors;
}

NumbersByName numbers_of_tensors(const TensorDict& tensors) {
  NumbersByName numbers;
  for (const auto& [name, tensor] : tensors) numbers[name] = tensor.item<double>();
  return numbers;
}

}  // namespace detail

fs::path save_state_checkpoint(AcceleratorState& state, const ProjectConfiguration& project,
                               const fs::path& folder, const SaveStateOptions& options) {
  const Group& group = state.group;
  const bool writes = writes_checkpoints(state, project);
  state.gradients.require_all("save_state");
  state.background_save.finish();  // two saves at once would rotate each other's folders
  OpenWindows open;
  once(group, true, [&] {
    open = open_windows_of(state);
    check_continuable(open, "save_state()");
    if (!open.empty()) refuse_inside_elastic_window(state);
  });
  std::shared_ptr<CheckpointSave> save;  // set in a process that writes
  fs::path target;
  once(group, writes, [&] {
    target = folder.empty() ? next_folder(state, checkpoints_of(project, "save_state()")) : folder;
    save = std::make_shared<CheckpointSave>(target, kProjectPrefix);
  });
  const fs::path staged = path_of_writer(group, save ? save->path().string() : "");
  if (project.save_on_each_node) {
    require_separate_folders(group, writes, fs::absolute(staged).parent_path());
    const std::string id = new_save_id(group);
    once(group, writes, [&] { write_machine_file(staged, id); });
  }
  once(group, true, [&] { call_all(state.saved.before_save, staged); });
  const std::vector<TensorDict> random = saved_random_states(state);
  const auto elastic = state.elastic ? std::optional(state.elastic->position()) : std::nullopt;
  Json windows = Json::array();
  for (const std::string& of_rank : group.gather_object(json_of(open.windows).dump()))
    windows.push_back(Json::parse(of_rank));
  const auto write = [&] {
    if (!open.empty()) save_safetensors(staged / gradients_file(group.rank()), open.gradients);
    if (writes)
      write_contents(state, contents_of(state, random, std::move(windows), elastic), staged);
  };
  CheckpointRotation rotation;
  if (folder.empty())
    rotation = {.limit = project.total_limit,
                .keep_every = project.keep_every,
                .abandon_after = state.saved.iteration};
  const auto publish = [save, rotation] { save->publish(rotation); };
  const auto rotate = [save, rotation] { save->rotate(rotation); };
  if (options.asynchronous) {
    state.background_save.start(write, writes, publish, rotate);
  } else {
    once(group, true, write);
    once(group, writes, publish);
    once(group, writes, rotate);
  }
  if (folder.empty()) ++state.saved.iteration;
  return path_of_writer(group, target.string());
}

bool load_state_checkpoint(AcceleratorState& state, const ProjectConfiguration& project,
                           const fs::path& folder) {
  const Group& group = state.group;
  state.gradients.require_all("load_state");
  state.background_save.finish();
  const fs::path from = folder_to_load(state, project, folder);
  if (from.empty()) return false;
  once(group, true, [&] { call_all(state.saved.before_load, from); });
  std::optional<LoadedState> loaded;
  once(group, true, [&] { loaded.emplace(state, from); });
  once(group, true, [&] { loaded->apply(); });
  state.saved.iteration = std::max<std::int64_t>(-1, step_of_checkpoint(from, kProjectPrefix));
  return true;
}

}  // namespace hasten
