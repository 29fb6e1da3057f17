// Whole runs of the Trainer against the peer's, log entry by log entry and weight by weight
// (tests/oracle/generate.py).
#include <doctest/doctest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/data/column_dataset.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/adamw.h"
#include "hasten/trainer/trainer.h"

using namespace hasten;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const fs::path kData = HASTEN_TEST_DATA "/oracle/data";

ColumnDataset first_rows(std::int64_t rows) {
  const TensorDict batches = load_safetensors(kData / "base/batches.safetensors");
  return ColumnDataset(
      {{"input_ids", batches.at("input_ids").flatten(0, 1).narrow(0, 0, rows).clone()},
       {"attention_mask", batches.at("attention_mask").flatten(0, 1).narrow(0, 0, rows).clone()},
       {"labels", batches.at("labels").flatten().narrow(0, 0, rows).clone()}});
}

std::shared_ptr<PreTrainedModel> base_model() {
  return load_model((kData / "base/config.json").string(),
                    {.weights = kData / "base/init.safetensors"})
      .model;
}

struct Tolerance {
  double loss = 1e-5, norm = 1e-4, weights = 1e-5;
};

void check_entry(const json& theirs, const LogEntry& ours, const Tolerance& tolerance) {
  for (const auto& [key, value] : theirs.items()) {
    if (value.is_null()) continue;  // a clock reading
    CAPTURE(key);
    REQUIRE(ours.count(key) == 1);
    const double a = ours.at(key), b = value.get<double>();
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

void check_weights(const PreTrainedModel& model, const fs::path& file, double tolerance) {
  const TensorDict expected = load_safetensors(file);
  for (const auto& [name, tensor] : model.state_dict()) {
    CAPTURE(name);
    CHECK((tensor - expected.at(name)).abs().max().item<double>() <= tolerance);
  }
}

void run_case(const fs::path& file) {
  const json expected = json::parse(read_file(file));
  json arguments = expected.at("arguments");
  TrainingArguments args = training_arguments_from_json(arguments.dump(), file.filename().string());
  const fs::path out = fs::temp_directory_path() / str("hasten-oracle-", getpid());
  args.output_dir = out.string();
  args.per_device_train_batch_size = 8;
  args.train_sampling_strategy = SamplingStrategy::sequential;
  args.save_strategy = SaveStrategy::no;
  args.use_cpu = true;
  Tolerance tolerance;
  if (args.bf16) {
    if (!bf16_is_fast(at::kCPU)) {
      MESSAGE("skipped: bf16 needs a CPU with AVX512-BF16");
      return;
    }
    // bfloat16 rounds each product to 8 bits, and AdamW's direction is a sign where gradients are
    // small.
    tolerance = {.loss = 2e-3, .norm = 0.05, .weights = 2e-2};
  }
  const auto model = base_model();
  TrainerParts parts{.train_dataset =
                         TrainerDataset(first_rows(expected.at("rows").get<std::int64_t>()))};
  if (expected.contains("eval_rows")) {
    parts.eval_dataset = TrainerDataset(first_rows(expected.at("eval_rows").get<std::int64_t>()));
    parts.compute_metrics = std::make_shared<Accuracy>();
  }
  Trainer trainer(model, args, std::move(parts));
  const TrainOutput result = trainer.train();
  CHECK(result.global_step == expected.at("steps").get<std::int64_t>());
  CHECK(std::abs(result.training_loss - expected.at("train_loss").get<double>()) <= tolerance.loss);
  const auto& history = trainer.state().log_history;
  REQUIRE(history.size() == expected.at("log_history").size());
  for (std::size_t i = 0; i < history.size(); ++i) {
    CAPTURE(i);
    check_entry(expected.at("log_history")[i], history[i], tolerance);
  }
  if (expected.contains("final"))
    check_weights(*model, kData / expected.at("final").get<std::string>(), tolerance.weights);
  fs::remove_all(out);
}

}  // namespace

TEST_CASE("trainer: every log entry and every weight of the peer's runs") {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kData)) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".json" || name == "minilm.json") continue;
    if (name.find("_mean") != std::string::npos)
      continue;  // micro-batches weigh equally there: see below
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  CHECK(files.size() > 40);
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    CAPTURE(name);
    run_case(file);
  }
}

TEST_CASE(
    "accelerator: a loop over its parts gives the peer's windows of equally weighing "
    "micro-batches") {
  for (const char* name : {"accumulation_3_mean", "accumulation_3_mean_ragged"}) {
    CAPTURE(name);
    const json expected = json::parse(read_file(kData / str(name, ".json")));
    const auto net = base_model();
    net->train();
    const std::int64_t epochs = expected["arguments"].value("num_train_epochs", 3);
    const auto total = static_cast<std::int64_t>(expected["grad_norm"].size());
    AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(0));
    auto batches = make_loader(first_rows(expected["rows"]), {.batch_size = 8});
    Accelerator accelerator({.gradient_accumulation_steps = 3, .cpu = true});
    auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);
    auto scheduler = get_scheduler("linear", optimizer, 0, total);
    std::vector<double> norms;
    for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
      for (auto& batch : loader) {
        const auto guard = accelerator.accumulate(model);
        optimizer.zero_grad();
        const ModelOutput out = model(batch);
        accelerator.backward(out.loss);
        if (accelerator.sync_gradients())
          norms.push_back(accelerator.clip_grad_norm_(model->parameters(), 1.0));
        optimizer.step();
        scheduler.step();
      }
    }
    REQUIRE(norms.size() == expected["grad_norm"].size());
    for (std::size_t i = 0; i < norms.size(); ++i)
      CHECK(norms[i] == doctest::Approx(expected["grad_norm"][i].get<double>()).epsilon(1e-4));
    check_weights(*net, kData / expected["final"].get<std::string>(), 1e-5);
  }
}
