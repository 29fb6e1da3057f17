// Programs may provide their own models, callbacks, and files next to the model. Some arguments
// matter only to such programs.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/formats/weights.h"
#include "hasten/optim/gradients.h"
#include "hasten/trainer/trainer.h"
#include "trainer/prediction_buffer.h"
#include "unit/code_of.h"
#include "unit/trainer/tiny.h"

namespace trainer_customizing_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

namespace {

// A model on rows of numbers instead of ids; labels are optional, as for an autoencoder.
struct NumberModel : PreTrainedModel {
  explicit NumberModel(bool counts_itself = false) : counts_itself(counts_itself) {
    layer = register_module("layer", torch::nn::Linear(6, 6));
  }
  ModelOutput forward(const TensorDict& batch) override {
    const at::Tensor in = tensor_at(batch, "pixels"), out = layer->forward(in);
    const auto labels = batch.find("labels");
    return {.loss = labels == batch.end()
                        ? (out - in).square().mean()
                        : torch::nn::functional::cross_entropy(out, labels->second),
            .logits = out};
  }
  std::string config_json() const override { return "{\"model_type\": \"own\"}"; }
  std::int64_t max_length() const override { return 0; }
  std::int64_t vocab_size() const override { return 0; }
  std::int64_t num_labels() const override { return 6; }
  void initialize(const std::vector<std::string>*) override {}
  std::optional<double> floating_point_ops(const TensorDict& batch) const override {
    if (!counts_itself) return PreTrainedModel::floating_point_ops(batch);
    return 100.0 * static_cast<double>(tensor_at(batch, "pixels").size(0));
  }
  torch::nn::Linear layer = nullptr;
  bool counts_itself;
};

ColumnDataset numbers(std::int64_t count, bool labelled) {
  torch::manual_seed(3);
  TensorDict columns = {{"pixels", at::randn({count, 6})}};
  if (labelled) columns["labels"] = at::randint(0, 6, {count});
  return ColumnDataset(columns);
}

TrainingArguments few_steps(const fs::path& folder) {
  TrainingArguments args = short_run(folder);
  args.per_device_eval_batch_size = 4;
  args.num_train_epochs = 1;
  return args;
}

}  // namespace

TEST_CASE("custom model: batches without input_ids are trained on, scored and predicted") {
  for (const bool labelled : {true, false}) {
    CAPTURE(labelled);
    const tiny_runs::Folder folder;
    std::string log;
    TrainingArguments args = few_steps(folder.path);
    args.save_strategy = SaveStrategy::epoch;
    args.include_num_input_tokens_seen = CountTokens::all;
    Trainer trainer(std::make_shared<NumberModel>(), args,
                    {.train_dataset = TrainerDataset(numbers(11, labelled)),
                     .eval_dataset = TrainerDataset(numbers(7, labelled)),
                     .log_sink = [&](std::string_view line) { log += line; }});
    const TrainOutput out = trainer.train();
    CHECK(out.global_step == 3);
    CHECK(std::isfinite(out.training_loss));
    CHECK(out.training_loss > 0);
    // An unknown value is not reported as zero.
    CHECK(out.metrics.count("total_flos") == 0);
    CHECK(log.find("total_flos is not counted") != std::string::npos);
    CHECK(log.find("total_flos is not counted") == log.rfind("total_flos is not counted"));
    CHECK(log.find("num_input_tokens_seen is not counted") != std::string::npos);
    CHECK(trainer.evaluate().count("eval_loss") == 1);
    CHECK(trainer.predict(TrainerDataset(numbers(7, labelled))).predictions.size(0) == 7);
    args.resume_from_checkpoint = "true";
    args.num_train_epochs = 2;
    Trainer resumed(std::make_shared<NumberModel>(), args,
                    {.train_dataset = TrainerDataset(numbers(11, labelled)),
                     .log_sink = [](std::string_view) {}});
    CHECK(resumed.train().global_step == 6);
  }
}

TEST_CASE("custom model: it may report the operations of a batch") {
  const tiny_runs::Folder folder;
  Trainer trainer(std::make_shared<NumberModel>(/*counts_itself=*/true), few_steps(folder.path),
                  {.train_dataset = TrainerDataset(numbers(11, true))});
  CHECK(trainer.train().metrics.at("total_flos") == 1100);
  CHECK(new_model()->floating_point_ops({{"input_ids", at::zeros({2, 3}, at::kLong)}}).value() > 0);
}

namespace {

// Records the norm of the gradients before and after the optimizer's step.
struct NormReader : TrainerCallback {
  explicit NormReader(bool reads) : reads(reads) {}
  void on_pre_optimizer_step(const TrainerEvent& event, TrainerControl&) override {
    before.push_back(gradient_norm(event.model.parameters()));
  }
  void on_optimizer_step(const TrainerEvent& event, TrainerControl&) override {
    after.push_back(gradient_norm(event.model.parameters()));
  }
  bool reads_gradients() const override { return reads; }
  bool reads;
  std::vector<double> before, after;
};

// A callback that does not handle gradients.
struct NoGradientCallback : TrainerCallback {};

TensorDict trained_with(const std::shared_ptr<TrainerCallback>& callback) {
  const tiny_runs::Folder folder;
  TrainingArguments args = few_steps(folder.path);
  args.num_train_epochs = 2;
  args.max_grad_norm = 0.01;
  const auto model = new_model();
  TrainerParts parts{.train_dataset = TrainerDataset(rows(22))};
  if (callback) parts.callbacks = {callback};
  Trainer trainer(model, args, parts);
  trainer.train();
  TensorDict weights;
  for (const auto& [name, tensor] : model->state_dict()) weights[name] = tensor.clone();
  return weights;
}

}  // namespace

TEST_CASE("callbacks: gradients are clipped before on_pre_optimizer_step") {
  const auto reader = std::make_shared<NormReader>(true);
  const TensorDict read = trained_with(reader), alone = trained_with(nullptr),
                   silent = trained_with(std::make_shared<NoGradientCallback>());
  REQUIRE(reader->before.size() == 12);
  for (std::size_t i = 0; i < reader->before.size(); ++i) {
    CHECK(reader->before[i] <= 0.01 * (1 + 1e-4));
    CHECK(reader->before[i] > 0.005);
    CHECK(reader->after[i] == reader->before[i]);
  }
  for (const auto& [name, tensor] : alone) {
    CAPTURE(name);
    CHECK(at::allclose(read.at(name), tensor, 1e-6, 1e-7));
    CHECK(at::equal(silent.at(name), read.at(name)));
  }
  // The optimizer clips while it reads the gradients.
  const auto folded = std::make_shared<NormReader>(false);
  const TensorDict same = trained_with(folded);
  CHECK(folded->before.front() > 0.1);
  for (const auto& [name, tensor] : alone) CHECK(at::equal(same.at(name), tensor));
}

TEST_CASE("dataloader_drop_last: every row is scored and predicted, also in a small set") {
  const tiny_runs::Folder folder;
  TrainingArguments args = few_steps(folder.path);
  args.dataloader_drop_last = true;
  args.eval_strategy = IntervalStrategy::epoch;
  std::size_t seen = 0;
  const auto metric = metric_from_function([&](const EvalPrediction& all) {
    seen = static_cast<std::size_t>(all.predictions.size(0));
    return Metrics{};
  });
  Trainer trainer(new_model(), args,
                  {.train_dataset = TrainerDataset(rows(11)),
                   .eval_dataset = TrainerDataset(rows(3)),
                   .compute_metrics = metric});
  CHECK(trainer.train().global_step == 2);  // the last three rows are dropped
  CHECK(seen == 3);
  CHECK(trainer.predict(TrainerDataset(rows(11))).predictions.size(0) == 11);
}

TEST_CASE("eval_accumulation_steps: predictions stay on their device for that many batches") {
  const auto on_meta = [](PredictionBuffer& buffer, int batches) {
    for (int i = 0; i < batches; ++i) buffer.add(at::zeros({2}));
    std::vector<bool> moved;
    for (const at::Tensor& each : buffer.tensors()) moved.push_back(each.is_meta());
    return moved;
  };
  PredictionBuffer two(2, at::kMeta), all(std::nullopt, at::kMeta);
  CHECK(on_meta(two, 3) == std::vector<bool>{true, true, false});
  CHECK(on_meta(all, 3) == std::vector<bool>{false, false, false});
  CHECK(two.take().back().is_meta());
  CHECK(all.take().front().is_meta());

  const tiny_runs::Folder folder;
  TrainingArguments args = few_steps(folder.path);
  const auto model = new_model(0);
  const auto predicted = [&] {
    return Trainer(model, args, {}).predict(TrainerDataset(rows(11))).predictions;
  };
  const at::Tensor expected = predicted();
  args.eval_accumulation_steps = 2;
  CHECK(at::equal(predicted(), expected));
}

TEST_CASE("run_name: it is saved with the model; without a tracker a notice says that") {
  const tiny_runs::Folder folder;
  TrainingArguments args = few_steps(folder.path);
  args.run_name = "third try";
  std::string log;
  Trainer trainer(new_model(), args,
                  {.train_dataset = TrainerDataset(rows(8)),
                   .log_sink = [&](std::string_view line) { log += line; }});
  CHECK(log.find("run_name third try") != std::string::npos);
  trainer.save_model();
  CHECK(nlohmann::json::parse(read_file(folder.path / "training_args.json"))["run_name"] ==
        "third try");
}

TEST_CASE("save_model: the files beside the model are read once, when the Trainer is created") {
  const tiny_runs::Folder folder;
  const TemporaryDirectory source;
  const fs::path file = source.path() / "tokenizer.json";
  write_file_atomically(file, "words");
  TrainingArguments args = few_steps(folder.path);
  args.save_strategy = SaveStrategy::epoch;
  Trainer trainer(new_model(), args,
                  {.train_dataset = TrainerDataset(rows(8)), .extra_files = {file}});
  fs::remove(file);
  trainer.train();
  trainer.save_model();
  CHECK(read_file(folder.path / "checkpoint-2" / "tokenizer.json") == "words");
  CHECK(read_file(folder.path / "tokenizer.json") == "words");
  CHECK(code_of([&] { Trainer(new_model(), args, {.extra_files = {file}}); }) == "io.open");
}

TEST_CASE("save_model: a failed save leaves the old model unchanged") {
  const tiny_runs::Folder folder;
  TrainingArguments args = few_steps(folder.path);
  BertConfig config = tiny();
  const auto saved_model = [&](std::int64_t labels) {
    config.num_labels = labels;
    const auto model = std::make_shared<BertForSequenceClassification>(config);
    model->initialize();
    return model;
  };
  Trainer(saved_model(2), args, {}).save_model();
  const std::string before = read_file(folder.path / "config.json");
  Trainer other(saved_model(5), args, {});
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{6000, limit.rlim_max};  // more than the configuration, less than the weights
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string code = code_of([&] { other.save_model(); });
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  CHECK(code == "io.write");
  CHECK(read_file(folder.path / "config.json") == before);
  CHECK(load_weights(folder.path).at("classifier.bias").size(0) == 2);
  other.save_model();
  CHECK(read_file(folder.path / "config.json") != before);
  CHECK(load_weights(folder.path).at("classifier.bias").size(0) == 5);
}

}  // namespace trainer_customizing_test
