// File: hasten/checkpoint/detail/training_state.h
// The state that a run needs, in addition to the weights, to continue as if it had never stopped:
// the optimizer's moments, the schedule's step, the random generators of every process, and the
// position in the data. It is stored as safetensors and JSON; no Python object is unpickled.
//
//   const auto random = random_states(group);  // a collective; one process writes
//   save_training_state(folder, adamw, names, {.scheduler_step = 500, .loader = loader.state()},
//                       random);
//   TrainingPosition position = load_training_position(folder);
//   load_training_state(folder, adamw, names, group.rank());
//
// Files: optimizer.safetensors (the state by parameter: docs/formats.md), random_state.safetensors
// (the generators `cpu`, `cuda.N` and `tpu`; the generators of rank 1 are `rank1.cpu` and so on),
// training_position.json (which also holds the optimizer's name and the number of processes).
// Loading requires all of them: a missing file is an error, never a silent fresh start. It supports
// hasten::AdamW and all of LibTorch's optimizers. Thread rule: one thread at a time. Throws IoError
// "io.*", DataError "checkpoint.*", UsageError "checkpoint.unknown-optimizer".
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/data/loader.h"
#include "hasten/formats/detail/tensor_dict.h"
#include "hasten/process/group.h"

namespace hasten {

// The sum of the losses of some steps.
struct LossSum {
  // Covers the finite losses, or all losses if the log does not filter the others out.
  double sum = 0;
  // The number of steps with a finite loss, and the number of all other steps.
  std::int64_t finite = 0, nonfinite = 0;
};

// The sums from which a resumed run continues its mean loss and its next log.
struct LossPosition {
  LossSum of_run = {}, since_log = {};
  std::int64_t last_logged_step = 0;
};

// Properties of the training data that let a resumed run notice that the data has changed.
struct DataFingerprint {
  std::int64_t rows = 0;    // the number of rows
  std::string sample = {};  // a digest of some rows; empty if rows differ each time they are read
};

// The state of a schedule that follows a metric (hasten/optim/metric_scheduler.h).
struct MetricScheduleState {
  std::string type = {};  // such as "greedy"
  std::map<std::string, double> state = {};
};

// The contribution of one process to an open accumulation window.
struct WindowPosition {
  std::int64_t micro_batches = 0;    // the number that have begun
  std::int64_t backward_passes = 0;  // the number that had a backward pass
  std::int64_t rows = 0;             // the number of rows of the micro-batches
  double weight = 0;                 // the sum of their weights
  double loss = 0, items = 0, tokens = 0, flos = 0;
};

// The place of a run in its hash chain (hasten/checkpoint/hash_chain.h).
struct HashChainPosition {
  std::string previous = {};           // the hash of the newest link
  std::vector<std::string> rows = {};  // for each process: the hash of its rows since that link
};

// The properties of a run with elastic ranks that are the same on every number of processes
// (AcceleratorOptions::elastic_ranks).
struct ElasticPosition {
  std::int64_t ranks = 0;    // the number of virtual ranks
  std::int64_t threads = 1;  // the number that an operation uses in each process
  std::uint64_t seed = 0;    // for the random numbers of micro-batches
};

// The scale of the losses of a run in float16 (hasten/optim/grad_scaler.h).
struct LossScalePosition {
  double scale = 1;
  std::int64_t growth_tracker = 0;  // updates without a skipped step since the scale last changed
  std::int64_t skipped_steps = 0;   // since the run began
  // The part of skipped_steps since the latest log of a Trainer. An Accelerator does not set it.
  std::int64_t skipped_since_log = 0;
};

// The work that a run still has to do after the step of the checkpoint, and before its next step.
struct DueWork {
  bool evaluation = false;  // a signal has skipped or stopped an evaluation
  bool epoch_end = false;   // what is due at the end of the epoch has not begun
  // The figures of the step, which the log at the end of the epoch contains.
  double learning_rate = 0, grad_norm = 0;
};

struct TrainingPosition {
  std::string optimizer = {};  // its name, which save_training_state fills in
  std::int64_t scheduler_step = 0;
  std::int64_t num_processes = 1;  // the number of processes, or elastic ranks, that trained
  LoaderState loader = {};
  std::optional<LossPosition> losses = {};
  std::optional<DataFingerprint> data = {};
  std::optional<MetricScheduleState> metric_schedule = {};
  // The open window of each process, in rank order; empty between two steps.
  std::vector<WindowPosition> windows = {};
  std::optional<HashChainPosition> hash_chain = {};
  std::optional<ElasticPosition> elastic = {};
  std::optional<LossScalePosition> loss_scale = {};  // unset if losses were not scaled
  std::optional<DueWork> due = {};                   // unset if nothing is due
};

// The parameters by their names in the model, under which their state is stored.
using ParameterNames = std::map<std::string, at::Tensor>;

// Returns the states of LibTorch's generators in every process, in rank order. A collective.
HASTEN_API std::vector<TensorDict> random_states(const Group& group);

// Writes the three files.
HASTEN_API void save_training_state(const std::filesystem::path& folder,
                                    const torch::optim::Optimizer& optimizer,
                                    const ParameterNames& parameters,
                                    const TrainingPosition& position,
                                    const std::vector<TensorDict>& random_states);
// Reads training_position.json.
HASTEN_API TrainingPosition load_training_position(const std::filesystem::path& folder);
// Restores the optimizer, and LibTorch's generators to their state in `rank`. Returns false, and
// leaves the generators unchanged, if the run had too few processes to have a state for this rank.
// The optimizer's states are on the device of their parameters unless `state_device` is set.
HASTEN_API bool load_training_state(const std::filesystem::path& folder,
                                    torch::optim::Optimizer& optimizer,
                                    const ParameterNames& parameters, std::int64_t rank = 0,
                                    std::optional<at::Device> state_device = std::nullopt);

// True if a checkpoint holds the training state; false if it holds only weights (save_only_model).
HASTEN_API bool has_training_state(const std::filesystem::path& folder);

}  // namespace hasten
