#include "hasten/metrics/entities.h"

#include <torch/torch.h>

#include <algorithm>
#include <set>
#include <utility>

#include "data/padding.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr char kOutside = 'O';

struct SplitTag {
  char kind = kOutside;
  std::string type;
};

SplitTag split_tag(const std::string& tag) {
  if (tag.size() < 2) return {};
  const std::string type = tag.substr(tag.find('-') + 1);
  return {tag[0], type.empty() ? "_" : type};
}

// These two functions are seqeval's end_of_chunk and start_of_chunk, for the tags of its default
// mode.
bool ends_before(const SplitTag& tag, const SplitTag& next) {
  if (tag.kind == kOutside) return false;
  if (tag.kind == 'E' || tag.kind == 'S' || tag.type != next.type) return true;
  return next.kind == 'B' || next.kind == 'S' || next.kind == kOutside;
}

bool begins_at(const SplitTag& tag, const SplitTag& previous) {
  if (tag.kind == kOutside) return false;
  if (tag.kind == 'B' || tag.kind == 'S' || tag.type != previous.type) return true;
  return previous.kind == 'E' || previous.kind == 'S' || previous.kind == kOutside;
}

double ratio_of_counts(double part, double whole) { return whole == 0 ? 0 : part / whole; }

}  // namespace

bool are_entity_tags(const std::vector<std::string>& tags) {
  bool has_entity = false;
  for (const std::string& tag : tags) {
    if (tag == "O") continue;
    const bool fits = tag.size() > 2 && tag[1] == '-' &&
                      std::string_view("BIES").find(tag[0]) != std::string_view::npos;
    if (!fits) return false;
    has_entity = true;
  }
  return has_entity;
}

std::vector<Entity> entities_of(const std::vector<std::string>& tags) {
  std::vector<Entity> entities;
  SplitTag previous;
  std::int64_t first = 0;
  const auto count = static_cast<std::int64_t>(tags.size());
  for (std::int64_t i = 0; i <= count; ++i) {
    SplitTag tag = i < count ? split_tag(tags[static_cast<std::size_t>(i)]) : SplitTag{};
    if (ends_before(previous, tag)) entities.push_back({previous.type, first, i - 1});
    if (begins_at(tag, previous)) first = i;
    previous = std::move(tag);
  }
  return entities;
}

EntityScores::EntityScores(std::vector<std::string> tags) : tags_(std::move(tags)) {
  if (!are_entity_tags(tags_)) {
    throw UsageError("metrics.tags",
                     {.what = "the tags of EntityScores",
                      .got = join(tags_, ", "),
                      .expected = "O, and names such as B-PER and I-PER",
                      .hint = "use PrecisionRecallF1 for tags that do not mark entities"});
  }
  std::set<std::string> types;
  for (const std::string& tag : tags_) {
    if (tag != "O") types.insert(split_tag(tag).type);
  }
  types_.assign(types.begin(), types.end());
  reset();
}

void EntityScores::reset() { counts_.assign(types_.size(), {}); }

void EntityScores::add(const at::Tensor& logits, const at::Tensor& labels) {
  const auto classes = static_cast<std::int64_t>(tags_.size());
  if (logits.dim() != 3 || labels.is_floating_point() ||
      logits.sizes().slice(0, 2) != labels.sizes() || logits.size(2) != classes) {
    throw UsageError(
        "metrics.shape",
        {.what = "logits and labels of tagged tokens",
         .got = str(c10::str(logits.sizes()), " and ", c10::str(labels.scalar_type()), " ",
                    c10::str(labels.sizes())),
         .expected = str("[rows, tokens, ", classes, "] and integers [rows, tokens]")});
  }
  const at::Tensor predicted = logits.detach().argmax(-1).to(at::kCPU).contiguous(),
                   expected = labels.detach().to(at::kCPU, at::kLong).contiguous();
  const auto tag_of = [&](std::int64_t id) {
    if (id >= 0 && id < classes) return tags_[static_cast<std::size_t>(id)];
    throw DataError("metrics.label",
                    {.what = "a label",
                     .got = str(id),
                     .expected = str("a class from 0 to ", classes - 1, ", or ", kIgnoredLabel)});
  };
  const std::int64_t rows = labels.size(0), tokens = labels.size(1);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<std::string> of_labels, of_predictions;
    for (std::int64_t i = row * tokens; i < (row + 1) * tokens; ++i) {
      const std::int64_t label = expected.const_data_ptr<std::int64_t>()[i];
      if (label == kIgnoredLabel) continue;
      of_labels.push_back(tag_of(label));
      of_predictions.push_back(tag_of(predicted.const_data_ptr<std::int64_t>()[i]));
    }
    add_text(of_labels, of_predictions);
  }
}

void EntityScores::add_text(const std::vector<std::string>& labelled,
                            const std::vector<std::string>& predicted) {
  const auto counts_of = [this](const Entity& entity) -> TypeCounts& {
    const auto at = std::lower_bound(types_.begin(), types_.end(), entity.type);
    return counts_[static_cast<std::size_t>(at - types_.begin())];
  };
  const std::vector<Entity> in_labels = entities_of(labelled);
  const std::set<Entity> expected(in_labels.begin(), in_labels.end());
  for (const Entity& entity : in_labels) ++counts_of(entity).labelled;
  for (const Entity& entity : entities_of(predicted)) {
    ++counts_of(entity).predicted;
    if (expected.contains(entity)) ++counts_of(entity).found;
  }
}

std::vector<double*> EntityScores::counts() {
  std::vector<double*> all;
  for (TypeCounts& each : counts_)
    all.insert(all.end(), {&each.found, &each.predicted, &each.labelled});
  return all;
}

std::vector<std::string> EntityScores::score_names() const {
  std::vector<std::string> names = {"precision", "recall", "f1"};
  for (const std::string& type : types_) {
    for (const char* const score : {"_precision", "_recall", "_f1", "_number"})
      names.push_back(type + score);
  }
  return names;
}

Metrics EntityScores::compute() const {
  Metrics scores;
  const auto add_scores = [&](const std::string& prefix, const TypeCounts& counts) {
    const double precision = ratio_of_counts(counts.found, counts.predicted),
                 recall = ratio_of_counts(counts.found, counts.labelled);
    scores[prefix + "precision"] = precision;
    scores[prefix + "recall"] = recall;
    scores[prefix + "f1"] = ratio_of_counts(2 * precision * recall, precision + recall);
  };
  TypeCounts sum;
  for (std::size_t i = 0; i < types_.size(); ++i) {
    const TypeCounts& of_type = counts_[i];
    if (of_type.predicted + of_type.labelled == 0) continue;
    add_scores(types_[i] + "_", of_type);
    scores[types_[i] + "_number"] = of_type.labelled;
    sum.found += of_type.found;
    sum.predicted += of_type.predicted;
    sum.labelled += of_type.labelled;
  }
  add_scores("", sum);
  return scores;
}

}  // namespace hasten
