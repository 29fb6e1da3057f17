// File: hasten/config/estimate_options.h
// The options of `hasten estimate`: a model, and what of `hasten train` changes a step.
//
//   hasten estimate bert-large --batch 4 --seq 512 --optim adamw --precision bf16 --json
//
// Short names stand for the peer's: --batch for --per_device_train_batch_size, --seq for the length
// of a row, --device for the GPU to predict for, --tpu for a TPU's topology (device tpu:v5e:2x2),
// --precision fp32|bf16 for --bf16, --optim adamw for adamw_torch_fused. Every other word is one of
// `hasten train`. Needs no torch. Throws ConfigError, IoError as parse_train does. Thread rule:
// pure functions.
#pragma once

#include <string>

#include "hasten/config/estimate_mode.h"
#include "hasten/config/train_options.h"

namespace hasten {

struct EstimateConfiguration {
  TrainConfiguration train;
  bool json = false;     // JSON instead of tables
  std::string html;      // a page beside the tables
  bool what_if = false;  // predict changes too; so does a page
  bool measure = false;  // make the steps for real
  std::int64_t steps = 2;
  EstimateMode mode = EstimateMode::training;
  std::string device = "cpu";  // or cuda:NAME (hasten/config/gpus.h), tpu:TOPOLOGY (tpus.h)
  bool devices = false;        // list the GPUs there are figures of
  bool help = false;
};

// `argv` are the words after the subcommand.
EstimateConfiguration parse_estimate(int argc, const char* const* argv,
                                     const config::Environment& environment);
std::string estimate_help();

}  // namespace hasten
