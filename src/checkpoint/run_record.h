// File: checkpoint/run_record.h (internal)
// Keeps what a checkpoint of the Trainer records about a run besides its position: the options of
// the optimizer's groups, and the number of threads. training_position.json has both.
//
//   const OptionsOfRun options{.groups = options_of(optimizer), .arguments = planned};
//   save_training_state(folder, optimizer, parameters, position, random_states, options);
//   const RunRecord record = load_run_record(folder);
//   if (record.options) continue_options(optimizer, *record.options, folder);
//
// Throws IoError "io.*", DataError "checkpoint.position" and "checkpoint.optimizer-options".
// Thread rule: the thread that trains.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "hasten/checkpoint/detail/training_state.h"

namespace hasten {

// The options of an optimizer's groups, as checkpoint/optimizer_options.h writes them.
struct OptionsOfRun {
  nlohmann::json groups;     // the current options
  nlohmann::json arguments;  // the options that the run's arguments and its schedule give
};

struct RunRecord {
  std::optional<OptionsOfRun> options;  // unset in a checkpoint of an earlier version
  std::int64_t threads = 0;             // of an operation; 0 in a checkpoint of an earlier version
};

// Does the same as the public function, which saves no options.
void save_training_state(const std::filesystem::path& folder,
                         const torch::optim::Optimizer& optimizer, const ParameterNames& parameters,
                         const TrainingPosition& position,
                         const std::vector<TensorDict>& random_states,
                         const std::optional<OptionsOfRun>& options);

// Reads the record from training_position.json.
RunRecord load_run_record(const std::filesystem::path& folder);

// Gives the optimizer of a resumed run, which has the options of its arguments and its schedule,
// the options that something else had changed before the checkpoint of this folder. An option that
// the arguments or the schedule now set to another value than in the run before keeps this value.
// Returns false, and changes nothing, if the optimizer had another number of groups.
bool continue_options(torch::optim::Optimizer& optimizer, const OptionsOfRun& saved,
                      const std::filesystem::path& folder);

}  // namespace hasten
