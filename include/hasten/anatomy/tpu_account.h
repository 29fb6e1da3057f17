// File: hasten/anatomy/tpu_account.h
// What a training step takes of a TPU's memory by the TPU's own compiler: the account of a dry TPU
// (hasten/anatomy/dry_tpu.h), as plain data, and the forms it is shown in.
//
//   const TpuPrediction prediction = prediction_of(report);    // an anatomy's
//   std::cout << to_text(account, &prediction);
//
// Units: bytes on the device, padding of tiles included; seconds. Thread rule: values and pure
// functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hasten/anatomy/component.h"
#include "hasten/anatomy/report.h"

namespace hasten::anatomy {

// At one moment.
struct TpuMoment {
  std::int64_t tensors = 0;
  std::int64_t temporaries = 0;  // of the program that runs
  std::int64_t code = 0;         // of the programs that are loaded
  std::string program;           // that runs
  std::int64_t total() const { return tensors + temporaries + code; }
};

struct TpuPhase {
  std::string name;  // setup, forward, backward, optimizer, between
  TpuMoment peak;
};

struct TpuFailure {
  std::string program;  // the operator's name
  std::string module;   // whose parameters were read last; empty: none were
  std::string message;  // the compiler's
};

struct TpuAccount {
  std::string topology;        // v5e:2x2
  std::string compiled_for;    // the device's kind, "TPU v5 lite"
  bool ahead_of_time = false;  // false: not by a TPU's compiler, but for devices of this machine
  std::int64_t devices = 0;    // of the topology; the account is of one of them
  std::int64_t memory = 0;     // of a device, that programs may use; 0: not told
  bool in_order = true;        // false: operators ran later than the program called them
  std::int64_t steps = 0;
  std::int64_t programs = 0, runs = 0;
  std::int64_t programs_after_second_step = 0;  // compiled in later steps
  double compile_seconds = 0;
  std::int64_t reads = 0;  // of values, which were stand-ins
  // By the tensors themselves: parameters and buffers, what the optimizer keeps, gradients at the
  // end of the last backward pass, the last batch. Unknown: what lies there besides when a step
  // begins; the library that runs the programs holds it.
  ComponentBytes components{};
  std::int64_t activations =
      0;  // that came in the last forward pass and stayed for its backward pass
  std::int64_t before_last_step = 0;  // of tensors, when its first forward pass began
  TpuMoment peak, now;
  std::vector<TpuPhase> phases;
  std::vector<TpuFailure> failed;
  std::int64_t not_laid_out = 0;  // bytes of tensors no program read: counted without padding
  std::int64_t unlike = 0;        // runs whose arguments do not add up to the compiler's own sum
  std::string stopped;            // why the program ended early
  std::vector<Alternative> alternatives;
};

// Whether it was told that it does not fit: by the account, or by the compiler for one program.
bool fits(const TpuAccount& account);

// The account as the module wrote it.
TpuAccount read_tpu_account(const std::string& json);

// What an anatomy of the same step, dry on the CPU, says to that.
struct TpuPrediction {
  std::int64_t peak = 0;
  ComponentBytes most{};  // of each by itself, whenever that was
};
TpuPrediction prediction_of(const Report& report);
TpuPrediction read_prediction(const std::string& report_json);

// Tables for a terminal, JSON for programs, a page that needs nothing else; the prediction stands
// beside, unless it is null.
std::string to_text(const TpuAccount& account, const TpuPrediction* prediction = nullptr);
std::string to_json(const TpuAccount& account, const TpuPrediction* prediction = nullptr);
std::string to_html(const TpuAccount& account, const TpuPrediction* prediction = nullptr);
// By the file's ending: .json, .html, anything else as text.
void write_account(const std::filesystem::path& file, const TpuAccount& account,
                   const TpuPrediction* prediction = nullptr);

}  // namespace hasten::anatomy
