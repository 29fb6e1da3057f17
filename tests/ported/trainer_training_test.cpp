// The training tests of transformers' tests/trainer (test_trainer.py, test_trainer_data.py,
// test_trainer_optimizers.py) that have a regression model, assert by assert. The comments name the
// tests; docs/reference/ported_tests.md says what is tested elsewhere.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "hasten/process/notebook_launcher.h"
#include "ported/regression_trainer.h"

namespace ported_trainer_training_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::ported;

namespace {

struct Weights {
  double a, b;
};

Weights weights_of(const RegressionModel& net) {
  return {net.a.item<double>(), net.b.item<double>()};
}

void check_close(const Weights& got, const Weights& expected) {
  CHECK(got.a == doctest::Approx(expected.a).epsilon(1e-5));
  CHECK(got.b == doctest::Approx(expected.b).epsilon(1e-5));
}

Weights trained(TrainingArguments args, TrainerParts parts = parts_of()) {
  const Folder folder;
  args.output_dir = folder.path.string();
  args.use_cpu = true;
  const auto net = line();
  Trainer(net, args, std::move(parts)).train();
  return weights_of(*net);
}

}  // namespace

TEST_CASE("training: one seed gives one model, and another seed another one") {
  // test_reproducible_training
  const Weights first = trained({.learning_rate = 0.1});
  const Weights other = trained({.learning_rate = 0.1, .seed = 314});
  check_close(trained({.learning_rate = 0.1}), first);
  check_close(trained({.learning_rate = 0.1, .seed = 314}), other);
  CHECK(first.a != other.a);
  CHECK(first.a > 0.5);  // towards y = 2 x + 3
  CHECK(first.b > 0.5);
}

TEST_CASE("training: a column that the model does not use changes nothing") {
  // test_trainer_with_datasets
  TrainerParts parts = parts_of();
  TensorDict more = columns().columns();
  more["extra"] = torch::randn({64});
  parts.train_dataset = TrainerDataset(ColumnDataset(more));
  check_close(trained({.learning_rate = 0.1}, parts), trained({.learning_rate = 0.1}));
}

TEST_CASE("training: half the batch, accumulated twice, gives the same model") {
  // test_gradient_accumulation
  check_close(trained({.per_device_train_batch_size = 4,
                       .gradient_accumulation_steps = 2,
                       .learning_rate = 0.1}),
              trained({.learning_rate = 0.1}));
}

TEST_CASE("training: train_loss is the mean of the losses, however often they are logged") {
  // test_training_loss
  const auto run = [](double logging_steps) {
    const Folder folder;
    TrainingArguments args = arguments_of(folder);
    args.logging_steps = logging_steps;
    Trainer trainer(line(), args, parts_of());
    trainer.train();
    return trainer.state().log_history;
  };
  const std::vector<LogEntry> even = run(8);
  double sum = 0;
  int logs = 0;
  for (const LogEntry& entry : even) {
    if (!entry.contains("loss")) continue;
    sum += entry.at("loss");
    ++logs;
  }
  CHECK(logs == 3);
  CHECK(sum / logs == doctest::Approx(even.back().at("train_loss")).epsilon(1e-5));
  CHECK(run(5).back().at("train_loss") ==
        doctest::Approx(even.back().at("train_loss")).epsilon(1e-5));
}

namespace {

// Returns the loss and its only other output by name.
struct DictModel : torch::nn::Module {
  TensorDict forward(const TensorDict& batch) {
    const at::Tensor y = net->forward(batch.at("input_x"));
    return {{"output", y}, {"loss", mse(y, batch.at("labels"))}};
  }
  std::shared_ptr<RegressionModel> net = register_module("net", line());
};

}  // namespace

TEST_CASE("training: a model may return its outputs by name") {
  // test_trainer_works_with_dict
  const Folder folder;
  TrainerParts parts = parts_of();
  parts.compute_loss = {};
  Trainer trainer(std::make_shared<DictModel>(), arguments_of(folder), parts);
  CHECK(trainer.train().global_step == 24);
  CHECK(trainer.evaluate().contains("eval_loss"));
  CHECK(trainer.predict(parts.eval_dataset).predictions.size(0) == 64);
}

TEST_CASE("training: a run leaves its arguments as they were") {
  // test_training_arguments_are_left_untouched
  const Folder folder;
  const TrainingArguments args = arguments_of(folder);
  Trainer trainer(line(), args, parts_of());
  trainer.train();
  CHECK(to_json(trainer.args()) == to_json(resolved(args)));
}

TEST_CASE("training: the number of steps follows epochs, which may be a fraction, or max_steps") {
  // test_number_of_steps_in_training, test_num_train_epochs_in_training
  const auto steps = [](TrainingArguments args) {
    const Folder folder;
    args.output_dir = folder.path.string();
    args.use_cpu = true;
    args.learning_rate = 0.1;
    return Trainer(line(), args, parts_of()).train().global_step;
  };
  CHECK(steps({}) == 24);
  CHECK(steps({.num_train_epochs = 1.5}) == 12);
  CHECK(steps({.max_steps = 10}) == 10);
  // An epoch that has fewer batches than a window is one step.
  TrainingArguments few{.per_device_train_batch_size = 16, .gradient_accumulation_steps = 5};
  CHECK(steps(few) == 3);
  few.max_steps = 3;
  CHECK(steps(few) == 3);
}

namespace {

struct StepCounter : Trainer {
  using Trainer::Trainer;
  at::Tensor training_step(AnyBatch& batch, double items) override {
    ++micro_batches;
    return Trainer::training_step(batch, items);
  }
  std::int64_t micro_batches = 0;
};

}  // namespace

TEST_CASE("training: every batch of an epoch is used, whatever the accumulation") {
  // test_num_batches_in_training_with_gradient_accumulation
  for (const int world : {1, 2}) {
    for (const int epochs : {1, 2}) {
      for (const std::int64_t rows : {123, 120}) {
        const Folder folder;
        debug_launcher(
            [&] {
              TrainingArguments args = arguments_of(folder);
              args.per_device_train_batch_size = 4;
              args.gradient_accumulation_steps = 5;
              args.num_train_epochs = epochs;
              args.save_strategy = SaveStrategy::no;
              StepCounter trainer(line(), args, parts_of(rows));
              trainer.train();
              const std::int64_t batches = (rows + 4 * world - 1) / (4 * world);
              require(trainer.micro_batches == batches * epochs,
                      str(trainer.micro_batches, " micro-batches of ", rows, " rows in ", epochs,
                          " epochs"));
            },
            world);
      }
    }
  }
}

TEST_CASE("training: the loaders have the sizes that the arguments say") {
  // test_train_and_eval_dataloaders. hasten drops the last rows of the training data only.
  const Folder folder;
  TrainingArguments args = arguments_of(folder);
  args.per_device_train_batch_size = 16;
  args.per_device_eval_batch_size = 32;
  const TrainerParts parts = parts_of(66, 74);
  Trainer trainer(line(), args, parts);
  CHECK(trainer.get_train_dataloader().batch_size() == 16);
  CHECK(trainer.get_eval_dataloader(parts.eval_dataset).batch_size() == 32);
  CHECK(trainer.get_train_dataloader().size() == 66 / 16 + 1);
  CHECK(trainer.get_eval_dataloader(parts.eval_dataset).size() == 74 / 32 + 1);
  args.dataloader_drop_last = true;
  Trainer dropping(line(), args, parts);
  CHECK(dropping.get_train_dataloader().size() == 66 / 16);
  CHECK(dropping.get_eval_dataloader(parts.eval_dataset).size() == 74 / 32 + 1);
  CHECK(dropping.get_eval_dataloader(TrainerDataset(columns(128))).size() == 128 / 32);
}

namespace {

// Returns the rows as a stream. It has a size, because the Trainer needs it.
struct RegressionStream {
  explicit RegressionStream(std::int64_t length) : rows(columns(length)) {}
  std::int64_t size() const { return rows.size(); }
  std::optional<TensorDict> next() {
    if (at == rows.size()) return std::nullopt;
    TensorDict row = rows.get(at++);
    row["extra"] = row.at("labels");  // no model uses it
    return row;
  }
  void rewind(std::int64_t) { at = 0; }
  ColumnDataset rows;
  std::int64_t at = 0;
};

}  // namespace

TEST_CASE("training: a stream is trained on, scored and predicted") {
  // test_training_iterable_dataset, test_evaluation_iterable_dataset, test_predict_iterable_dataset
  const Folder folder;
  TrainingArguments args = arguments_of(folder);
  args.max_steps = 4;
  args.train_sampling_strategy = SamplingStrategy::sequential;
  TrainerParts parts = parts_of();
  parts.train_dataset = TrainerDataset(RegressionStream(64));
  parts.compute_metrics = almost_accuracy_metric();
  const auto net = line();
  Trainer training(net, args, parts);
  CHECK(training.train().global_step == 4);
  CHECK(net->b.item<double>() > 0);

  Trainer trainer(line(1.5, 2.5), args, parts);
  for (const std::int64_t length : {64, 66}) {
    CAPTURE(length);
    const TrainerDataset stream{RegressionStream(length)};
    const TensorDict rows = columns(length).columns();
    const at::Tensor expected = 1.5 * rows.at("input_x") + 2.5;
    const Metrics scores = trainer.evaluate(stream);
    CHECK(scores.at("eval_loss") ==
          doctest::Approx(mse(expected, rows.at("labels")).item<double>()).epsilon(1e-5));
    CHECK(scores.at("eval_accuracy") ==
          doctest::Approx(almost_accuracy(expected, rows.at("labels"))));
    CHECK(at::allclose(trainer.predict(stream).predictions, expected));
  }
}

namespace {

// Creates the optimizer and the schedule of a run of 10 steps with 2 steps of warm-up. Returns the
// learning rates of the steps and the learning rate after the last step.
std::vector<double> learning_rates(SchedulerType type, const Kwargs& kwargs) {
  const Folder folder;
  TrainingArguments args = arguments_of(folder);
  args.lr_scheduler_type = type;
  args.lr_scheduler_kwargs = kwargs;
  args.learning_rate = 0.2;
  args.warmup_steps = 2;
  Trainer trainer(line(), args, parts_of());
  const auto optimizer = trainer.create_optimizer();
  const auto scheduler = trainer.create_scheduler(*optimizer, 10);
  std::vector<double> rates = {scheduler->get_last_lr().front()};
  for (int step = 0; step < 10; ++step) {
    scheduler->step();
    rates.push_back(scheduler->get_last_lr().front());
  }
  return rates;
}

}  // namespace

TEST_CASE("training: a schedule gets its keyword arguments") {
  // test_lr_scheduler_kwargs, test_cosine_with_min_lr_scheduler,
  // test_cosine_with_min_lr_schedule_with_warmup_lr_rate
  const std::vector<double> polynomial =
      learning_rates(SchedulerType::polynomial, {{"power", 5.0}, {"lr_end", 1e-5}});
  for (std::size_t step = 2; step <= 10; ++step) {
    const double left = 1 - (static_cast<double>(step) - 2) / 8;
    CHECK(polynomial[step] == doctest::Approx((0.2 - 1e-5) * std::pow(left, 5) + 1e-5));
  }
  CHECK(learning_rates(SchedulerType::cosine_with_min_lr, {{"min_lr", 1e-5}}).back() ==
        doctest::Approx(1e-5));
  const std::vector<double> warm =
      learning_rates(SchedulerType::cosine_warmup_with_min_lr, {{"min_lr", 1e-5}});
  CHECK(warm[0] == doctest::Approx(0.1));
  CHECK(warm[1] == doctest::Approx(0.2));
  CHECK(warm[9] == doctest::Approx(1e-5));
}

namespace {

struct TstLayer : torch::nn::Module {
  TstLayer() {
    register_module("linear1", torch::nn::Linear(4, 4));
    register_module("ln1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})));
    register_module("linear2", torch::nn::Linear(4, 4));
    register_module("ln2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})));
    register_parameter("bias", torch::zeros({4}));
  }
};

struct TwoLayers : torch::nn::Module {
  TwoLayers() {
    register_module("0", std::make_shared<TstLayer>());
    register_module("1", std::make_shared<TstLayer>());
  }
  at::Tensor forward(const at::Tensor& x) { return x; }
};

}  // namespace

TEST_CASE("training: biases and norms are in a group without weight decay") {
  // test_no_wd_param_group, test_get_optimizer_group, test_get_learning_rates
  const Folder folder;
  const auto net = std::make_shared<TwoLayers>();
  TrainerParts parts = parts_of();
  parts.compute_loss = [](TwoLayers& net, const TensorDict& batch) {
    return net.forward(batch.at("input_x"));
  };
  TrainingArguments args = arguments_of(folder);
  args.weight_decay = 0.1;
  Trainer trainer(net, args, parts);
  const auto optimizer = trainer.create_optimizer();
  REQUIRE(optimizer->param_groups().size() == 2);
  std::vector<at::Tensor> decay, no_decay;
  for (const auto& parameter : net->named_parameters()) {
    const std::string& name = parameter.key();
    const bool is_matrix = name.find("linear") != std::string::npos && name.ends_with("weight");
    (is_matrix ? decay : no_decay).push_back(parameter.value());
  }
  CHECK(decay.size() == 4);
  const auto check_group = [&](std::size_t group, const std::vector<at::Tensor>& expected) {
    const std::vector<at::Tensor>& got = optimizer->param_groups()[group].params();
    REQUIRE(got.size() == expected.size());
    const auto is_same = [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); };
    CHECK(std::is_permutation(got.begin(), got.end(), expected.begin(), is_same));
    CHECK(optimizer->param_groups()[group].options().get_lr() == 5e-5);
  };
  check_group(0, decay);
  check_group(1, no_decay);
}

TEST_CASE("training: input tokens are counted, with and without padding") {
  // test_include_num_input_tokens_seen
  const auto counted = [](CountTokens what, bool with_mask) {
    const Folder folder;
    TrainingArguments args = arguments_of(folder);
    args.per_device_train_batch_size = 2;
    args.max_steps = 1;
    args.save_strategy = SaveStrategy::no;
    args.include_num_input_tokens_seen = what;
    TensorDict two = tiny_runs::rows(2).columns();
    two["input_ids"].slice(1, 7).select(0, 0).zero_();
    two["attention_mask"].slice(1, 7).select(0, 0).zero_();
    if (!with_mask) two.erase("attention_mask");
    Trainer trainer(
        tiny_runs::new_model(), args,
        {.train_dataset = TrainerDataset(ColumnDataset(two)), .log_sink = [](std::string_view) {}});
    trainer.train();
    return trainer.state().num_input_tokens_seen;
  };
  CHECK(counted(CountTokens::non_padding, true) == 19);
  // Without a mask the model sees every token.
  CHECK(counted(CountTokens::non_padding, false) == 24);
  CHECK(counted(CountTokens::all, true) == 24);
}

namespace {

constexpr std::int64_t kLabels = 12;

// Returns the logits that the batch contains.
struct GivenLogits : torch::nn::Module {
  ModelOutput forward(const TensorDict& batch) {
    const at::Tensor& logits = batch.at("logits");
    return {.loss = torch::nn::functional::cross_entropy(logits.view({-1, kLabels}),
                                                         batch.at("labels").view(-1)),
            .logits = logits};
  }
  at::Tensor weight = register_parameter("weight", torch::ones({}));
};

}  // namespace

TEST_CASE("training: label smoothing has the formula of the Hugging Face Trainer") {
  // test_label_smoothing
  constexpr double kEpsilon = 0.1;
  torch::manual_seed(1);
  const at::Tensor logits = torch::randn({4, 5, kLabels});
  const at::Tensor labels = torch::randint(0, kLabels, {4, 5});
  const Folder folder;
  TrainingArguments args = arguments_of(folder);
  args.label_smoothing_factor = kEpsilon;
  Trainer trainer(std::make_shared<GivenLogits>(), args, {});
  const auto check = [&] {
    const at::Tensor valid = labels.ne(-100);
    const at::Tensor loss =
        torch::nn::functional::cross_entropy(logits.view({-1, kLabels}), labels.view(-1));
    const at::Tensor unlikely = -torch::log_softmax(logits, -1) * valid.unsqueeze(-1);
    const at::Tensor expected =
        (1 - kEpsilon) * loss +
        kEpsilon * unlikely.sum() / static_cast<double>(kLabels * valid.sum().item<std::int64_t>());
    AnyBatch batch(TensorDict{{"logits", logits}, {"labels", labels}});
    CHECK(trainer.compute_loss(batch).loss.item<double>() ==
          doctest::Approx(expected.item<double>()).epsilon(1e-5));
  };
  check();
  labels[0][1] = labels[2][1] = labels[2][3] = -100;
  check();
}

}  // namespace ported_trainer_training_test
