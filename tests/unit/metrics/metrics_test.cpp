#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/metrics/classification.h"
#include "hasten/metrics/entities.h"
#include "hasten/metrics/regression.h"

namespace metrics_metrics_test {

using namespace hasten;

namespace {

template <class Call>
std::string error_code(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return "no error";
}

}  // namespace

TEST_CASE("metrics: counts of two processes add up to those of all rows") {
  torch::manual_seed(1);
  const at::Tensor logits = torch::randn({30, 4});
  const at::Tensor labels = torch::randint(4, {30}, at::kLong);
  const auto make = [] {
    return combine_metrics({std::make_shared<Accuracy>(), std::make_shared<TopKAccuracy>(2),
                            std::make_shared<PrecisionRecallF1>(4),
                            std::make_shared<Perplexity>()});
  };
  const auto whole = make(), first = make(), second = make();
  whole->add(logits, labels);
  first->add(logits.slice(0, 0, 11), labels.slice(0, 0, 11));
  second->add(logits.slice(0, 11), labels.slice(0, 11));
  const auto to = first->counts(), from = second->counts();
  REQUIRE(to.size() == from.size());
  CHECK(to.size() == 2 + 2 + 16 + 2);
  for (std::size_t i = 0; i < to.size(); ++i) *to[i] += *from[i];
  for (const auto& [name, score] : whole->compute())
    CHECK(first->compute().at(name) == doctest::Approx(score).epsilon(1e-12));
}

TEST_CASE("metrics: a combination with a metric that needs every row has no counts") {
  const auto metric = combine_metrics({std::make_shared<Accuracy>(), std::make_shared<RocAuc>()});
  CHECK(metric->counts().empty());
}

TEST_CASE("metrics: token-level logits are scored like rows, without the labels of -100") {
  const at::Tensor logits = torch::tensor({0.f, 1.f, 1.f, 0.f, 1.f, 0.f, 0.f, 1.f}).view({2, 2, 2});
  const at::Tensor labels = torch::tensor({{1, -100}, {1, 1}});
  PrecisionRecallF1 metric(2, Average::binary);
  metric.add(logits, labels);
  CHECK(metric.total() == 3);
  CHECK(metric.compute().at("recall") == doctest::Approx(2.0 / 3));
}

TEST_CASE("metrics: the perplexity of a decoder compares each position with the next label") {
  const at::Tensor logits = torch::randn({2, 5, 7});
  const at::Tensor labels = torch::randint(7, {2, 5}, at::kLong);
  Perplexity metric(true);
  metric.add(logits, labels);
  const at::Tensor loss = torch::nn::functional::cross_entropy(
      logits.slice(1, 0, 4).reshape({8, 7}).to(at::kDouble), labels.slice(1, 1).reshape({8}));
  CHECK(metric.compute().at("perplexity") ==
        doctest::Approx(std::exp(loss.item<double>())).epsilon(1e-12));
}

TEST_CASE("metrics: metrics of classes need aligned labels, and functions those of the data") {
  CHECK(Accuracy().needs_aligned_labels());
  CHECK(TopKAccuracy(2).needs_aligned_labels());
  CHECK(PrecisionRecallF1(3).needs_aligned_labels());
  CHECK(MatthewsCorrelation(3).needs_aligned_labels());
  CHECK(RocAuc().needs_aligned_labels());
  CHECK(EntityScores({"O", "B-PER"}).needs_aligned_labels());
  CHECK(Perplexity().needs_aligned_labels());
  CHECK_FALSE(Perplexity(true).needs_aligned_labels());
  CHECK_FALSE(MeanErrors().needs_aligned_labels());
  const auto function = metric_from_function([](const EvalPrediction&) {
    return Metrics{{"one", 1}};
  });
  CHECK_FALSE(function->needs_aligned_labels());
  CHECK(function->members().empty());
  const auto accuracy = std::make_shared<Accuracy>();
  CHECK(combine_metrics({accuracy, function})->members() ==
        std::vector<EvalMetric*>{accuracy.get(), function.get()});
}

TEST_CASE("metrics: a metric that has added nothing has no scores") {
  const auto metric = combine_metrics(
      {std::make_shared<Accuracy>(), std::make_shared<TopKAccuracy>(1), std::make_shared<RocAuc>(),
       std::make_shared<PrecisionRecallF1>(3), std::make_shared<Perplexity>(),
       std::make_shared<MeanErrors>(), std::make_shared<R2>(), std::make_shared<Correlation>()});
  CHECK(metric->compute().empty());
}

TEST_CASE("metrics: every score is among the names that are known beforehand") {
  const at::Tensor logits = torch::randn({8, 2}), labels = torch::randint(2, {8}, at::kLong);
  const auto names_are_known = [](EvalMetric& metric, const at::Tensor& x, const at::Tensor& y) {
    const std::vector<std::string> names = metric.score_names();
    metric.add(x, y);
    const Metrics scores = metric.compute();
    CHECK(!scores.empty());
    CHECK(scores.size() == names.size());
    for (const auto& [name, score] : scores) CHECK(std::ranges::find(names, name) != names.end());
  };
  const auto classifier = combine_metrics(
      {std::make_shared<Accuracy>(), std::make_shared<TopKAccuracy>(2),
       std::make_shared<PrecisionRecallF1>(2), std::make_shared<MatthewsCorrelation>(2),
       std::make_shared<RocAuc>(), std::make_shared<Perplexity>()});
  names_are_known(*classifier, logits, labels);
  const auto regression = combine_metrics(
      {std::make_shared<MeanErrors>(), std::make_shared<R2>(), std::make_shared<Correlation>()});
  names_are_known(*regression, torch::randn({8}), torch::randn({8}));
  EntityScores entities({"O", "B-PER", "I-PER", "B-LOC"});
  names_are_known(entities, torch::randn({2, 4, 4}), torch::tensor({{0, 1, 2, 3}, {1, 3, 0, 0}}));
  // The names of a function's scores, and of a class that is not hasten's, are not known.
  const auto mixed = combine_metrics(
      {std::make_shared<Accuracy>(), metric_from_function([](const EvalPrediction&) {
         return Metrics{{"own", 1.0}};
       })});
  CHECK(mixed->score_names().empty());
  CHECK(ConfusionMatrix(3).score_names().empty());
}

TEST_CASE("metrics: correlations of equal values or NaN are NaN") {
  Correlation metric;
  metric.add(torch::ones({4}), torch::arange(4));
  CHECK(std::isnan(metric.compute().at("pearson")));
  CHECK(std::isnan(metric.compute().at("spearman")));
  metric.reset();
  metric.add(torch::full({3}, 0.1, at::kDouble), torch::arange(3));  // their mean is not 0.1
  CHECK(std::isnan(metric.compute().at("pearson")));
  metric.reset();
  metric.add(torch::tensor({1.0, std::nan(""), 2.0}), torch::arange(3));
  CHECK(std::isnan(metric.compute().at("spearman")));
}

TEST_CASE("metrics: the area under the curve of scores that are NaN is NaN") {
  for (const std::int64_t classes : {1, 2, 3}) {
    CAPTURE(classes);
    RocAuc metric;
    const at::Tensor logits = torch::randn({6, classes});
    logits[1].fill_(NAN);
    metric.add(logits, torch::tensor({0, 1, 0, 1, 0, 1}));
    CHECK(std::isnan(metric.compute().at("roc_auc")));
  }
}

TEST_CASE("metrics: a label whose logit is NaN is not among the largest logits") {
  for (const std::int64_t k : {1, 3}) {
    CAPTURE(k);
    TopKAccuracy metric(k);
    metric.add(torch::full({4, 3}, NAN), torch::tensor({0, 1, 2, 0}));
    CHECK(metric.compute().at(str("top_", k, "_accuracy")) == 0);
  }
}

TEST_CASE("metrics: tensors and settings that cannot be scored are refused") {
  const at::Tensor logits = torch::zeros({2, 3});
  const auto add = [&](EvalMetric& metric, const at::Tensor& labels) {
    return error_code([&] { metric.add(logits, labels); });
  };
  TopKAccuracy top(1);
  CHECK(add(top, torch::tensor({0, 3})) == "metrics.label");
  CHECK(add(top, torch::tensor({0, -1})) == "metrics.label");
  CHECK(add(top, torch::tensor({0, 1, 2})) == "metrics.shape");
  CHECK(add(top, torch::tensor({0.5, 1.0})) == "metrics.shape");
  Accuracy accuracy;
  CHECK(add(accuracy, torch::tensor({0, 1}).unsqueeze(1)) == "metrics.shape");
  CHECK(add(accuracy, torch::tensor({0, 1, 2})) == "metrics.shape");
  CHECK(add(accuracy, torch::tensor({0, 3})) == "metrics.label");
  CHECK(add(accuracy, torch::tensor({0.5, 1.0})) == "no error");  // a regression has no accuracy
  CHECK(accuracy.compute().empty());
  ConfusionMatrix four(4);
  CHECK(add(four, torch::tensor({0, 1})) == "metrics.shape");
  MeanErrors errors;
  CHECK(add(errors, torch::tensor({0.5, 1.0})) == "metrics.shape");
  CHECK(error_code([] { TopKAccuracy(0); }) == "metrics.top-k");
  CHECK(error_code([] { ConfusionMatrix(1); }) == "metrics.num-labels");
  CHECK(error_code([] { PrecisionRecallF1(3, Average::binary); }) == "metrics.average");
  const auto twice = combine_metrics({std::make_shared<Accuracy>(), std::make_shared<Accuracy>()});
  twice->add(logits, torch::tensor({0, 1}));
  CHECK(error_code([&] { twice->compute(); }) == "metrics.name");
}

}  // namespace metrics_metrics_test
