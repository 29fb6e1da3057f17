#include "prepare/loaded_state.h"

#include <torch/torch.h>

#include <utility>

#include "base/json_number.h"
#include "base/strict_json.h"
#include "checkpoint/elastic_position.h"
#include "checkpoint/loss_scale_position.h"
#include "checkpoint/optimizer_options.h"
#include "checkpoint/optimizer_state.h"
#include "checkpoint/random_state.h"
#include "checkpoint/thread_count.h"
#include "data/loader_checks.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/formats/module_weights.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/detail/schedule_free.h"
#include "prepare/registered_objects.h"
#include "prepare/state_files.h"
#include "prepare/window_state.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

}  // namespace

LoadedState::LoadedState(AcceleratorState& state, fs::path folder)
    : state_(state), folder_(std::move(folder)), json_(read_state_file()) {
  try {
    check();
  } catch (const Json::exception& error) {
    throw_bad_state(error.what());
  } catch (const JsonError& error) {
    throw_bad_state(error.what());
  }
}

void LoadedState::apply() {
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
    // The loaded weights are those of the saved mode, so that they do not move here.
    if (auto* const averaging = dynamic_cast<WeightAveragingOptimizer*>(&optimizer))
      averaging->set_training(is_training_[i]);
    optimizers[i]->reset_unscaling();
    optimizers[i]->steps = steps_[i];
    state_.group.set_step(optimizers[i]->steps);
  }
  load_objects(state_.saved, folder_);
  state_.saved.best = best_;
  state_.saved.best_before.reset();
  const TensorDict random = load_safetensors(folder_ / kRandomFile);
  const auto loaders = state_.saved.loaders();
  for (std::size_t i = 0; i < loaders.size(); ++i)
    loaders[i]->set_position(position_from_json(json_.at("loaders").at(i), i, random));
  restore_randomness(random);
  report_changed_threads();
  report_power_sgd();
  // The trackers come last, because they change files.
  if (trackers_) state_.saved.trackers->resume(std::move(*trackers_));
}

Json LoadedState::read_state_file() const {
  if (!fs::exists(folder_ / kStateFile)) throw_bad_state("no such file");
  Json json = read_json_or_discard(folder_ / kStateFile);
  if (!json.is_object()) throw_bad_state("text that is not a JSON object");
  return json;
}

void LoadedState::throw_bad_state(const std::string& got) const {
  throw DataError("checkpoint.state", {.what = (folder_ / kStateFile).string(),
                                       .got = got,
                                       .expected = "the state of an Accelerator",
                                       .hint = "load a folder that save_state() has written"});
}

void LoadedState::check() {
  SavedObjects& saved = state_.saved;
  processes_ = whole_number_at(json_, "num_processes");
  threads_ = thread_count_of(json_);
  elastic_ = elastic_of(json_);
  loss_scale_ = loss_scale_of(json_);
  if (json_.contains("trackers")) trackers_ = trackers_from_json(json_.at("trackers"));
  if (json_.contains("best")) {
    const Json& best = json_.at("best");
    best_ = {.number = whole_number_at(best, "checkpoint"),
             .metric = best.at("metric").get<double>()};
  }
  ElasticRanks::check_same_run(elastic_, state_.elastic.get(), folder_.string());
  check_count("models", "prepared", saved.models().size(), whole_number_at(json_, "models"));
  check_count("optimizers", "prepared", saved.optimizers().size(),
              std::ssize(json_.at("optimizers")));
  check_count("schedulers", "prepared", saved.schedulers().size(),
              std::ssize(json_.at("schedulers")));
  check_count("loaders", "prepared", saved.loaders().size(), std::ssize(json_.at("loaders")));
  check_count("objects", "registered", saved.objects.size(), whole_number_at(json_, "objects"));
  check_optimizers(saved.optimizers());
  check_loaders(saved.loaders());
  for (const Json& each : json_.at("optimizers")) {
    steps_.push_back(whole_number_at(each, "steps"));
    // Checkpoints of earlier versions do not have the mode. Their weights are those of eval(), in
    // which programs were told to save.
    is_training_.push_back(each.contains("is_training") && each.at("is_training").get<bool>());
  }
  for (const Json& each : json_.at("schedulers")) {
    counts_.push_back({.steps = whole_number_at(each, "steps"),
                       .step_count = whole_number_at(each, "step_count"),
                       .optimizer_steps = whole_number_at(each, "optimizer_steps")});
  }
  // Checkpoints of earlier versions have no windows.
  windows_ = read_windows(state_, json_.value("windows", Json::array()), folder_);
  if (loss_scale_) windows_.loss_scale = loss_scale_->scale;
}

void LoadedState::check_count(const char* what, const char* verb, std::size_t now,
                              std::int64_t before) const {
  if (static_cast<std::int64_t>(now) == before) return;
  throw UsageError("checkpoint.other-objects",
                   {.what = folder_.string(),
                    .got = str(now, ' ', what, " that are ", verb, " now"),
                    .expected = str(before, ", as when the checkpoint was saved"),
                    .hint = "prepare and register the same objects, in the same order, before "
                            "load_state()"});
}

void LoadedState::check_optimizers(
    const std::vector<std::shared_ptr<SyncedOptimizer>>& optimizers) const {
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

void LoadedState::check_loaders(
    const std::vector<std::shared_ptr<detail::LoaderPosition>>& loaders) const {
  for (std::size_t i = 0; i < loaders.size(); ++i) {
    const Json& saved = json_.at("loaders").at(i);
    const bool was_hasten_loader = position_from_json(saved, i, {}).is_hasten_loader;
    if (was_hasten_loader == loaders[i]->is_hasten_loader()) {
      check_shards(saved, i, *loaders[i]);
      continue;
    }
    const auto kind = [](bool is_hasten_loader) {
      return is_hasten_loader ? "a loader of hasten" : "a loader that hasten did not make";
    };
    throw UsageError("checkpoint.other-objects",
                     {.what = str(folder_.string(), ", loader ", i),
                      .got = kind(loaders[i]->is_hasten_loader()),
                      .expected = kind(was_hasten_loader),
                      .hint = "prepare the same loaders, in the same order, before load_state()"});
  }
}

// Throws if a stream now has a different number of shards, because they would have different rows.
void LoadedState::check_shards(const Json& json, std::size_t number,
                               const detail::LoaderPosition& loader) const {
  if (!loader.is_hasten_loader()) return;
  const LoaderState saved = position_from_json(json, number, {}).loader;
  const std::int64_t before = detail::shard_count(saved, processes_),
                     now = detail::shard_count(loader.position().loader, state_.group.size());
  if (!detail::is_inside_pass(saved) || before == now) return;
  throw DataError(
      "data.state",
      {.what = str(folder_.string(), ", loader ", number),
       .got = detail::shards_text(now),
       .expected = detail::shards_text(before) + ", as when the checkpoint was saved",
       .hint = "continue with the same number of processes and the same dispatch_batches, "
               "or from a checkpoint at the start of an epoch"});
}

void LoadedState::report_changed_threads() const {
  const std::string change = change_of_threads(threads_, at::get_num_threads());
  if (change.empty() || !state_.process.device.is_cpu()) return;
  Logger("hasten", LogLevel::passive, state_.process, state_.group).warning(change);
}

void LoadedState::report_power_sgd() const {
  if (!state_.gradients.uses_power_sgd()) return;
  Logger("hasten", LogLevel::passive, state_.process, state_.group)
      .warning(
          "a checkpoint does not have the state of PowerSGD (its number of steps, its factors and "
          "the errors that it adds to the next step): a new process begins PowerSGD again, so its "
          "results differ from those of a run that was not stopped. To continue bit for bit, use "
          "another comm_hook");
}

void LoadedState::restore_randomness(const TensorDict& saved) const {
  TensorDict generators;
  for (const auto& [name, tensor] : saved) {
    if (!starts_with(name, "loader.")) generators.emplace(name, tensor);
  }
  // Outside of micro-batches, all elastic ranks draw the same random numbers.
  const std::int64_t rank = elastic_ ? 0 : state_.group.rank();
  const TensorDict own = random_state_of(generators, rank);
  if (!own.empty()) return restore_random_state(own);
  if (rank >= processes_) {
    const Logger logger("hasten", LogLevel::passive, state_.process, state_.group);
    logger.warning(str("the checkpoint is from ", processes_, " processes: rank ", rank,
                       " has no saved random state and continues with its current one"),
                   {.main_process_only = false});
    return;
  }
  throw DataError("checkpoint.random-state",
                  {.what = (folder_ / kRandomFile).string(),
                   .got = str("no state of rank ", rank),
                   .expected = str("the generators of ", processes_, " processes")});
}

}  // namespace hasten
