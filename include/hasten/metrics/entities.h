// File: hasten/metrics/entities.h
// Scores of whole entities, such as the names of persons, in texts whose words have tags.
//
//   EntityScores scores({"O", "B-PER", "I-PER", "B-LOC", "I-LOC"});
//   scores.add(logits, labels);                     // [rows, tokens, 5], [rows, tokens]
//   double f1 = scores.compute().at("f1");          // of all entities
//   double of_persons = scores.compute().at("PER_f1");
//
// An entity counts as found if its first token, its last token and its type are predicted. Entities
// are read as seqeval does in its default mode: B- begins one, I- continues one of its type and
// begins one otherwise, E- ends one and S- is one by itself; "O" is outside. Rows are separate
// texts, and labels of -100 are left out with their predictions.
//
// compute() returns precision, recall and f1 of all entities (seqeval's micro average), and for
// each type TYPE_precision, TYPE_recall, TYPE_f1 and TYPE_number, the number of entities in the
// labels. A score whose denominator is 0 is 0. Types are those that occur in labels or predictions.
// Values equal seqeval's within 1e-9; the names are those of transformers' run_ner.py with
// return_entity_level_metrics.
//
// Throws UsageError "metrics.tags" for names that are not such tags, UsageError "metrics.shape" and
// DataError "metrics.label" as the metrics of classifiers do. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/metrics/metric.h"

namespace hasten {

// True if the names are "O" and names that begin with B-, I-, E- or S-.
HASTEN_API bool are_entity_tags(const std::vector<std::string>& tags);

// The tokens [first, last] of a text that are one entity.
struct Entity {
  std::string type = {};
  std::int64_t first = 0, last = 0;
  friend auto operator<=>(const Entity&, const Entity&) = default;
};
// The entities of the tags of a text, in order.
HASTEN_API std::vector<Entity> entities_of(const std::vector<std::string>& tags);

class HASTEN_API EntityScores : public EvalMetric {
 public:
  // The name of each class, by id.
  explicit EntityScores(std::vector<std::string> tags);
  void reset() override;
  void add(const at::Tensor& logits, const at::Tensor& labels) override;
  Metrics compute() const override;
  std::vector<std::string> score_names() const override;
  std::vector<double*> counts() override;
  bool needs_aligned_labels() const override { return true; }

 private:
  struct TypeCounts {
    double found = 0, predicted = 0, labelled = 0;
  };
  void add_text(const std::vector<std::string>& labelled,
                const std::vector<std::string>& predicted);

  std::vector<std::string> tags_, types_;
  std::vector<TypeCounts> counts_;  // by type
};

}  // namespace hasten
