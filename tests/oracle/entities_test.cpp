// Compares the scores of entities with seqeval (generate_entities.py).
#include "hasten/metrics/entities.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hasten/base/error.h"

namespace oracle_entities_test {

using namespace hasten;

namespace {

using Json = nlohmann::json;

const Json& recorded() {
  static const Json file = Json::parse(
      std::ifstream(std::string(HASTEN_TEST_DATA) + "/oracle/data/metrics/entities.json"));
  return file;
}

// The texts of a case as logits and labels, padded with -100. A position with label -100 also
// precedes each token. It represents a special token or a later token of the same word.
struct Batch {
  at::Tensor logits, labels;
};
Batch batch_of(const Json& texts, const Json& predictions, std::int64_t classes) {
  std::int64_t longest = 0;
  for (const Json& text : texts)
    longest = std::max(longest, static_cast<std::int64_t>(text.size()));
  const auto rows = static_cast<std::int64_t>(texts.size());
  Batch batch{at::zeros({rows, 2 * longest, classes}),
              at::full({rows, 2 * longest}, -100, at::kLong)};
  for (std::int64_t row = 0; row < rows; ++row) {
    const Json &text = texts[static_cast<std::size_t>(row)],
               &predicted = predictions[static_cast<std::size_t>(row)];
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(text.size()); ++i) {
      const auto at = static_cast<std::size_t>(i);
      batch.labels[row][2 * i + 1] = text[at].get<std::int64_t>();
      batch.logits[row][2 * i + 1][predicted[at].get<std::int64_t>()] = 1;
    }
  }
  return batch;
}

}  // namespace

TEST_CASE("entities: scores equal seqeval's within 1e-9") {
  for (const Json& each : recorded().at("cases")) {
    CAPTURE(each.at("name"));
    const auto tags = each.at("tags").get<std::vector<std::string>>();
    EntityScores scores(tags);
    const Json &labels = each.at("labels"), &predictions = each.at("predictions");
    for (std::size_t from = 0; from < labels.size(); from += 5) {
      const std::size_t to = std::min(labels.size(), from + 5);
      const auto part = [&](const Json& all) {
        return Json(std::vector<Json>(all.begin() + static_cast<std::ptrdiff_t>(from),
                                      all.begin() + static_cast<std::ptrdiff_t>(to)));
      };
      const Batch batch =
          batch_of(part(labels), part(predictions), static_cast<std::int64_t>(tags.size()));
      scores.add(batch.logits, batch.labels);
    }
    const Metrics computed = scores.compute();
    CHECK(computed.size() == each.at("scores").size());
    for (const auto& [name, value] : each.at("scores").items()) {
      CAPTURE(name);
      REQUIRE(computed.contains(name));
      CHECK(std::abs(computed.at(name) - value.get<double>()) <= 1e-9);
    }
  }
}

TEST_CASE("entities: the positions of entities equal seqeval's") {
  for (const Json& each : recorded().at("cases")) {
    CAPTURE(each.at("name"));
    for (std::size_t row = 0; row < each.at("predictions").size(); ++row) {
      std::vector<std::string> tags;
      for (const Json& id : each.at("predictions")[row])
        tags.push_back(each.at("tags")[id.get<std::size_t>()]);
      Json found = Json::array();
      for (const Entity& entity : entities_of(tags))
        found.push_back({entity.type, entity.first, entity.last});
      CHECK(found == each.at("entities")[row]);
    }
  }
}

TEST_CASE("entities: the counts of two processes add up") {
  const Json& each = recorded().at("cases")[0];
  const auto tags = each.at("tags").get<std::vector<std::string>>();
  const Batch batch =
      batch_of(each.at("labels"), each.at("predictions"), static_cast<std::int64_t>(tags.size()));
  EntityScores all(tags), first(tags), second(tags);
  all.add(batch.logits, batch.labels);
  first.add(batch.logits.slice(0, 0, 20), batch.labels.slice(0, 0, 20));
  second.add(batch.logits.slice(0, 20), batch.labels.slice(0, 20));
  for (std::size_t i = 0; i < first.counts().size(); ++i) *first.counts()[i] += *second.counts()[i];
  CHECK(first.compute() == all.compute());
}

TEST_CASE("entities: invalid input is refused") {
  CHECK_THROWS_AS(EntityScores({"NOUN", "VERB"}), UsageError);
  CHECK_FALSE(are_entity_tags({"O"}));
  EntityScores scores({"O", "B-X"});
  CHECK_THROWS_AS(scores.add(at::zeros({2, 3, 4}), at::zeros({2, 3}, at::kLong)), UsageError);
  CHECK_THROWS_AS(scores.add(at::zeros({1, 1, 2}), at::full({1, 1}, 2, at::kLong)), DataError);
  const Metrics nothing = scores.compute();
  CHECK(nothing.at("f1") == 0);
}

}  // namespace oracle_entities_test
