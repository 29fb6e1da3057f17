// Compares metrics with scikit-learn and SciPy (generate_metrics.py).
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hasten/metrics/classification.h"
#include "hasten/metrics/regression.h"

namespace oracle_metrics_test {

using namespace hasten;

namespace {

using Json = nlohmann::json;

const Json& recorded_scores() {
  static const Json cases =
      Json::parse(std::ifstream(std::string(HASTEN_TEST_DATA) + "/oracle/data/metrics/cases.json"));
  return cases;
}

at::Tensor logits_of(const Json& rows) {
  std::vector<float> values;
  for (const Json& row : rows)
    for (const Json& value : row) values.push_back(value.get<float>());
  return torch::tensor(values).view({static_cast<std::int64_t>(rows.size()), -1});
}

at::Tensor integers_of(const Json& values) {
  return torch::tensor(values.get<std::vector<std::int64_t>>());
}

at::Tensor doubles_of(const Json& values) {
  return torch::tensor(values.get<std::vector<double>>(), at::kDouble);
}

// Adds the rows in batches of 7, so that sums over batches are tested too.
void add_in_batches(EvalMetric& metric, const at::Tensor& predictions, const at::Tensor& labels) {
  metric.reset();
  for (std::int64_t from = 0; from < labels.size(0); from += 7)
    metric.add(predictions.slice(0, from, from + 7), labels.slice(0, from, from + 7));
}

void check_scores(const Metrics& scores, const Json& expected) {
  for (const auto& [name, score] : scores) {
    CAPTURE(name);
    REQUIRE(expected.contains(name));
    if (expected.at(name).is_null()) {
      CHECK(std::isnan(score));
    } else {
      const double value = expected.at(name);
      CHECK(std::abs(score - value) <= 1e-9 * std::max(1.0, std::abs(value)));
    }
  }
}

}  // namespace

TEST_CASE("metrics: classifications have the scores of scikit-learn") {
  const auto metric =
      combine_metrics({std::make_shared<Accuracy>(), std::make_shared<TopKAccuracy>(2),
                       std::make_shared<RocAuc>(), std::make_shared<Perplexity>()});
  for (const Json& item : recorded_scores().at("classifications")) {
    const at::Tensor logits = logits_of(item.at("logits")), labels = integers_of(item.at("labels"));
    add_in_batches(*metric, logits, labels);
    CHECK(metric->compute().size() == 4);
    check_scores(metric->compute(), item.at("scores"));
    MatthewsCorrelation matthews(logits.size(1));
    add_in_batches(matthews, logits, labels);
    CHECK(matthews.compute().size() == 1);
    check_scores(matthews.compute(), item.at("scores"));
  }
}

TEST_CASE("metrics: precision, recall and F1 have the scores of scikit-learn in each average") {
  const std::map<std::string, Average> averages{{"binary", Average::binary},
                                                {"micro", Average::micro},
                                                {"macro", Average::macro},
                                                {"weighted", Average::weighted}};
  for (const Json& item : recorded_scores().at("classifications")) {
    const at::Tensor logits = logits_of(item.at("logits")), labels = integers_of(item.at("labels"));
    for (const auto& [name, expected] : item.at("averages").items()) {
      CAPTURE(name);
      PrecisionRecallF1 metric(logits.size(1), averages.at(name));
      add_in_batches(metric, logits, labels);
      CHECK(metric.compute().size() == 3);
      check_scores(metric.compute(), expected);
    }
  }
}

TEST_CASE("metrics: the confusion matrix is that of scikit-learn") {
  for (const Json& item : recorded_scores().at("classifications")) {
    const at::Tensor logits = logits_of(item.at("logits"));
    ConfusionMatrix matrix(logits.size(1));
    add_in_batches(matrix, logits, integers_of(item.at("labels")));
    for (std::int64_t label = 0; label < logits.size(1); ++label) {
      for (std::int64_t prediction = 0; prediction < logits.size(1); ++prediction)
        CHECK(matrix.count(label, prediction) == item.at("confusion")[static_cast<std::size_t>(
                                                     label)][static_cast<std::size_t>(prediction)]
                                                     .get<double>());
    }
  }
}

TEST_CASE("metrics: regressions have the scores of scikit-learn and SciPy") {
  const auto metric = combine_metrics(
      {std::make_shared<MeanErrors>(), std::make_shared<R2>(), std::make_shared<Correlation>()});
  for (const Json& item : recorded_scores().at("regressions")) {
    const at::Tensor predictions = doubles_of(item.at("predictions"));
    add_in_batches(*metric, predictions.unsqueeze(1), doubles_of(item.at("labels")));
    CHECK(metric->compute().size() == 6);
    check_scores(metric->compute(), item.at("scores"));
  }
}

}  // namespace oracle_metrics_test
