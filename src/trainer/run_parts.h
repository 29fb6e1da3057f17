// File: trainer/run_parts.h (internal)
// The objects that one call of Trainer::train uses. A checkpoint keeps their state.
//
//   RunParts run(trainer, report_nonfinite_loss);
//   for (const auto& batch : run.loader) { ... run.optimizer.step(); run.schedule.after_step(); }
//
// Thread rule: that of the Trainer.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/run_record.h"
#include "trainer/loss_record.h"
#include "trainer/run_hashes.h"
#include "trainer/run_plan.h"
#include "trainer/trained_parameters.h"
#include "trainer/trainer_impl.h"
#include "trainer/training_schedule.h"

namespace hasten {

struct Trainer::Impl::RunParts {
  // Throws UsageError "trainer.no-train-data" and what the parts throw.
  RunParts(Impl& trainer, LossRecord::Listener on_nonfinite_loss);

  // Returns the number of rows of the training data, or kUnknownRows. All processes get the size of
  // a stream from the process that reads it.
  std::int64_t rows() const { return rows_of(data_, loader); }
  // The identity of the training data, which is computed when it is first needed.
  const DataFingerprint& data_identity();
  // The options of the optimizer's groups, for a checkpoint. Throws UsageError
  // "checkpoint.unknown-optimizer".
  OptionsOfRun optimizer_options() const;
  // The digest of the weights below the adapters (trainer/base_weights.h), which is computed when
  // it is first needed; nothing if the module has no adapters.
  const std::optional<std::string>& base_digest();

  TrainedParameters parameters;
  PreparedLoader<Loader<AnyBatch>> loader;
  LossRecord losses;
  Plan plan;
  PreparedOptimizer optimizer;
  TrainingSchedule schedule;
  std::vector<at::Tensor> trained;  // the parameters that require a gradient
  std::optional<RunHashes> hashes;  // set with hash_chain_steps

 private:
  static std::int64_t rows_of(const TrainerDataset& data,
                              const PreparedLoader<Loader<AnyBatch>>& loader);
  static Plan plan_of_run(const Impl& trainer, const PreparedLoader<Loader<AnyBatch>>& loader);
  static bool callbacks_read_losses(const Impl& trainer);
  // True if the device can record a graph and the arguments allow it.
  static bool may_have_graphs(const Impl& trainer);
  static std::unique_ptr<torch::optim::Optimizer> make_optimizer(Impl& trainer,
                                                                 std::int64_t max_steps);

  const TrainerDataset& data_;
  std::optional<DataFingerprint> identity_;
  nlohmann::json created_options_;  // of each group, when the optimizer was made; null if unknown
  const torch::nn::Module& module_;
  bool is_base_read_ = false;
  std::optional<std::string> base_digest_;
};

}  // namespace hasten
