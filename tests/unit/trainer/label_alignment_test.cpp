// A metric gets the labels of the data, or each label at the position of the logits that predict
// it, if it needs that.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <memory>

#include "hasten/metrics/classification.h"
#include "hasten/models/gpt2.h"
#include "hasten/trainer/trainer.h"
#include "unit/trainer/tiny.h"

namespace trainer_label_alignment_test {

using namespace hasten;
using namespace hasten::tiny_runs;

namespace {

// Rows of equal length, whose labels are the ids.
ColumnDataset texts() {
  torch::manual_seed(11);
  const at::Tensor ids = at::randint(5, 60, {10, 12});
  return ColumnDataset(
      {{"input_ids", ids}, {"attention_mask", at::ones_like(ids)}, {"labels", ids.clone()}});
}

std::shared_ptr<PreTrainedModel> decoder() {
  torch::manual_seed(7);
  auto model = std::make_shared<GPT2LMHeadModel>(
      GPT2Config{.vocab_size = 60, .n_positions = 16, .n_embd = 16, .n_layer = 1, .n_head = 2});
  model->initialize();
  return model;
}

struct Scores {
  Metrics evaluated, predicted;
  at::Tensor label_ids;
};

// The scores of evaluate() and predict() in batches of 4 rows.
Scores scores_with(const std::shared_ptr<EvalMetric>& metric,
                   const std::shared_ptr<PreTrainedModel>& model = decoder()) {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.per_device_eval_batch_size = 4;
  Trainer trainer(model, args, {.compute_metrics = metric, .log_sink = [](std::string_view) {}});
  const TrainerDataset data(texts());
  Scores scores;
  scores.evaluated = trainer.evaluate(data);
  PredictionOutput out = trainer.predict(data);
  scores.predicted = out.metrics;
  scores.label_ids = out.label_ids;
  return scores;
}

}  // namespace

TEST_CASE("label alignment: both forms of the perplexity are exp of a decoder's loss") {
  for (const bool next_token : {false, true}) {
    CAPTURE(next_token);
    const Scores scores = scores_with(std::make_shared<Perplexity>(next_token));
    const double expected = std::exp(scores.evaluated.at("eval_loss"));
    CHECK(scores.evaluated.at("eval_perplexity") == doctest::Approx(expected).epsilon(1e-5));
    CHECK(scores.predicted.at("test_perplexity") == doctest::Approx(expected).epsilon(1e-5));
  }
}

TEST_CASE("label alignment: a function gets the labels of the data, also in a combination") {
  const at::Tensor labels = texts().columns().at("labels");
  const auto untouched = metric_from_function([&](const EvalPrediction& all) -> Metrics {
    return {{"untouched", at::equal(all.label_ids, labels) ? 1.0 : 0.0}};
  });
  const auto model = decoder();
  const Scores scores = scores_with(
      combine_metrics({std::make_shared<Accuracy>(),
                       combine_metrics({std::make_shared<Perplexity>(true)}), untouched}),
      model);
  CHECK(scores.evaluated.at("eval_untouched") == 1);
  CHECK(scores.predicted.at("test_untouched") == 1);
  CHECK(at::equal(scores.label_ids, labels));
  CHECK(scores.evaluated.at("eval_perplexity") ==
        doctest::Approx(std::exp(scores.evaluated.at("eval_loss"))).epsilon(1e-5));

  model->eval();
  const torch::NoGradGuard no_grad;
  const at::Tensor predicted = model->forward(texts().columns()).logits.argmax(-1);
  const double expected =
      predicted.slice(1, 0, -1).eq(labels.slice(1, 1)).to(at::kDouble).mean().item<double>();
  CHECK(scores.evaluated.at("eval_accuracy") == doctest::Approx(expected));
  CHECK(scores.predicted.at("test_accuracy") == doctest::Approx(expected));
}

TEST_CASE("label alignment: a metric of a program's own chooses the labels that it gets") {
  struct FirstLabel : EvalMetric {
    explicit FirstLabel(bool aligned) : aligned(aligned) {}
    void reset() override { first = last = 0; }
    void add(const at::Tensor&, const at::Tensor& labels) override {
      first = static_cast<double>(labels[0][0].item<std::int64_t>());
      last = static_cast<double>(labels[0][-1].item<std::int64_t>());
    }
    Metrics compute() const override { return {{"first", first}, {"last", last}}; }
    bool needs_aligned_labels() const override { return aligned; }
    bool aligned;
    double first = 0, last = 0;
  };
  // The metric keeps the first row of the last batch that it has got.
  const at::Tensor row = texts().columns().at("labels")[8];
  const auto label = [&](std::int64_t place) {
    return static_cast<double>(row[place].item<std::int64_t>());
  };
  const Scores plain = scores_with(std::make_shared<FirstLabel>(false));
  CHECK(plain.evaluated.at("eval_first") == label(0));
  CHECK(plain.evaluated.at("eval_last") == label(11));
  const Scores aligned = scores_with(std::make_shared<FirstLabel>(true));
  CHECK(aligned.evaluated.at("eval_first") == label(1));
  CHECK(aligned.evaluated.at("eval_last") == -100);
}

}  // namespace trainer_label_alignment_test
