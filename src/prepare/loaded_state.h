// File: prepare/loaded_state.h (internal)
// The contents of a checkpoint's files. They are read, and compared with the prepared objects,
// before anything changes.
//
//   LoadedState loaded(state, folder);   // changes nothing
//   loaded.apply();
//
// The constructor throws UsageError "checkpoint.other-objects", ConfigError "checkpoint.elastic",
// DataError "checkpoint.*" and "data.state"; apply() also throws DataError "weights.*" and
// "safetensors.*", and both IoError "io.*". Thread rule: that of the Accelerator.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/prepare/detail/open_window.h"
#include "prepare/accelerator_state.h"

namespace hasten {

class LoadedState {
 public:
  LoadedState(AcceleratorState& state, std::filesystem::path folder);

  // Sets all prepared and registered objects to the state of the checkpoint.
  void apply();

 private:
  nlohmann::json read_state_file() const;
  [[noreturn]] void throw_bad_state(const std::string& got) const;
  void check();
  void check_count(const char* what, const char* verb, std::size_t now, std::int64_t before) const;
  void check_optimizers(const std::vector<std::shared_ptr<SyncedOptimizer>>& optimizers) const;
  void check_loaders(const std::vector<std::shared_ptr<detail::LoaderPosition>>& loaders) const;
  // Throws if a stream now has a different number of shards, because they would have different
  // rows.
  void check_shards(const nlohmann::json& json, std::size_t number,
                    const detail::LoaderPosition& loader) const;
  void report_changed_threads() const;
  // Logs that the checkpoint does not have the state of PowerSGD, if a model uses it.
  void report_power_sgd() const;
  void restore_randomness(const TensorDict& saved) const;

  AcceleratorState& state_;
  std::filesystem::path folder_;
  nlohmann::json json_;
  std::int64_t processes_ = 0, threads_ = 0;
  OpenWindows windows_;
  std::optional<ElasticPosition> elastic_;
  std::optional<LossScalePosition> loss_scale_;
  std::optional<BestCheckpoint> best_;
  std::optional<TrackerSet::Positions> trackers_;
  std::vector<std::int64_t> steps_;  // of each optimizer
  std::vector<bool> is_training_;    // of each optimizer: the mode of a WeightAveragingOptimizer
  std::vector<SyncedScheduler::Counts> counts_;  // of each scheduler
};

}  // namespace hasten
