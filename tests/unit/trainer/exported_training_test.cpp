// Exported programs in the Trainer: properties, runs, several processes, precision, checkpoints.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "hasten/base/text.h"
#include "hasten/exported/exported_module.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/trainer.h"
#include "trainer/exported_rows.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"
#include "unit/trainer/tiny.h"

namespace trainer_exported_training_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using hasten::tiny_runs::Folder;
using hasten::tiny_runs::logged;
using hasten::tiny_runs::short_run;
namespace fs = std::filesystem;

namespace {

const fs::path kModels = HASTEN_TEST_DATA "/oracle/data/exported";

std::shared_ptr<ExportedModule> load(const std::string& name) {
  return load_exported(kModels / (name + ".pt2"));
}

// "transformer" returns its loss. The loss of "mlp", which has dropout, is computed from its
// logits.
TrainerParts parts_of(const ExportedModule& model, std::int64_t rows) {
  return {.train_dataset = TrainerDataset(example_rows(model.parts(), rows, 6)),
          .compute_loss = loss_for(model.parts()),
          .log_sink = [](std::string_view) {}};
}

TrainingArguments arguments(const fs::path& folder, std::int64_t batch) {
  TrainingArguments args = short_run(folder, batch);
  args.max_steps = 10;
  args.learning_rate = 1e-2;
  return args;
}

struct Trained {
  std::vector<double> losses;
  TensorDict weights;
};

Trained train(const std::string& name, const TrainingArguments& args, std::int64_t rows = 48) {
  const auto model = load(name);
  Trainer trainer(model, args, parts_of(*model, rows));
  trainer.train();
  Trained out{.losses = logged(trainer), .weights = {}};
  for (const auto& [key, tensor] : model->state_dict()) out.weights[key] = tensor.clone();
  return out;
}

void check_close(const Trained& run, const Trained& reference, double tolerance) {
  REQUIRE(run.losses.size() == reference.losses.size());
  for (std::size_t i = 0; i < run.losses.size(); ++i)
    CHECK(std::abs(run.losses[i] - reference.losses[i]) <= tolerance);
  REQUIRE(run.weights.size() == reference.weights.size());
  for (const auto& [name, tensor] : reference.weights) {
    CAPTURE(name);
    CHECK((run.weights.at(name) - tensor).abs().max().item<double>() <= tolerance);
  }
}

bool is_equal(const Trained& run, const Trained& reference) {
  if (run.losses != reference.losses || run.weights.size() != reference.weights.size())
    return false;
  for (const auto& [name, tensor] : reference.weights)
    if (!at::equal(run.weights.at(name), tensor)) return false;
  return true;
}

}  // namespace

TEST_CASE("exported training: the Trainer learns, and saves both files") {
  for (const std::string name : {"transformer", "mlp"}) {
    CAPTURE(name);
    const Folder folder;
    TrainingArguments args = arguments(folder.path, 8);
    args.max_steps = 60;
    const auto model = load(name);
    Trainer trainer(model, args, parts_of(*model, 16));
    trainer.train();
    const std::vector<LogEntry>& history = trainer.state().log_history;
    double first = 0, last = 0;
    for (std::size_t i = 0; i < 10; ++i) {
      first += history[i].at("loss");
      last += history[50 + i].at("loss");
    }
    CHECK(last < 0.9 * first);
    trainer.save_model();
    CHECK(model->other_file_bytes() >= fs::file_size(folder.path / "trained.pt2") / 2);
    const auto again = load_exported(folder.path / "trained.pt2");
    for (const auto& [key, tensor] : model->state_dict())
      CHECK(at::equal(again->state_dict().at(key), tensor));
    const auto fresh = load(name);
    fresh->load_weights(folder.path / "model.safetensors");
    for (const auto& [key, tensor] : model->state_dict())
      CHECK(at::equal(fresh->state_dict().at(key), tensor));
  }
}

TEST_CASE("exported training: a module states its tokens, operations and undecayed parameters") {
  const auto model = load("transformer");
  const TensorDict batch = example_rows(model->parts(), 4, 6).columns();
  CHECK(model->max_length() == 6);
  CHECK(model->token_count(batch) == 24);
  CHECK(model->row_length(batch) == 6);
  std::int64_t multiplied = 0;
  for (const auto& item : model->named_parameters())
    if (item.key() != "embed.weight" && item.key() != "positions.weight")
      multiplied += item.value().numel();
  CHECK(model->floating_point_ops(batch) == 6.0 * 24 * static_cast<double>(multiplied));
  CHECK(model->undecayed_parameters() ==
        std::set<std::string>{"norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias",
                              "qkv.bias", "out.bias", "up.bias", "down.bias", "head.bias"});
  const auto cnn = load("cnn");
  CHECK_FALSE(cnn->floating_point_ops({{"x", torch::ones({2, 2, 4, 4})}}).has_value());
  // A batch norm is not a layer norm, but its name is "norm".
  CHECK(cnn->undecayed_parameters() ==
        std::set<std::string>{"norm.weight", "norm.bias", "head.bias"});
}

TEST_CASE("exported training: accumulated micro-batches train like one batch") {
  const Folder folder;
  TrainingArguments parts = arguments(folder.path, 2);
  parts.gradient_accumulation_steps = 4;
  parts.adam_epsilon = 1e-3;
  TrainingArguments whole = arguments(folder.path, 8);
  whole.adam_epsilon = 1e-3;
  check_close(train("transformer", parts), train("transformer", whole), 1e-5);
}

TEST_CASE("exported training: mixed precision trains to losses near those of float") {
  for (const std::string name : {"transformer", "cnn", "tied"}) {
    CAPTURE(name);
    const Folder folder;
    TrainingArguments args = arguments(folder.path, 8);
    const auto run = [&](bool bf16) {
      args.bf16 = bf16;
      return train(name, args).losses;
    };
    const std::vector<double> exact = run(false), mixed = run(true);
    REQUIRE(exact.size() == mixed.size());
    CHECK(exact != mixed);
    for (std::size_t i = 0; i < exact.size(); ++i)
      CHECK(mixed[i] == doctest::Approx(exact[i]).epsilon(0.05));
  }
}

TEST_CASE(
    "exported training: float16 scales losses, skips steps, and continues with the same bits") {
  for (const std::string name : {"transformer", "mlp", "cnn", "tied"}) {
    CAPTURE(name);
    const Folder folder;
    TrainingArguments args = arguments(folder.path, 8);
    const Trained exact = train(name, args);
    args.fp16 = true;
    args.save_strategy = SaveStrategy::steps;
    args.save_steps = 4;
    const Trained mixed = train(name, args);
    REQUIRE(exact.losses.size() == mixed.losses.size());
    CHECK(exact.losses != mixed.losses);
    for (std::size_t i = 0; i < exact.losses.size(); ++i)
      CHECK(mixed.losses[i] == doctest::Approx(exact.losses[i]).epsilon(0.05));
    for (const auto& [key, tensor] : mixed.weights)
      CHECK((tensor.scalar_type() == exact.weights.at(key).scalar_type()));
    args.resume_from_checkpoint = (folder.path / "checkpoint-4").string();
    CHECK(is_equal(train(name, args), mixed));
  }
  // A loss that is large in float16 overflows at first.
  const Folder folder;
  TrainingArguments args = arguments(folder.path, 8);
  args.fp16 = true;
  const auto model = load("mlp");
  TrainerParts parts = parts_of(*model, 48);
  parts.compute_loss = [loss = parts.compute_loss](ExportedModule& module, AnyBatch& batch) {
    ModelOutput out = loss(module, batch);
    out.loss = out.loss.to(at::kFloat) * 64;
    return out;
  };
  Trainer trainer(model, args, std::move(parts));
  const TrainOutput out = trainer.train();
  const double skipped = out.metrics.at("skipped_steps");
  CHECK(skipped > 0);
  CHECK(skipped < 10);
}

TEST_CASE("exported training: weights_dtype is refused, because operators have their types") {
  const Folder folder;
  TrainingArguments args = arguments(folder.path, 8);
  args.weights_dtype = WeightsType::bfloat16;
  const auto model = load("mlp");
  const auto make = [&] { Trainer trainer(model, args, parts_of(*model, 8)); };
  CHECK(code_of(make) == "trainer.weights-dtype");
  CHECK_THROWS_WITH_AS(make(), doctest::Contains("an exported program"), ConfigError);
  CHECK_THROWS_WITH_AS(make(), doctest::Contains("export the model in bfloat16"), ConfigError);
  for (const at::Tensor& each : model->parameters()) CHECK((each.scalar_type() == at::kFloat));
}

TEST_CASE("exported training: a resumed run equals one that was not interrupted") {
  for (const std::string name : {"transformer", "mlp", "cnn", "tied"}) {
    CAPTURE(name);
    const Folder folder;
    TrainingArguments args = arguments(folder.path, 4);
    args.save_strategy = SaveStrategy::steps;
    args.save_steps = 4;
    const Trained whole = train(name, args);
    CHECK(fs::exists(folder.path / "checkpoint-4" / "trained.pt2"));
    args.resume_from_checkpoint = (folder.path / "checkpoint-4").string();
    CHECK(is_equal(train(name, args), whole));
  }
}

TEST_CASE("exported training: two processes train like one") {
  const Folder folder;
  TrainingArguments args = arguments(folder.path, 8);
  args.adam_epsilon = 1e-3;
  // 46 rows in steps of eight: the last step of an epoch has six, and one process gets two of them.
  const Trained alone = train("transformer", args, 46);
  args.per_device_train_batch_size = 4;
  notebook_launcher(
      [&] {
        const Trained together = train("transformer", args, 46);
        require(together.losses.size() == alone.losses.size(), "the numbers of steps differ");
        for (std::size_t i = 0; i < alone.losses.size(); ++i)
          require(
              std::abs(together.losses[i] - alone.losses[i]) <= 1e-5,
              str("loss of step ", i + 1, ": ", together.losses[i], ", alone ", alone.losses[i]));
        for (const auto& [name, weight] : alone.weights) {
          const double most = (together.weights.at(name) - weight).abs().max().item<double>();
          require(most <= 1e-5, str(name, " differs by ", most));
        }
      },
      {.num_processes = 2});
}

TEST_CASE("exported training: a program without a loss needs logits of rows and classes") {
  CHECK(static_cast<bool>(loss_for(load("mlp")->parts())));
  CHECK_FALSE(static_cast<bool>(loss_for(load("transformer")->parts())));
  CHECK(num_row_classes(load("mlp")->parts()) == 3);
  CHECK(num_row_classes(load("transformer")->parts()) == 3);
  CHECK_FALSE(num_row_classes(load("tied")->parts()).has_value());
}

}  // namespace trainer_exported_training_test
