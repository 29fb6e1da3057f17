// File: hasten/trainer/detail/trainer_state.h
// The position of a run and its log, as transformers stores them in trainer_state.json.
//
//   TrainerState state = TrainerState::from_file("out/checkpoint-500/trainer_state.json");
//   for (const LogEntry& entry : state.log_history) {  // {"loss": 0.69, "epoch": 0.5, "step": 10}
//     if (entry.contains("loss")) std::printf("%g %g\n", entry.at("step"), entry.at("loss"));
//   }
//
// The file has the keys, order and layout of transformers 5.23, so that its tools read it.
// Thread rule: a value. from_file throws IoError "io.*" and DataError "trainer.state".
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/metrics/metric.h"

namespace hasten {

using LogEntry = Metrics;

struct HASTEN_API TrainerState {
  double epoch = 0;              // epochs of the data seen, with a fraction
  std::int64_t global_step = 0;  // optimizer steps made
  std::int64_t max_steps = 0;    // optimizer steps planned
  std::int64_t num_train_epochs = 0;
  double logging_steps = 500, eval_steps = 500, save_steps = 500;
  std::int64_t train_batch_size = 8;
  std::int64_t num_input_tokens_seen = 0;
  double total_flos = 0;  // 6 * tokens * parameters outside the embedding tables
  std::vector<LogEntry> log_history = {};
  std::optional<double> best_metric = {};
  std::optional<std::int64_t> best_global_step = {};
  std::string best_model_checkpoint = {};  // empty if there is none
  bool is_world_process_zero = true;       // true in the job's main process
  bool is_local_process_zero = true;       // true in the main process of a machine
  // The attributes of callbacks, by TrainerCallback::name().
  std::map<std::string, std::map<std::string, double>> callbacks = {};

  std::string to_json() const;
  static TrainerState from_file(const std::filesystem::path& path);
};

// Returns the text of a metrics file in the layout that transformers uses for train_results.json:
// sorted keys, four spaces of indentation, no newline at the end.
HASTEN_API std::string metrics_json(const Metrics& metrics);

}  // namespace hasten
