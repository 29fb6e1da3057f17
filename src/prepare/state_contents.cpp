#include "prepare/state_contents.h"

#include <torch/torch.h>

#include <utility>

#include "checkpoint/elastic_position.h"
#include "checkpoint/loss_scale_position.h"
#include "checkpoint/optimizer_options.h"
#include "checkpoint/optimizer_state.h"
#include "checkpoint/random_state.h"
#include "checkpoint/thread_count.h"
#include "hasten/base/files.h"
#include "hasten/checkpoint/checkpoint_folders.h"
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

Json json_of_optimizer(SyncedOptimizer& synced) {
  torch::optim::Optimizer& optimizer = synced.optimizer();
  Json json = {{"name", name_of_optimizer(optimizer)},
               {"steps", synced.steps},
               {"groups", options_of(optimizer)}};
  // The weights of the checkpoint are those of this mode.
  if (const auto* averaging = dynamic_cast<const WeightAveragingOptimizer*>(&optimizer))
    json["is_training"] = averaging->is_training();
  return json;
}

}  // namespace

StateContents state_contents(AcceleratorState& state, const std::vector<TensorDict>& random,
                             Json windows, const std::optional<ElasticPosition>& elastic) {
  StateContents contents;
  Json& json = contents.json;
  json = {{"models", state.saved.models().size()}, {"num_processes", state.group.size()},
          {"objects", state.saved.objects.size()}, {"optimizers", Json::array()},
          {"schedulers", Json::array()},           {"loaders", Json::array()},
          {"windows", std::move(windows)}};
  add_elastic(json, elastic);
  add_thread_count(json);
  if (const auto positions = state.saved.trackers->positions(); !positions.by_name.empty())
    json["trackers"] = trackers_to_json(positions);
  if (const auto& best = state.saved.best)
    json["best"] = {{"checkpoint", best->number}, {"metric", best->metric}};
  if (state.scaling) add_loss_scale(json, state.scaling->position());
  const auto optimizers = state.saved.optimizers();
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    torch::optim::Optimizer& optimizer = optimizers[i]->optimizer();
    json["optimizers"].push_back(json_of_optimizer(*optimizers[i]));
    contents.files[numbered_file("optimizer", i)] =
        optimizer_tensors(optimizer, names_of_parameters(optimizer, state.saved));
  }
  for (const auto& scheduler : state.saved.schedulers()) {
    const SyncedScheduler::Counts counts = scheduler->counts();
    json["schedulers"].push_back({{"steps", counts.steps},
                                  {"step_count", counts.step_count},
                                  {"optimizer_steps", counts.optimizer_steps}});
  }
  TensorDict& generators = contents.files[kRandomFile] = merge_random_states(random);
  const auto loaders = state.saved.loaders();
  for (std::size_t i = 0; i < loaders.size(); ++i)
    json["loaders"].push_back(position_to_json(loaders[i]->position(), i, generators));
  contents.files.merge(object_states(state.saved));
  return contents;
}

std::uintmax_t bytes_of_state(AcceleratorState& state, const StateContents& contents) {
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

void write_state(AcceleratorState& state, const StateContents& contents, const fs::path& folder) {
  const auto models = state.saved.models();
  for (std::size_t i = 0; i < models.size(); ++i)
    save_weights(*models[i], folder / numbered_file("model", i));
  for (const auto& [name, tensors] : contents.files) save_safetensors(folder / name, tensors);
  write_file_atomically(folder / kStateFile, contents.json.dump(2) + "\n");
}

}  // namespace hasten
