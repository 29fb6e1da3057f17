// File: commands/estimate_options.h (internal)
// The options of `hasten estimate`: a model, and those options of `hasten train` that change a
// step.
//
//   $ hasten estimate bert-large --batch 4 --seq 512 --optim adamw --precision bf16 --json
//
// Short names: --batch is --per_device_train_batch_size, --seq the length of a row in tokens,
// --device the GPU to predict for, --tpu a TPU topology (device tpu:v5e:2x2), --precision bf16 is
// --bf16, fp16 is --fp16, and --optim adamw is adamw_torch_fused. All other options are the same as
// in `hasten train`, and configuration files are read. Needs no torch. Throws ConfigError and
// IoError like parse_train.
#pragma once

#include <functional>
#include <string>

#include "base/internal_api.h"
#include "hasten/options/detail/names.h"
#include "hasten/options/train_options.h"

namespace hasten {

struct EstimateConfiguration {
  TrainConfiguration train;
  bool json = false;     // Print JSON instead of tables.
  std::string html;      // The file of an HTML page; empty for none.
  std::string output;    // A file in the format of its name's ending; empty for none.
  bool what_if = false;  // Also predict steps with one change each; an HTML page implies it.
  bool measure = false;  // Run and measure real steps.
  // The number of optimizer steps or batches to estimate. The default for a generation is 1.
  std::int64_t steps = 2;
  EstimateMode mode = EstimateMode::training;
  std::int64_t new_tokens = 200, beams = 1;  // for a generation
  // Or cuda:NAME (hasten/machine/gpus.h), or a device of another kind (predicted_device.h).
  std::string device = "cpu";
  bool devices = false;  // List the known GPUs.
  bool help = false;

  bool compares_changes() const { return what_if || !html.empty(); }
};

// Parses the arguments after `estimate`. `describe_more` adds the options of another command that
// also has the options of `estimate`.
HASTEN_INTERNAL_API EstimateConfiguration
parse_estimate(const std::vector<std::string>& arguments, const config::Environment& environment,
               const std::function<void(config::OptionTable&)>& describe_more = {});
HASTEN_INTERNAL_API std::string estimate_help(int width);

}  // namespace hasten
