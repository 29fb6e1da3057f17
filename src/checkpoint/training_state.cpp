#include "hasten/checkpoint/training_state.h"

#include <torch/torch.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/random_state.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/safetensors.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using torch::optim::AdamWParamState;
using torch::optim::SGDParamState;

TensorDict optimizer_tensors(const torch::optim::Optimizer& optimizer,
                             const ParameterNames& parameters) {
  TensorDict out;
  for (const auto& [name, parameter] : parameters) {
    const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;  // has had no gradient yet
    if (const auto* adamw = dynamic_cast<const AdamWParamState*>(found->second.get())) {
      out[name + ".exp_avg"] = adamw->exp_avg();
      out[name + ".exp_avg_sq"] = adamw->exp_avg_sq();
      out[name + ".step"] = at::scalar_tensor(adamw->step(), at::kLong);
    } else if (const auto* sgd = dynamic_cast<const SGDParamState*>(found->second.get())) {
      if (sgd->momentum_buffer().defined()) out[name + ".momentum_buffer"] = sgd->momentum_buffer();
    } else {
      throw UsageError("checkpoint.unknown-optimizer",
                       {.what = "saving the optimizer's state",
                        .got = "an optimizer hasten does not know",
                        .expected = "AdamW or SGD",
                        .hint = "save_only_model saves the weights alone"});
    }
  }
  return out;
}

// What the state's tensors mean.
std::string kind_of(const torch::optim::Optimizer& optimizer) {
  const auto& options = optimizer.defaults();
  if (dynamic_cast<const torch::optim::AdamWOptions*>(&options)) return "AdamW";
  if (dynamic_cast<const torch::optim::SGDOptions*>(&options)) return "SGD";
  return "other";
}

at::Tensor checked(const TensorDict& tensors, const std::string& name, const at::Tensor& parameter,
                   const fs::path& file) {
  const at::Tensor& tensor = take(tensors, name);
  if (tensor.sizes() != parameter.sizes() || tensor.scalar_type() != parameter.scalar_type()) {
    throw DataError("checkpoint.optimizer-shape",
                    {.what = file.string() + ", tensor " + name,
                     .got = "another shape or type than the parameter's",
                     .hint = "resume with the model the checkpoint was made with"});
  }
  return tensor.to(parameter.device(), /*non_blocking=*/false, /*copy=*/true);
}

void restore_optimizer(torch::optim::Optimizer& optimizer, const ParameterNames& parameters,
                       const TensorDict& tensors, const fs::path& file) {
  optimizer.state().clear();
  std::size_t used = 0;
  for (const auto& [name, parameter] : parameters) {
    if (tensors.count(name + ".exp_avg")) {
      auto state = std::make_unique<AdamWParamState>();
      state->exp_avg(checked(tensors, name + ".exp_avg", parameter, file));
      state->exp_avg_sq(checked(tensors, name + ".exp_avg_sq", parameter, file));
      state->step(take(tensors, name + ".step").item<std::int64_t>());
      optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
      used += 3;
    } else if (tensors.count(name + ".momentum_buffer")) {
      auto state = std::make_unique<SGDParamState>();
      state->momentum_buffer(checked(tensors, name + ".momentum_buffer", parameter, file));
      optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
      ++used;
    }
  }
  if (used != tensors.size()) {
    throw DataError(
        "checkpoint.optimizer-names",
        {.what = file.string(),
         .got = str(tensors.size() - used, " tensors of parameters that the model does not have"),
         .hint = "resume with the model and optimizer the checkpoint was made with"});
  }
}

std::int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string(), prefix = "checkpoint-";
  if (!starts_with(name, prefix)) return -1;
  const std::string digits = name.substr(prefix.size());
  const bool number =
      !digits.empty() && digits.size() < 19 &&
      std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c); });
  return number ? std::stoll(digits) : -1;
}

}  // namespace

void save_training_state(const fs::path& folder, const torch::optim::Optimizer& optimizer,
                         const ParameterNames& parameters, const TrainingPosition& position,
                         const std::vector<TensorDict>& random_states) {
  save_safetensors(folder / "optimizer.safetensors", optimizer_tensors(optimizer, parameters));
  save_safetensors(folder / "random_state.safetensors", joined_random_states(random_states));
  const nlohmann::json json = {{"optimizer", kind_of(optimizer)},
                               {"scheduler_step", position.scheduler_step},
                               {"num_processes", position.num_processes},
                               {"loader",
                                {{"seed", position.loader.seed},
                                 {"epoch", position.loader.epoch},
                                 {"batch", position.loader.batch},
                                 {"rows", position.loader.rows}}}};
  write_file_atomically(folder / "training_position.json", json.dump(2) + "\n");
}

TrainingPosition load_training_position(const fs::path& folder) {
  const fs::path file = folder / "training_position.json";
  try {
    const auto json = nlohmann::json::parse(read_file(file));
    const auto& loader = json.at("loader");
    return {.optimizer = json.at("optimizer").get<std::string>(),
            .scheduler_step = json.at("scheduler_step").get<std::int64_t>(),
            .num_processes = json.value("num_processes", std::int64_t{1}),
            .loader = {.seed = loader.at("seed").get<std::uint64_t>(),
                       .epoch = loader.at("epoch").get<std::int64_t>(),
                       .batch = loader.at("batch").get<std::int64_t>(),
                       .rows = loader.value("rows", std::int64_t{-1})}};  // later than the others
  } catch (const nlohmann::json::exception& error) {
    throw DataError(
        "checkpoint.position",
        {.what = file.string(), .got = error.what(), .expected = "scheduler_step and loader"});
  }
}

bool load_training_state(const fs::path& folder, torch::optim::Optimizer& optimizer,
                         const ParameterNames& parameters, std::int64_t rank) {
  const TrainingPosition position = load_training_position(folder);
  if (position.optimizer != kind_of(optimizer)) {
    throw DataError("checkpoint.optimizer-kind",
                    {.what = (folder / "training_position.json").string(),
                     .got = "the state of " + position.optimizer,
                     .expected = "that of " + kind_of(optimizer),
                     .hint = "resume with the optimizer the checkpoint was made with (--optim)"});
  }
  const fs::path random_file = folder / "random_state.safetensors";
  const TensorDict random = random_state_of(load_safetensors(random_file), rank);
  if (random.empty() && rank < position.num_processes) {
    throw DataError("checkpoint.random-state",
                    {.what = random_file.string(),
                     .got = str("nothing of rank ", rank),
                     .expected = str("the generators of ", position.num_processes, " processes")});
  }
  restore_optimizer(optimizer, parameters, load_safetensors(folder / "optimizer.safetensors"),
                    folder / "optimizer.safetensors");
  if (random.empty()) return false;
  restore_random_state(random);
  return true;
}

bool has_training_state(const fs::path& folder) {
  return fs::exists(folder / "training_position.json");
}

std::vector<fs::path> checkpoints(const fs::path& output_dir) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(output_dir, error)) {
    if (entry.is_directory() && step_of(entry.path()) >= 0) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return step_of(a) < step_of(b); });
  return found;
}

fs::path last_checkpoint(const fs::path& output_dir) {
  auto found = checkpoints(output_dir);
  while (!found.empty()) {
    if (fs::exists(found.back() / "trainer_state.json")) return found.back();
    found.pop_back();
  }
  return {};
}

void rotate_checkpoints(const fs::path& output_dir, std::int64_t limit, const fs::path& keep) {
  auto found = checkpoints(output_dir);
  const fs::path newest = found.empty() ? fs::path() : found.back();
  std::int64_t excess = static_cast<std::int64_t>(found.size()) - limit;
  for (const fs::path& folder : found) {
    if (excess <= 0) return;
    std::error_code error;
    if (folder == newest || folder == keep || fs::equivalent(folder, keep, error)) continue;
    fs::remove_all(folder, error);  // one that cannot be deleted is no reason to end a run
    --excess;
  }
}

}  // namespace hasten
