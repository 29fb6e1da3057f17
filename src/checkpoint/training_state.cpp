#include "hasten/checkpoint/detail/training_state.h"

#include <torch/torch.h>

#include "base/file_calls.h"
#include "checkpoint/optimizer_state.h"
#include "checkpoint/random_state.h"
#include "checkpoint/run_record.h"
#include "checkpoint/training_position.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/formats/safetensors.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

}  // namespace

void save_training_state(const fs::path& folder, const torch::optim::Optimizer& optimizer,
                         const ParameterNames& parameters, const TrainingPosition& position,
                         const std::vector<TensorDict>& random_states) {
  save_training_state(folder, optimizer, parameters, position, random_states, {});
}

void save_training_state(const fs::path& folder, const torch::optim::Optimizer& optimizer,
                         const ParameterNames& parameters, const TrainingPosition& position,
                         const std::vector<TensorDict>& random_states,
                         const std::optional<OptionsOfRun>& options) {
  save_safetensors(folder / "optimizer.safetensors", optimizer_tensors(optimizer, parameters));
  save_safetensors(folder / "random_state.safetensors", merge_random_states(random_states));
  save_training_position(folder, position, name_of_optimizer(optimizer), options);
}

bool load_training_state(const fs::path& folder, torch::optim::Optimizer& optimizer,
                         const ParameterNames& parameters, std::int64_t rank,
                         std::optional<at::Device> state_device) {
  const TrainingPosition position = load_training_position(folder);
  if (position.optimizer != name_of_optimizer(optimizer)) {
    throw DataError("checkpoint.optimizer-kind",
                    {.what = (folder / kTrainingPositionFile).string(),
                     .got = "the state of " + position.optimizer,
                     .expected = "the state of " + name_of_optimizer(optimizer),
                     .hint = "resume with the optimizer the checkpoint was made with (--optim)"});
  }
  const fs::path random_file = folder / "random_state.safetensors";
  const TensorDict random = random_state_of(load_safetensors(random_file), rank);
  if (random.empty() && rank < position.num_processes) {
    throw DataError("checkpoint.random-state",
                    {.what = random_file.string(),
                     .got = str("no state of rank ", rank),
                     .expected = str("the generators of ", position.num_processes, " processes")});
  }
  restore_optimizer(optimizer, parameters, load_safetensors(folder / "optimizer.safetensors"),
                    folder / "optimizer.safetensors", state_device);
  if (random.empty()) return false;
  restore_random_state(random);
  return true;
}

bool has_training_state(const fs::path& folder) {
  return path_exists(folder / kTrainingPositionFile);
}

}  // namespace hasten
