// File: hasten/tpu/anatomy/detail/tpu_estimate.h
// The estimate of a dry TPU (hasten/tpu/anatomy/dry_tpu.h): the memory of a TPU that a training
// step takes, according to the TPU's own compiler. Plain data, and the forms in which it is shown.
//
//   const anatomy::TpuPrediction prediction = anatomy::to_prediction(report);
//   std::cout << to_text(tpu_estimate, &prediction);
//
// Units: bytes on the device, including the padding of tiles; seconds. write_tpu_estimate throws
// IoError "io.*". Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hasten/anatomy/detail/component.h"
#include "hasten/anatomy/report.h"
#include "hasten/base/detail/export.h"

namespace hasten::anatomy {

// The memory of the device at one moment.
struct TpuMemoryUsage {
  std::int64_t tensors = 0;
  std::int64_t temporaries = 0;  // Working memory of the program that runs.
  std::int64_t code = 0;         // Code of the programs that are loaded.
  std::string program;           // The program that runs; empty if none.
  std::int64_t total() const { return tensors + temporaries + code; }
};

// The moment at which one phase of the steps used the most memory.
struct TpuPhase {
  std::string name;  // setup, forward, backward, optimizer, or between.
  TpuMemoryUsage peak;
};

// A program that the compiler rejected.
struct TpuFailure {
  std::string program;  // The program's name, from its operator.
  std::string module;   // The last layer with parameters that were read; empty if none.
  std::string message;  // The compiler's message.
};

struct TpuEstimate {
  std::string topology;      // Such as v5e:2x2.
  std::string compiled_for;  // The kind of the device, such as "TPU v5 lite".
  // False if programs were compiled for devices of this machine and not by a TPU's compiler.
  bool ahead_of_time = false;
  // Devices of the topology. The estimate covers the device that uses the most memory.
  std::int64_t devices = 0;
  std::int64_t memory = 0;  // Bytes that programs may use on one device; 0 if unknown.
  bool in_order = true;     // False if operators ran later than the program called them.
  std::int64_t steps = 0;
  // Programs that were compiled, and how often programs ran.
  std::int64_t programs = 0, runs = 0;
  std::int64_t programs_after_second_step = 0;  // Compiled in later steps.
  double compile_seconds = 0;
  std::int64_t reads = 0;  // Values that the program read back, which were placeholders.
  // Bytes of the tensors themselves: parameters and buffers, the optimizers' states, the gradients
  // at the end of the last backward pass, the last batch. `unknown` is everything else that is live
  // when a step begins and that is held by the library that runs the programs.
  ComponentBytes components{};
  // Bytes that the last forward pass allocated and that were live when its backward pass began.
  std::int64_t activations = 0;
  // Bytes of tensors at the beginning of the last step: before the first forward pass of its
  // accumulation window, or in inference before the last forward pass.
  std::int64_t before_last_step = 0;
  // The moment with the most memory, and the current moment.
  TpuMemoryUsage peak, now;
  std::vector<TpuPhase> phases;
  std::vector<TpuFailure> failed;
  std::int64_t unpadded_bytes = 0;  // Bytes of tensors that no program has read; without padding.
  // Runs whose arguments do not add up to the sum that the compiler reports.
  std::int64_t mismatched_runs = 0;
  std::string stopped;  // The reason why the program ended early; empty if it did not.
  // Predictions of the same step with one change each, without times.
  std::optional<StepComparison> what_if;
};

// False if the peak exceeds the memory of a device, or if the compiler reports that a program does
// not fit.
HASTEN_API bool fits(const TpuEstimate& estimate);

// Reads the JSON that hasten's module for dry TPUs writes.
HASTEN_API TpuEstimate read_tpu_estimate(const std::string& json);

// The prediction of an anatomy for the same step in a dry run on the CPU, shown next to the
// estimate.
struct TpuPrediction {
  std::int64_t peak = 0;
  ComponentBytes max_bytes{};  // The most bytes of each component, at any time.
};
HASTEN_API TpuPrediction to_prediction(const Report& report);
// Reads the prediction from a report's to_json().
HASTEN_API TpuPrediction read_prediction(const std::string& report_json);

// Tables for a terminal, JSON for programs, and a self-contained HTML page. They show the
// prediction next to the estimate, unless it is null.
HASTEN_API std::string to_text(const TpuEstimate& estimate,
                               const TpuPrediction* prediction = nullptr);
HASTEN_API std::string to_json(const TpuEstimate& estimate,
                               const TpuPrediction* prediction = nullptr);
HASTEN_API std::string to_html(const TpuEstimate& estimate,
                               const TpuPrediction* prediction = nullptr);
// Writes the estimate in the format that the file's extension selects: .json, .html, or text for
// any other.
HASTEN_API void write_tpu_estimate(const std::filesystem::path& file, const TpuEstimate& estimate,
                                   const TpuPrediction* prediction = nullptr);

}  // namespace hasten::anatomy
