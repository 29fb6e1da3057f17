// Models with several outputs, and data with several label columns: what predictions return, what
// metrics get, and what ignore_keys leaves out.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <string>

#include "hasten/base/text.h"
#include "hasten/data/column_dataset.h"
#include "hasten/metrics/classification.h"
#include "hasten/models/gpt2.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/trainer.h"
#include "unit/data/error_of.h"
#include "unit/prepare/multiprocess_checks.h"
#include "unit/trainer/tiny.h"

namespace trainer_outputs_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::tiny_runs;

namespace {

// Finds the first and the last token of an answer, as in question answering.
struct SpanFinder : torch::nn::Module {
  SpanFinder() : weight(register_parameter("weight", at::tensor({0.5, -0.25}, at::kFloat))) {}

  ModelOutput forward(const TensorDict& batch) {
    const at::Tensor x = batch.at("x");
    TensorDict others = {{"start_logits", x * weight[0]}, {"end_logits", x * weight[1]}};
    at::Tensor loss;
    if (batch.contains("start") && batch.contains("end"))
      loss = at::cross_entropy_loss(others["start_logits"], batch.at("start")) +
             at::cross_entropy_loss(others["end_logits"], batch.at("end"));
    if (has_logits) return {.loss = loss, .logits = x + 1, .others = others};
    return {.loss = loss, .others = others};
  }

  at::Tensor weight;
  bool has_logits = false;
};

ColumnDataset spans(std::int64_t count) {
  torch::manual_seed(5);
  return ColumnDataset({{"x", at::randn({count, 6})},
                        {"start", at::randint(6, {count})},
                        {"end", at::randint(6, {count})}});
}

TrainingArguments span_arguments(const Folder& folder) {
  TrainingArguments args = short_run(folder.path);
  args.per_device_eval_batch_size = 4;
  args.label_names = {"start", "end"};
  args.max_steps = 3;
  return args;
}

// The share of rows with the right first and last token.
std::shared_ptr<EvalMetric> exact_match() {
  return metric_from_function([](const EvalPrediction& all) -> Metrics {
    const auto right = [&](const char* logits, const char* labels) {
      return all.other_predictions.at(logits).argmax(1).eq(all.labels.at(labels));
    };
    return {{"exact", right("start_logits", "start")
                          .logical_and(right("end_logits", "end"))
                          .to(at::kDouble)
                          .mean()
                          .item<double>()},
            {"rows", static_cast<double>(all.labels.at("end").size(0))}};
  });
}

}  // namespace

TEST_CASE("trainer outputs: a prediction has every output and every label column by name") {
  const Folder folder;
  const auto model = std::make_shared<SpanFinder>();
  Trainer trainer(model, span_arguments(folder), {.compute_metrics = exact_match()});
  const ColumnDataset data = spans(10);
  const PredictionOutput out = trainer.predict(TrainerDataset(data));
  const at::Tensor x = data.columns().at("x");
  CHECK(!out.predictions.defined());
  CHECK(out.other_predictions.size() == 2);
  CHECK(at::allclose(out.other_predictions.at("start_logits"), x * 0.5));
  CHECK(at::allclose(out.other_predictions.at("end_logits"), x * -0.25));
  CHECK(at::equal(out.labels.at("start"), data.columns().at("start")));
  CHECK(at::equal(out.labels.at("end"), data.columns().at("end")));
  CHECK(at::equal(out.label_ids, data.columns().at("start")));
  CHECK(out.metrics.at("test_rows") == 10);
  const Metrics scores = trainer.evaluate(TrainerDataset(data));
  CHECK(scores.at("eval_exact") == out.metrics.at("test_exact"));
  CHECK(scores.at("eval_loss") == doctest::Approx(out.metrics.at("test_loss")));
}

TEST_CASE("trainer outputs: ignore_keys leaves outputs out") {
  const Folder folder;
  const auto model = std::make_shared<SpanFinder>();
  model->has_logits = true;
  Trainer trainer(model, span_arguments(folder), {});
  const ColumnDataset data = spans(5);
  const PredictionOutput all = trainer.predict(TrainerDataset(data));
  CHECK(all.other_predictions.size() == 2);
  CHECK(at::allclose(all.predictions, data.columns().at("x") + 1));
  const PredictionOutput some = trainer.predict(TrainerDataset(data), "test", {"end_logits"});
  CHECK(some.other_predictions.size() == 1);
  CHECK(some.other_predictions.contains("start_logits"));
  // If only one output is left, it is the prediction, because the Hugging Face Trainer returns no
  // tuple then.
  const PredictionOutput one =
      trainer.predict(TrainerDataset(data), "test", {"end_logits", "logits"});
  CHECK(one.other_predictions.empty());
  CHECK(at::allclose(one.predictions, data.columns().at("x") * 0.5));
}

TEST_CASE("trainer outputs: train() leaves outputs out of its evaluations") {
  struct OutputNamesMetric : EvalMetric {
    void reset() override {}
    void add(const at::Tensor&, const at::Tensor&) override {}
    void add_outputs(const EvalPrediction& batch) override {
      names.clear();
      for (const auto& [name, tensor] : batch.other_predictions) names += name + " ";
    }
    Metrics compute() const override { return {}; }
    std::string names;
  };
  const Folder folder;
  TrainingArguments args = span_arguments(folder);
  args.eval_strategy = IntervalStrategy::epoch;
  const auto model = std::make_shared<SpanFinder>();
  model->has_logits = true;
  const auto metric = std::make_shared<OutputNamesMetric>();
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(spans(8)),
                   .eval_dataset = TrainerDataset(spans(4)),
                   .compute_metrics = metric});
  trainer.train({"start_logits"});
  CHECK(metric->names == "end_logits ");
  trainer.evaluate();
  CHECK(metric->names == "end_logits start_logits ");
  CHECK(logged(trainer).size() == 3);  // the labels of both columns give a loss
}

TEST_CASE("trainer outputs: labels are used only if every label column is present") {
  const Folder folder;
  Trainer trainer(std::make_shared<SpanFinder>(), span_arguments(folder),
                  {.compute_metrics = exact_match()});
  TensorDict columns = spans(5).columns();
  columns.erase("end");
  const PredictionOutput out = trainer.predict(TrainerDataset(ColumnDataset(columns)));
  CHECK(out.labels.empty());
  CHECK(!out.label_ids.defined());
  CHECK(!out.metrics.contains("test_exact"));
  CHECK(out.other_predictions.size() == 2);
  const Metrics scores = trainer.evaluate(TrainerDataset(ColumnDataset(columns)));
  CHECK(!scores.contains("eval_exact"));
  CHECK(scores.contains("eval_runtime"));
}

TEST_CASE("trainer outputs: a metric of logits and labels says what it lacks") {
  const Folder folder;
  const auto model = std::make_shared<SpanFinder>();
  Trainer trainer(model, span_arguments(folder), {.compute_metrics = std::make_shared<Accuracy>()});
  const auto error = [&] { return error_of([&] { trainer.evaluate(TrainerDataset(spans(4))); }); };
  CHECK(contains(error(), "metrics.outputs | a metric of logits and labels: got outputs without"));
  model->has_logits = true;
  CHECK(contains(error(), "got several label columns, expected logits, and one column of labels"));
  CHECK(contains(error(), "add_outputs"));
}

TEST_CASE("trainer outputs: a base model predicts its hidden states") {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.label_names = {"labels"};
  TensorDict columns = rows(5).columns();
  columns.erase("labels");
  const TrainerDataset data{ColumnDataset(columns)};
  Trainer base(new_model<BertModel>(0), args, {});
  const PredictionOutput out = base.predict(data);
  CHECK(out.other_predictions.at("last_hidden_state").sizes() == at::IntArrayRef({5, 12, 16}));
  CHECK(out.other_predictions.at("pooler_output").sizes() == at::IntArrayRef({5, 16}));
  // A model with logits returns no other outputs.
  Trainer classifier(new_model(0), args, {});
  CHECK(classifier.predict(data).other_predictions.empty());
}

TEST_CASE("trainer outputs: evaluate and predict score a language model alike") {
  const Folder folder;
  GPT2Config config;
  config.vocab_size = 7;
  config.n_embd = 8;
  config.n_layer = config.n_head = 1;
  config.n_positions = 8;
  torch::manual_seed(2);
  const auto model = std::make_shared<GPT2LMHeadModel>(config);
  model->initialize();
  const at::Tensor ids = at::randint(7, {9, 6});
  const TrainerDataset data(ColumnDataset({{"input_ids", ids}, {"labels", ids}}));
  TrainingArguments args = short_run(folder.path);
  args.per_device_eval_batch_size = 4;
  // The logits of a token predict the token after it. Only the accuracy gets aligned labels.
  const auto function = metric_from_function([](const EvalPrediction& all) -> Metrics {
    const at::Tensor right = all.predictions.argmax(-1).eq(all.label_ids);
    return {{"right", right.sum().item<double>()},
            {"unused", all.label_ids.eq(-100).sum().item<double>()}};
  });
  const auto metric = combine_metrics({std::make_shared<Accuracy>(), function});
  Trainer trainer(std::shared_ptr<PreTrainedModel>(model), args, {.compute_metrics = metric});
  const Metrics evaluated = trainer.evaluate(data);
  const PredictionOutput predicted = trainer.predict(data);
  CHECK(evaluated.at("eval_unused") == 0);
  CHECK(predicted.metrics.at("test_accuracy") == evaluated.at("eval_accuracy"));
  CHECK(predicted.metrics.at("test_right") == evaluated.at("eval_right"));
  CHECK(predicted.metrics.at("test_unused") == evaluated.at("eval_unused"));
  CHECK(at::equal(predicted.label_ids, ids));
}

TEST_CASE("trainer outputs: every process gets the predictions of all rows") {
  const Folder folder;
  TrainingArguments args = span_arguments(folder);
  const ColumnDataset data = spans(11);
  PredictionOutput expected;
  Metrics scores;
  {
    Trainer alone(std::make_shared<SpanFinder>(), args, {.compute_metrics = exact_match()});
    expected = alone.predict(TrainerDataset(data));
    scores = alone.evaluate(TrainerDataset(data));
  }
  args.per_device_eval_batch_size = 2;
  notebook_launcher(
      [&] {
        Trainer trainer(std::make_shared<SpanFinder>(), args, {.compute_metrics = exact_match()});
        const PredictionOutput out = trainer.predict(TrainerDataset(data));
        for (const auto& [name, tensor] : expected.other_predictions)
          require(at::allclose(out.other_predictions.at(name), tensor), name);
        for (const auto& [name, tensor] : expected.labels)
          require(at::equal(out.labels.at(name), tensor), name);
        const Metrics own = trainer.evaluate(TrainerDataset(data));
        require(own.at("eval_exact") == scores.at("eval_exact"), "another score");
        require(own.at("eval_rows") == 11, str(own.at("eval_rows"), " rows"));
      },
      {.num_processes = 2});
}

}  // namespace trainer_outputs_test
