// File: hasten/trainer/trainer_dataset.h
// A dataset for the Trainer: any dataset of hasten/data with a collator that returns named tensors.
//
//   TrainerDataset train(tokens, DataCollatorWithPadding{.pad_token_id = 0});  // a TokenDataset
//   TrainerDataset eval{ColumnDataset(columns)};
//
// Copies share the data. Its batches have the names that the model takes (input_ids,
// attention_mask, labels and others). Thread rule: that of the dataset; several loaders may read it
// at once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hasten/data/loader.h"
#include "hasten/data/row_lengths.h"

namespace hasten {

class TrainerDataset {
 public:
  // No dataset: operator bool returns false, and loader() must not be called.
  TrainerDataset() = default;

  template <class Dataset, class Collator = DefaultCollator>
  requires(!std::is_same_v<std::remove_cvref_t<Dataset>, TrainerDataset>) explicit TrainerDataset(
      Dataset dataset, Collator collator = {}) {
    auto shared = std::make_shared<Dataset>(std::move(dataset));
    rows_ = static_cast<std::int64_t>(shared->size());
    make_ = [shared, collator](const LoaderOptions& options) {
      return make_loader(shared, options, collator);
    };
    lengths_ = [shared](const std::string& column) { return row_lengths(*shared, column); };
  }

  explicit operator bool() const { return static_cast<bool>(make_); }
  std::int64_t size() const { return rows_; }
  Loader<TensorDict> loader(const LoaderOptions& options) const { return make_(options); }
  // The number of tokens of each row (hasten/data/row_lengths.h).
  std::vector<std::int64_t> lengths(const std::string& column) const { return lengths_(column); }

 private:
  std::int64_t rows_ = 0;
  std::function<Loader<TensorDict>(const LoaderOptions&)> make_;
  std::function<std::vector<std::int64_t>(const std::string& column)> lengths_;
};

}  // namespace hasten
