// Repeats recorded runs of the Hugging Face Trainer (tests/oracle/generate.py) on a device and
// compares their log entries and weights.
#pragma once

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "device.h"
#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/data/column_dataset.h"
#include "hasten/formats/safetensors.h"
#include "hasten/trainer/trainer.h"

namespace hasten::oracle {

using nlohmann::json;
namespace fs = std::filesystem;

inline const fs::path kData = tested::folder() / "oracle/data";

inline ColumnDataset first_rows(std::int64_t rows) {
  const TensorDict batches = load_safetensors(kData / "base/batches.safetensors");
  return ColumnDataset(
      {{"input_ids", batches.at("input_ids").flatten(0, 1).narrow(0, 0, rows).clone()},
       {"attention_mask", batches.at("attention_mask").flatten(0, 1).narrow(0, 0, rows).clone()},
       {"labels", batches.at("labels").flatten().narrow(0, 0, rows).clone()}});
}

inline std::shared_ptr<PreTrainedModel> base_model(
    AttentionImplementation attention = AttentionImplementation::sdpa) {
  return load_model((kData / "base/config.json").string(),
                    {.attn_implementation = attention, .weights = kData / "base/init.safetensors"})
      .model;
}

struct Tolerance {
  double loss = tested::limit(1e-5), norm = tested::limit(1e-4), weights = tested::limit(1e-5);
};

inline void check_entry(const json& expected, const LogEntry& entry, const Tolerance& tolerance) {
  for (const auto& [key, value] : expected.items()) {
    if (value.is_null()) continue;  // a clock reading
    CAPTURE(key);
    REQUIRE(entry.count(key) == 1);
    const double a = entry.at(key), b = value.get<double>();
    CAPTURE(a);
    CAPTURE(b);
    if (key.find("loss") != std::string::npos) {
      CHECK(std::abs(a - b) <= tolerance.loss);
    } else if (key == "grad_norm") {
      CHECK(std::abs(a - b) <= tolerance.norm * b);
    } else {
      CHECK(a == doctest::Approx(b).epsilon(1e-14));
    }
  }
}

// The gradients of the keys' biases are 0 apart from rounding errors. The steps of a `scale_free`
// optimizer hardly depend on the size of a gradient, so these biases are left out for it.
inline void check_weights(const PreTrainedModel& model, const fs::path& file, double tolerance,
                          bool scale_free = false) {
  const TensorDict expected = load_safetensors(file);
  for (const auto& [name, tensor] : model.state_dict()) {
    if (scale_free && name.ends_with(".key.bias")) continue;
    CAPTURE(name);
    CHECK((tensor.cpu() - expected.at(name)).abs().max().item<double>() <= tolerance);
  }
}

// Appends every number of a run, bit by bit, to the file that HASTEN_TEST_NUMBERS names
// (tools/digest). Clock readings are left out.
inline void record_numbers(const std::string& name, const json& expected, const Trainer& trainer,
                           const PreTrainedModel& model) {
  const char* const path = std::getenv("HASTEN_TEST_NUMBERS");
  if (path == nullptr) return;
  std::ofstream file(path, std::ios::app);
  const auto& history = trainer.state().log_history;
  for (std::size_t i = 0; i < history.size(); ++i) {
    for (const auto& [key, value] : expected.at("log_history")[i].items()) {
      if (value.is_null() || history[i].count(key) == 0) continue;
      file << name << ' ' << i << ' ' << key << ' ' << std::hexfloat << history[i].at(key) << '\n';
    }
  }
  for (const auto& [key, tensor] : model.state_dict()) {
    const at::Tensor bytes = tensor.cpu().contiguous();
    const std::string_view view(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
    file << name << ' ' << key << ' ' << std::hash<std::string_view>()(view) << '\n';
  }
}

// How a case runs, and the allowed differences.
struct CaseOptions {
  bool use_cpu = tested::device().is_cpu();
  AttentionImplementation attention = AttentionImplementation::sdpa;
  Tolerance tolerance;
};

inline void run_case(const fs::path& file, const CaseOptions& options = {}) {
  const json expected = json::parse(read_file(file));
  json arguments = expected.at("arguments");
  TrainingArguments args = training_arguments_from_json(arguments.dump(), file.filename().string());
  const TemporaryDirectory out;
  args.output_dir = out.path().string();
  args.per_device_train_batch_size = 8;
  args.train_sampling_strategy = SamplingStrategy::sequential;
  args.save_strategy = SaveStrategy::no;
  args.use_cpu = options.use_cpu;
  Tolerance tolerance = options.tolerance;
  if (args.bf16) {
    if (options.use_cpu && !bf16_is_fast(at::kCPU)) {
      MESSAGE("skipped: bf16 needs a CPU with AVX512-BF16");
      return;
    }
    // bfloat16 rounds each product to 8 bits, and AdamW's direction is only a sign for small
    // gradients.
    tolerance = {.loss = 2e-3, .norm = 0.05, .weights = 2e-2};
  }
  const auto model = base_model(options.attention);
  TrainerParts parts{.train_dataset =
                         TrainerDataset(first_rows(expected.at("rows").get<std::int64_t>()))};
  if (expected.contains("eval_rows")) {
    // hasten scores every row, but the Hugging Face Trainer drops an incomplete last batch
    // (docs/design/004). This run gets only the rows that the Hugging Face Trainer scored.
    const auto rows = expected.at("eval_rows").get<std::int64_t>();
    const std::int64_t left_out =
        args.dataloader_drop_last ? rows % args.per_device_eval_batch_size : 0;
    parts.eval_dataset = TrainerDataset(first_rows(rows - left_out));
    parts.compute_metrics = std::make_shared<Accuracy>();
  }
  Trainer trainer(model, args, std::move(parts));
  const TrainOutput result = trainer.train();
  CHECK(model->parameters().front().is_cpu() == options.use_cpu);
  CHECK(result.global_step == expected.at("steps").get<std::int64_t>());
  CHECK(std::abs(result.training_loss - expected.at("train_loss").get<double>()) <= tolerance.loss);
  const auto& history = trainer.state().log_history;
  REQUIRE(history.size() == expected.at("log_history").size());
  for (std::size_t i = 0; i < history.size(); ++i) {
    CAPTURE(i);
    check_entry(expected.at("log_history")[i], history[i], tolerance);
  }
  record_numbers(file.stem().string(), expected, trainer, *model);
  if (expected.contains("final"))
    check_weights(
        *model, kData / expected.at("final").get<std::string>(), tolerance.weights,
        args.optim == OptimizerName::lion_32bit || args.optim == OptimizerName::adafactor);
}

// Returns the cases that the Trainer can repeat. In the other cases ("_mean"), micro-batches have
// equal weights.
inline std::vector<fs::path> cases() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kData)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".json" || name == "minilm.json") continue;
    if (name.find("_mean") == std::string::npos) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace hasten::oracle
