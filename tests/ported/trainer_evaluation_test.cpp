// Tests of transformers' tests/trainer, assert by assert: test_trainer_evaluation.py, the dynamic
// shapes in test_trainer_data.py, and the collection of predictions in test_trainer_utils.py. The
// comments name the tests.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <memory>
#include <string_view>
#include <vector>

#include "hasten/process/notebook_launcher.h"
#include "ported/regression_trainer.h"
#include "unit/code_of.h"

namespace ported_trainer_evaluation_test {

using namespace hasten;
using namespace hasten::ported;

namespace {

// Adds up the counts of each batch instead of keeping all predictions.
struct BatchedAlmostAccuracy : EvalMetric {
  void reset() override { good = rows = 0; }
  void add(const at::Tensor& logits, const at::Tensor& labels) override {
    const auto count = static_cast<double>(labels.size(0));
    good += count * almost_accuracy(logits, labels);
    rows += count;
  }
  Metrics compute() const override { return {{"accuracy", good / rows}}; }
  double good = 0, rows = 0;
};

// Does what preprocess_logits_for_metrics=lambda logits, labels: logits + 1 does.
struct ShiftingTrainer : Trainer {
  using Trainer::Trainer;
  ModelOutput prediction_step(AnyBatch& batch) override {
    ModelOutput out = Trainer::prediction_step(batch);
    out.logits = out.logits + 1;
    return out;
  }
};

// Compares the losses of prediction_step and of training_step in a run.
struct ParityTrainer : Trainer {
  using Trainer::Trainer;
  at::Tensor training_step(AnyBatch& batch, double items) override {
    const double predicted = prediction_step(batch).loss.item<double>();
    const at::Tensor loss = Trainer::training_step(batch, items);
    CHECK(loss.item<double>() == doctest::Approx(predicted).epsilon(1e-6));
    ++steps;
    return loss;
  }
  int steps = 0;
};

struct Expected {
  explicit Expected(std::int64_t length) {
    const TensorDict rows = columns(length).columns();
    labels = rows.at("labels");
    predictions = 1.5 * rows.at("input_x") + 2.5;
    loss = mse(predictions, labels).item<double>();
  }
  at::Tensor labels, predictions;
  double loss = 0;
};

void check_scores(const Metrics& metrics, const std::string& prefix, const Expected& expected,
                  double shift = 0) {
  CHECK(metrics.at(prefix + "_loss") == doctest::Approx(expected.loss).epsilon(1e-5));
  CHECK(metrics.at(prefix + "_accuracy") ==
        doctest::Approx(almost_accuracy(expected.predictions + shift, expected.labels)));
}

}  // namespace

TEST_CASE("evaluation: loss and metric are those of all rows, for any number of rows") {
  // test_evaluate, test_evaluate_with_batch_eval_metrics
  const Folder folder;
  const TrainingArguments args = arguments_of(folder);
  for (const std::shared_ptr<EvalMetric>& metric :
       {almost_accuracy_metric(), std::shared_ptr<EvalMetric>(new BatchedAlmostAccuracy)}) {
    for (const std::int64_t length : {64, 66}) {
      CAPTURE(length);
      const Expected expected(length);
      TrainerParts parts = parts_of(64, length);
      parts.compute_metrics = metric;
      check_scores(Trainer(line(1.5, 2.5), args, parts).evaluate(), "eval", expected);
      check_scores(ShiftingTrainer(line(1.5, 2.5), args, parts).evaluate(), "eval", expected, 1);
    }
  }
}

TEST_CASE("evaluation: predictions and labels are those of all rows, in order") {
  // test_predict, test_predict_with_batch_eval_metrics
  const Folder folder;
  for (const std::int64_t length : {64, 66}) {
    CAPTURE(length);
    const Expected expected(length);
    TrainerParts parts = parts_of(64, length);
    parts.compute_metrics = std::make_shared<BatchedAlmostAccuracy>();
    Trainer trainer(line(1.5, 2.5), arguments_of(folder), parts);
    const PredictionOutput out = trainer.predict(parts.eval_dataset);
    CHECK(at::allclose(out.predictions, expected.predictions));
    CHECK(at::equal(out.label_ids, expected.labels));
    check_scores(out.metrics, "test", expected);
  }
}

TEST_CASE("evaluation: a batch has one loss, in training and in prediction") {
  // test_train_and_predict_loss_parity
  const Folder folder;
  TrainingArguments args = arguments_of(folder);
  args.learning_rate = 0.1;
  ParityTrainer trainer(line(1.5, 2.5), args, parts_of());
  trainer.train();
  CHECK(trainer.steps == 24);
  AnyBatch batch(columns(8).columns());
  CHECK(code_of([&] { trainer.Trainer::training_step(batch, 8); }) == "trainer.no-run");
}

namespace {

// Each group of eight consecutive rows has one length.
struct DynamicShapes {
  std::int64_t size() const { return 64; }
  TensorDict get(std::int64_t row) const {
    torch::Generator random = at::detail::createCPUGenerator(static_cast<std::uint64_t>(row));
    const std::int64_t length = 1 + row / 8 * 5 % 19;
    return {{"input_x", torch::randn({length}, random)},
            {"labels", torch::randn({length}, random)}};
  }
};

}  // namespace

TEST_CASE("evaluation: batches of different lengths are padded with -100") {
  // test_dynamic_shapes
  for (const std::optional<std::int64_t> accumulated :
       {std::optional<std::int64_t>(), std::optional<std::int64_t>(2)}) {
    const Folder folder;
    TrainingArguments args = arguments_of(folder);
    args.eval_accumulation_steps = accumulated;
    TrainerParts parts = parts_of();
    parts.eval_dataset = TrainerDataset(DynamicShapes());
    Trainer trainer(line(2, 1), args, parts);
    CHECK(trainer.evaluate().contains("eval_loss"));
    const PredictionOutput out = trainer.predict(parts.eval_dataset);
    const auto check_row = [](const at::Tensor& seen, const at::Tensor& expected) {
      CHECK(at::allclose(seen.narrow(0, 0, expected.size(0)), expected));
      CHECK(seen.slice(0, expected.size(0)).eq(-100).all().item<bool>());
    };
    REQUIRE(out.predictions.size(0) == 64);
    for (std::int64_t row = 0; row < 64; ++row) {
      CAPTURE(row);
      const TensorDict expected = DynamicShapes().get(row);
      check_row(out.label_ids[row], expected.at("labels"));
      check_row(out.predictions[row], 2 * expected.at("input_x") + 1);
    }
  }
}

namespace {

// Returns the columns of the batch except the labels as outputs, and the number of calls so far.
struct Echo : torch::nn::Module {
  ModelOutput forward(const TensorDict& batch) {
    ModelOutput out;
    for (const auto& [name, column] : batch) {
      if (name != "labels") out.others[name] = column;
    }
    out.others["call"] = at::scalar_tensor(++calls, at::kFloat);
    return out;
  }
  int calls = 0;
};

// Has 12 rows; the last four have a longer column.
struct Outputs {
  std::int64_t size() const { return rows; }
  TensorDict get(std::int64_t row) const {
    return {{"flat", at::ones({5})},
            {"cube", at::ones({2, 3})},
            {"padded", at::ones({row < 8 ? 2 : 6})}};
  }
  std::int64_t rows = 12;
};

}  // namespace

TEST_CASE("evaluation: outputs of several shapes and one number per batch are concatenated") {
  // test_eval_loop_container, test_pad_and_concatenate_with_1d
  const Folder folder;
  Trainer trainer(std::make_shared<Echo>(), arguments_of(folder), {});
  TensorDict out = trainer.predict(TrainerDataset(Outputs())).other_predictions;
  CHECK(out.at("flat").sizes() == at::IntArrayRef{12, 5});
  CHECK(out.at("cube").sizes() == at::IntArrayRef{12, 2, 3});
  CHECK(out.at("padded").sizes() == at::IntArrayRef{12, 6});
  CHECK(out.at("padded")[0][2].item<float>() == -100);
  CHECK(out.at("padded")[8].eq(1).all().item<bool>());
  // In the Python test, the container has one number for each of two batches. In hasten, each row
  // has the number of its batch.
  CHECK(at::equal(out.at("call"), at::cat({at::ones({8}), at::full({4}, 2)})));
  // A dataset of one batch, and an empty one.
  out = trainer.predict(TrainerDataset(Outputs{8})).other_predictions;
  CHECK(out.at("flat").sizes() == at::IntArrayRef{8, 5});
  CHECK(out.at("padded").sizes() == at::IntArrayRef{8, 2});
  CHECK(out.at("call").sizes() == at::IntArrayRef{8});
  CHECK(code_of([&] { trainer.predict(TrainerDataset(Outputs{0})); }) == "data.empty");
}

namespace {

// The predictions of 21 rows: eight of length 8, eight of length 10 and five of length 13.
struct Predictions {
  std::int64_t size() const { return 21; }
  TensorDict get(std::int64_t row) const {
    const at::Tensor all = values()[row];
    return {{"all", all},
            {"nested", all.repeat({2, 1})},
            {"shorter", all.slice(0, 0, length(row))},
            {"labels", all.slice(0, 0, length(row))}};
  }
  static std::int64_t length(std::int64_t row) { return row < 8 ? 8 : row < 16 ? 10 : 13; }
  static at::Tensor values() {
    torch::Generator random = at::detail::createCPUGenerator(3);
    return torch::randn({21, 13}, random);
  }
};

}  // namespace

TEST_CASE("evaluation: four processes have the predictions of all rows, in order and padded") {
  // test_distributed_tensor_gatherer, test_distributed_tensor_gatherer_different_shapes
  const Folder folder;
  notebook_launcher(
      [&] {
        TrainingArguments args = arguments_of(folder);
        args.per_device_eval_batch_size = 1;  // the row that fills up a step has a different length
        Trainer trainer(std::make_shared<Echo>(), args, {.log_sink = [](std::string_view) {}});
        const PredictionOutput out = trainer.predict(TrainerDataset(Predictions()));
        const at::Tensor expected = Predictions::values();
        multiprocess_checks::require(at::equal(out.other_predictions.at("all"), expected), "all");
        multiprocess_checks::require(
            at::equal(out.other_predictions.at("nested"), at::stack({expected, expected}, 1)),
            "nested");
        multiprocess_checks::require(out.other_predictions.at("call").size(0) == 21,
                                     "the numbers of batches");
        for (const at::Tensor& padded : {out.other_predictions.at("shorter"), out.label_ids}) {
          for (std::int64_t row = 0; row < 21; ++row) {
            const std::int64_t length = Predictions::length(row);
            multiprocess_checks::require(
                at::equal(padded[row].slice(0, 0, length), expected[row].slice(0, 0, length)),
                str("row ", row));
            multiprocess_checks::require(padded[row].slice(0, length).eq(-100).all().item<bool>(),
                                         str("the padding of row ", row));
          }
        }
      },
      {.num_processes = 4});
}

}  // namespace ported_trainer_evaluation_test
