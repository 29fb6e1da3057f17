#include "hasten/trainer/trainer.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/trainer/classification_data.h"
#include "unit/code_of.h"
#include "unit/trainer/tiny.h"

namespace trainer_trainer_test {

using namespace hasten;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

namespace {

void check_equal(const PreTrainedModel& a, const PreTrainedModel& b) {
  const TensorDict theirs = b.state_dict();
  for (const auto& [name, tensor] : a.state_dict()) {
    CAPTURE(name);
    CHECK(at::equal(tensor, theirs.at(name)));
  }
}

}  // namespace

TEST_CASE("trainer: a run resumed at any step gives the same bits as an uninterrupted one") {
  for (const std::int64_t accumulation : {1, 2}) {
    const Folder whole, parts;
    TrainingArguments args = three_epochs(whole);
    args.gradient_accumulation_steps = accumulation;
    const auto straight = new_model();
    Trainer reference(straight, args, {.train_dataset = TrainerDataset(rows(22))});
    reference.train();

    args.output_dir = parts.path.string();
    args.save_strategy = SaveStrategy::steps;
    args.save_steps = 1;
    const auto first = new_model();
    Trainer saver(first, args, {.train_dataset = TrainerDataset(rows(22))});
    saver.train();
    for (const std::int64_t step :
         {std::int64_t{1}, std::int64_t{4}, reference.state().global_step / 3,
          reference.state().global_step - 1}) {
      CAPTURE(step);
      args.resume_from_checkpoint = (parts.path / str("checkpoint-", step)).string();
      args.save_strategy = SaveStrategy::no;
      const auto resumed = new_model();
      torch::manual_seed(99);  // using the generator in between must not matter
      Trainer trainer(
          resumed, args,
          {.train_dataset = TrainerDataset(rows(22)), .log_sink = [](std::string_view) {}});
      trainer.train();
      check_equal(*resumed, *straight);
      CHECK(logged(trainer) == logged(reference));
    }
  }
}

TEST_CASE("trainer: resuming with true takes the newest checkpoint, which must be complete") {
  const Folder folder;
  TrainingArguments args = three_epochs(folder);
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 5;
  args.max_steps = 10;
  Trainer(new_model(), args, {.train_dataset = TrainerDataset(rows(22))}).train();
  CHECK(last_checkpoint(folder.path).filename() == "checkpoint-10");
  args.resume_from_checkpoint = "true";
  args.max_steps = 12;
  Trainer resumed(new_model(), args,
                  {.train_dataset = TrainerDataset(rows(22)), .log_sink = [](std::string_view) {}});
  CHECK(resumed.train().global_step == 12);
  args.resume_from_checkpoint = (folder.path / "checkpoint-12").string();
  for (const char* file : {"optimizer.safetensors", "random_state.safetensors",
                           "training_position.json", "model.safetensors"}) {
    CAPTURE(file);
    fs::rename(folder.path / "checkpoint-12" / file, folder.path / file);
    Trainer again(new_model(), args,
                  {.train_dataset = TrainerDataset(rows(22)), .log_sink = [](std::string_view) {}});
    CHECK(code_of([&] { again.train(); }) == "checkpoint.missing-file");
    fs::copy_file(folder.path / "checkpoint-10" / file, folder.path / "checkpoint-12" / file);
    // The file belongs to another checkpoint.
    CHECK(code_of([&] { again.train(); }) == "checkpoint.damaged");
    fs::rename(folder.path / file, folder.path / "checkpoint-12" / file);
  }
}

TEST_CASE("trainer: a checkpoint with another optimizer's state, or none, is refused") {
  const Folder folder;
  TrainingArguments args = three_epochs(folder);
  args.save_strategy = SaveStrategy::steps;
  args.max_steps = 2;
  Trainer(new_model(), args, {.train_dataset = TrainerDataset(rows(22))}).train();
  args.resume_from_checkpoint = "true";
  args.max_steps = 4;
  args.optim = OptimizerName::sgd;
  CHECK_THROWS_AS(Trainer(new_model(), args, {.train_dataset = TrainerDataset(rows(22))}).train(),
                  DataError);
  args.optim = OptimizerName::adamw_torch_fused;
  fs::remove(folder.path / "checkpoint-2/training_position.json");
  CHECK_THROWS_AS(Trainer(new_model(), args, {.train_dataset = TrainerDataset(rows(22))}).train(),
                  ConfigError);
}

TEST_CASE("trainer: an output folder with another run's checkpoints is refused by default") {
  const Folder folder;
  TrainingArguments args = three_epochs(folder);
  args.save_strategy = SaveStrategy::epoch;
  args.num_train_epochs = 1;
  fs::create_directories(folder.path);  // an existing empty folder is fine
  Trainer(new_model(), args, {.train_dataset = TrainerDataset(rows(8))}).train();
  CHECK_THROWS_AS(Trainer(new_model(), args, {.train_dataset = TrainerDataset(rows(8))}).train(),
                  ConfigError);
  args.overwrite_output_dir = true;
  Trainer(new_model(), args, {.train_dataset = TrainerDataset(rows(8))}).train();
  CHECK(checkpoints(folder.path).size() == 1);
}

TEST_CASE("trainer: rotation keeps the newest and the best checkpoint") {
  const Folder folder;
  for (const int step : {5, 10, 15, 20}) {
    fs::create_directories(folder.path / str("checkpoint-", step));
    std::ofstream(folder.path / str("checkpoint-", step) / "trainer_state.json") << "{}";
    write_manifest(folder.path / str("checkpoint-", step));
  }
  rotate_checkpoints(folder.path, {.limit = 2, .keep = folder.path / "checkpoint-5"});
  std::vector<std::string> left;
  for (const auto& path : checkpoints(folder.path)) left.push_back(path.filename().string());
  CHECK(left == std::vector<std::string>{"checkpoint-5", "checkpoint-20"});
  fs::create_directories(folder.path / "checkpoint-30");  // incomplete: it has no manifest
  CHECK(last_checkpoint(folder.path).filename() == "checkpoint-20");
}

TEST_CASE("trainer: the best model is kept and loaded at the end") {
  const Folder folder;
  TrainingArguments args = three_epochs(folder);
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 3;
  args.save_steps = 3;
  args.save_strategy = SaveStrategy::steps;
  args.save_total_limit = 1;
  args.load_best_model_at_end = true;
  args.metric_for_best_model = "accuracy";
  const auto model = new_model();
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(rows(32)),
                   .eval_dataset = TrainerDataset(rows(16)),
                   .compute_metrics = std::make_shared<Accuracy>(),
                   .log_sink = [](std::string_view) {}});
  trainer.train();
  const std::vector<double> scores = logged(trainer, "eval_accuracy");
  const double best = *std::max_element(scores.begin(), scores.end());
  CHECK(*trainer.state().best_metric == best);
  CHECK(fs::exists(trainer.state().best_model_checkpoint));
  CHECK(trainer.evaluate().at("eval_accuracy") == doctest::Approx(best));
}

TEST_CASE("trainer: a best model that was not saved loses nothing, the last step is saved") {
  const Folder folder;
  TrainingArguments args = three_epochs(folder);
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 2;
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 4;
  args.load_best_model_at_end = true;
  args.max_steps = 7;
  Trainer trainer(new_model(), args,
                  {.train_dataset = TrainerDataset(rows(32)),
                   .eval_dataset = TrainerDataset(rows(16)),
                   .log_sink = [](std::string_view) {}});
  trainer.train();
  std::vector<double> scored;
  for (const LogEntry& entry : trainer.state().log_history) {
    if (entry.count("eval_loss")) scored.push_back(entry.at("step"));
  }
  CHECK(scored == std::vector<double>{2, 4, 6, 7});
}

TEST_CASE("trainer: should_epoch_stop continues with the next epoch") {
  struct Stop : TrainerCallback {
    void on_step_end(const TrainerEvent&, TrainerControl& control, double) override {
      control.should_epoch_stop = true;
    }
  };
  const Folder folder;
  TrainingArguments args = three_epochs(folder);
  Trainer trainer(
      new_model(), args,
      {.train_dataset = TrainerDataset(rows(32)), .callbacks = {std::make_shared<Stop>()}});
  CHECK(trainer.train().global_step == 3);
}

TEST_CASE("trainer: eval_strategy without evaluation data warns and trains") {
  const Folder folder;
  TrainingArguments args = three_epochs(folder);
  args.eval_strategy = IntervalStrategy::steps;
  args.num_train_epochs = 1;
  std::string log;
  Trainer trainer(new_model(), args,
                  {.train_dataset = TrainerDataset(rows(8)),
                   .log_sink = [&](std::string_view line) { log += line; }});
  CHECK(trainer.train().global_step == 2);
  CHECK(log.find("no evaluation data") != std::string::npos);
}

TEST_CASE("trainer: the best checkpoint needs evaluation data") {
  for (const bool saves_best : {true, false}) {
    CAPTURE(saves_best);
    const Folder folder;
    TrainingArguments args = three_epochs(folder);
    args.eval_strategy = IntervalStrategy::epoch;
    args.save_strategy = saves_best ? SaveStrategy::best : SaveStrategy::epoch;
    args.load_best_model_at_end = !saves_best;
    args.metric_for_best_model = "loss";
    TrainerParts parts{.train_dataset = TrainerDataset(rows(8)),
                       .log_sink = [](std::string_view) {}};
    CHECK(code_of([&] { Trainer(new_model(), args, parts); }) == "trainer.no-eval-data");
    CHECK_FALSE(fs::exists(folder.path));
    parts.eval_dataset = TrainerDataset(rows(4));
    Trainer(new_model(), args, parts).train();
    CHECK_FALSE(checkpoints(folder.path).empty());
  }
}

TEST_CASE("trainer: losses that are not finite are reported, and stop the run if requested") {
  const Folder folder;
  TrainingArguments args = three_epochs(folder);
  args.num_train_epochs = 1;
  const auto broken = [] {
    const auto model = new_model();
    const torch::NoGradGuard no_grad;
    model->named_parameters()["classifier.bias"].fill_(NAN);
    return model;
  };
  int reports = 0;
  Trainer trainer(
      broken(), args,
      {.train_dataset = TrainerDataset(rows(8)), .log_sink = [&](std::string_view) { ++reports; }});
  const TrainOutput out = trainer.train();
  CHECK(out.metrics.at("nonfinite_losses") == 2);
  CHECK(reports == 1);                   // the second one follows the first
  CHECK(std::isnan(out.training_loss));  // no step has a loss that counts
  CHECK(trainer.state().log_history[0].at("nonfinite_losses") == 1);
  args.logging_nan_inf_filter = false;
  Trainer unfiltered(
      broken(), args,
      {.train_dataset = TrainerDataset(rows(8)), .log_sink = [](std::string_view) {}});
  const TrainOutput diverged = unfiltered.train();
  CHECK(std::isnan(diverged.training_loss));
  CHECK(std::isnan(diverged.metrics.at("train_loss")));
  unfiltered.save_metrics("train", diverged.metrics);
  CHECK(nlohmann::json::parse(read_file(folder.path / "train_results.json"))
            .at("train_loss")
            .is_null());
  args.stop_on_nonfinite_loss = true;
  Trainer stopping(broken(), args,
                   {.train_dataset = TrainerDataset(rows(8)), .log_sink = [](std::string_view) {}});
  CHECK_THROWS_AS(stopping.train(), DivergedError);
}

TEST_CASE("trainer: a label outside the classes is reported before it reaches the loss") {
  const Folder folder;
  ColumnDataset wrong = rows(8);
  TensorDict columns = wrong.columns();
  columns["labels"] = columns["labels"].clone().index_fill_(0, at::tensor({3}, at::kLong), 9);
  Trainer trainer(new_model(), three_epochs(folder),
                  {.train_dataset = TrainerDataset(ColumnDataset(columns))});
  CHECK_THROWS_AS(trainer.train(), DataError);
}

TEST_CASE("trainer: missing pieces and an unwritable output are refused before the first step") {
  const Folder folder;
  CHECK_THROWS_AS(Trainer(nullptr, three_epochs(folder), {}), UsageError);
  CHECK_THROWS_AS(Trainer(new_model(), three_epochs(folder), {}).train(), UsageError);
  TrainingArguments args = three_epochs(folder);
  std::ofstream(folder.path.string()) << "a file, not a folder";
  CHECK_THROWS_AS(Trainer(new_model(), args, {.train_dataset = TrainerDataset(rows(8))}).train(),
                  IoError);
}

TEST_CASE("trainer: predict gives logits and labels of every row in order") {
  const Folder folder;
  const auto model = new_model();
  Trainer trainer(model, three_epochs(folder), {.compute_metrics = std::make_shared<Accuracy>()});
  const ColumnDataset data = rows(11);
  const PredictionOutput out = trainer.predict(TrainerDataset(data));
  CHECK(out.predictions.size(0) == 11);
  CHECK(at::equal(out.label_ids, data.columns().at("labels")));
  CHECK(out.metrics.count("test_accuracy") == 1);
  model->eval();
  const torch::NoGradGuard no_grad;
  CHECK((out.predictions - model->forward(data.columns()).logits).abs().max().item<double>() <
        1e-5);
}

TEST_CASE("trainer: predict and evaluate do not repeat the prefix of a score") {
  const Folder folder;
  const auto metric = metric_from_function([](const EvalPrediction&) {
    return Metrics{{"test_f1", 0.5}, {"recall", 0.25}};
  });
  Trainer trainer(new_model(), three_epochs(folder), {.compute_metrics = metric});
  const TrainerDataset data(rows(8));
  for (const Metrics& metrics : {trainer.predict(data).metrics, trainer.evaluate(data, "test")}) {
    CHECK(metrics.count("test_test_f1") == 0);
    CHECK(metrics.at("test_f1") == 0.5);
    CHECK(metrics.at("test_recall") == 0.25);
  }
}

TEST_CASE("trainer: with prediction_loss_only, predict gives only the loss") {
  const Folder folder;
  TrainingArguments args = three_epochs(folder);
  args.prediction_loss_only = true;
  Trainer trainer(new_model(), args, {.compute_metrics = std::make_shared<Accuracy>()});
  const PredictionOutput out = trainer.predict(TrainerDataset(rows(8)));
  CHECK_FALSE(out.predictions.defined());
  CHECK_FALSE(out.label_ids.defined());
  CHECK(out.metrics.count("test_loss") == 1);
  CHECK(out.metrics.count("test_accuracy") == 0);
}

TEST_CASE("trainer: metric_from_function passes all predictions, padded to one length") {
  std::int64_t seen = 0;
  const auto metric = metric_from_function([&](const EvalPrediction& all) {
    seen = all.predictions.size(0);
    CHECK(all.label_ids.size(1) == 5);
    CHECK(all.label_ids[0][4].item<std::int64_t>() == -100);
    return Metrics{{"rows", static_cast<double>(seen)}};
  });
  metric->add(at::zeros({2, 3}), at::zeros({2, 3}, at::kLong));
  metric->add(at::zeros({1, 5}), at::zeros({1, 5}, at::kLong));
  CHECK(metric->compute().at("rows") == 3);
}

TEST_CASE("trainer: early stopping ends the run after evaluations without improvement") {
  const Folder folder;
  TrainingArguments args = three_epochs(folder);
  args.learning_rate = 0.0;
  args.eval_strategy = IntervalStrategy::epoch;
  args.metric_for_best_model = "accuracy";
  args.num_train_epochs = 9;
  Trainer trainer(new_model(), args,
                  {.train_dataset = TrainerDataset(rows(8)),
                   .eval_dataset = TrainerDataset(rows(8)),
                   .compute_metrics = std::make_shared<Accuracy>(),
                   .callbacks = {std::make_shared<EarlyStoppingCallback>(2)}});
  CHECK(trainer.train().global_step ==
        6);  // the first evaluation sets the best score, and two more do not improve it
}

TEST_CASE("trainer: result files have the keys and layout of the Hugging Face Trainer") {
  const Folder folder;
  TrainingArguments args = three_epochs(folder);
  Trainer trainer(new_model(), args,
                  {.train_dataset = TrainerDataset(rows(8)),
                   .eval_dataset = TrainerDataset(rows(8)),
                   .compute_metrics = std::make_shared<Accuracy>()});
  const TrainOutput out = trainer.train();
  trainer.save_model();
  trainer.save_metrics("train", out.metrics);
  trainer.save_metrics("eval", trainer.evaluate());
  trainer.save_state();
  const auto keys = [](const fs::path& file) {
    std::vector<std::string> names;
    const auto json = nlohmann::json::parse(read_file(file));
    for (const auto& [key, value] : json.items()) names.push_back(key);
    return names;
  };
  const fs::path peer = HASTEN_TEST_DATA "/oracle/data/formats";
  for (const char* file : {"train_results.json", "eval_results.json", "trainer_state.json"}) {
    CAPTURE(file);
    CHECK(keys(folder.path / file) == keys(peer / file));
  }
  CHECK(read_file(folder.path / "train_results.json").substr(0, 7) == "{\n    \"");
  CHECK(load_model(folder.path.string(), {}).report.missing.empty());
  const TrainerState again = TrainerState::from_file(folder.path / "trainer_state.json");
  CHECK(again.to_json() == read_file(folder.path / "trainer_state.json"));
  TrainerState moved = again;
  moved.best_model_checkpoint = "\xff/checkpoint-2";  // not valid UTF-8
  CHECK(moved.to_json().find("/checkpoint-2") != std::string::npos);
}

TEST_CASE("trainer: text files become rows, and the model's configuration has the label names") {
  const Folder folder;
  fs::create_directories(folder.path);
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder.path / name) << text;
  };
  write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nred\ngreen\nblue\n");
  BertConfig config = tiny(0);
  config.vocab_size = 8;
  write("config.json", config.to_json());
  BertForSequenceClassification model(config);
  model.initialize();
  model.save_pretrained(folder.path);
  write("train.tsv", "text\tlabel\nred green\tapple\nblue\tsky\nred\tapple\n");
  write("eval.tsv", "text\tlabel\nblue blue\tsky\n");
  TrainOptions options{.model = folder.path.string(),
                       .data = (folder.path / "train.tsv").string(),
                       .eval_data = (folder.path / "eval.tsv").string()};
  const ClassificationFiles files(options);
  const LoadedModel loaded = load_model(options.model, files.model_options());
  CHECK(nlohmann::json::parse(loaded.model->config_json())["id2label"]["1"] == "sky");
  auto loader = files.train(*loaded.model).loader({.batch_size = 3});
  const TensorDict batch = loader.begin()->as<TensorDict>();
  CHECK(at::equal(batch.at("input_ids"),
                  at::tensor({2, 5, 6, 3, 2, 7, 3, 0, 2, 5, 3, 0}, at::kLong).view({3, 4})));
  CHECK(at::equal(batch.at("labels"), at::tensor({0, 1, 0}, at::kLong)));
  write("eval.tsv", "text\tlabel\nblue\tsea\n");
  const ClassificationFiles wrong(options);
  CHECK_THROWS_AS(wrong.eval(*loaded.model), DataError);
}

namespace {

// A model whose labels have another name.
struct RenamedLabelsModel : BertForSequenceClassification {
  using BertForSequenceClassification::BertForSequenceClassification;
  ModelOutput forward(const TensorDict& batch) override {
    TensorDict known = batch;
    known["labels"] = batch.at("section");
    return BertForSequenceClassification::forward(known);
  }
};

}  // namespace

TEST_CASE("trainer: label_names names the column that loss and metrics use") {
  const Folder one, other;
  const auto model = new_model(0);
  Trainer plain(model, three_epochs(one), {.train_dataset = TrainerDataset(rows(16))});
  plain.train();

  torch::manual_seed(7);
  const auto renamed = std::make_shared<RenamedLabelsModel>(tiny(0));
  renamed->initialize();
  torch::manual_seed(11);
  const at::Tensor ids = at::randint(5, 60, {16, 12});
  const ColumnDataset columns({{"input_ids", ids},
                               {"attention_mask", at::ones_like(ids)},
                               {"section", ids.select(1, 0).gt(30).to(at::kLong)}});
  TrainingArguments args = three_epochs(other);
  args.label_names = {"section"};
  Trainer trainer(renamed, args,
                  {.train_dataset = TrainerDataset(columns),
                   .eval_dataset = TrainerDataset(columns),
                   .compute_metrics = std::make_shared<Accuracy>()});
  trainer.train();
  CHECK(logged(trainer) == logged(plain));
  CHECK(trainer.evaluate().count("eval_accuracy") == 1);
}

}  // namespace trainer_trainer_test
