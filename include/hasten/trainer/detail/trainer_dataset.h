// File: hasten/trainer/detail/trainer_dataset.h
// A dataset for the Trainer: any dataset of hasten/data or torch::data, with the collator that
// makes its batches.
//
//   TrainerDataset train(tokens, DataCollatorWithPadding{.pad_token_id = 0});  // a TokenDataset
//   TrainerDataset eval{ColumnDataset(columns)};                               // of TensorDicts
//
// A batch may be of any type that a loader carries: tensors, pairs, maps, structs. The Trainer's
// module, or TrainerParts::compute_loss, takes batches of that type; hasten's own models take
// TensorDicts with input_ids, attention_mask, labels and others.
//
// A stream (hasten/data/streams.h) need not know its length, but training on it then needs
// max_steps. A run that resumes calls the stream's skip() if it has one; otherwise it reads the
// rows of the earlier run again and discards them. Copies share the data and also the position of a
// stream, so training and evaluation need separate streams. Thread rule: that of the dataset;
// several loaders may read a dataset at once unless it is a stream.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "hasten/data/detail/any_batch.h"
#include "hasten/data/loader.h"
#include "hasten/data/row_lengths.h"
#include "hasten/data/streams.h"

namespace hasten {

namespace detail {

// Converts each batch to an AnyBatch.
template <class D, class Collator>
class TrainerSource : public TypedSource<D, Collator> {
  using Typed = TypedSource<D, Collator>;

 public:
  using Batch = typename Typed::Batch;
  using Typed::Typed;

  ErasedBatch make(std::span<const std::int64_t> indices, const BatchContext& context) override {
    return wrap(Typed::make(indices, context));
  }
  ErasedBatch make_from_read_rows(std::int64_t first, std::int64_t rows, std::int64_t step_start,
                                  const BatchContext& context) override {
    return wrap(Typed::make_from_read_rows(first, rows, step_start, context));
  }
  at::Tensor to_bytes(const ErasedBatch& batch) const override {
    Batch& inner = static_cast<const AnyBatch*>(batch.get())->template as<Batch>();
    return Typed::to_bytes(ErasedBatch(batch, &inner));
  }
  ErasedBatch from_bytes(const at::Tensor& bytes) const override {
    return wrap(Typed::from_bytes(bytes));
  }

 private:
  static ErasedBatch wrap(const ErasedBatch& batch) {
    if (!batch) return nullptr;
    return std::make_shared<AnyBatch>(std::static_pointer_cast<Batch>(batch));
  }
};

}  // namespace detail

class TrainerDataset {
 public:
  // Holds no dataset: operator bool returns false, and loader() must not be called.
  TrainerDataset() = default;

  // Takes the datasets and collators that make_loader takes.
  template <class Dataset, class Collator = DefaultCollator>
  requires(!std::is_same_v<std::remove_cvref_t<Dataset>, TrainerDataset>) explicit TrainerDataset(
      Dataset dataset, Collator collator = {}) {
    const auto shared = detail::shared_dataset(std::move(dataset));
    using Source = detail::TrainerSource<detail::DatasetOf<Dataset>, Collator>;
    is_stream_ = detail::IsStream<Dataset>;
    rows_.reset();
    if constexpr (requires { shared->size(); }) rows_ = static_cast<std::int64_t>(shared->size());
    batch_type_ = &typeid(typename Source::Batch);
    make_ = [shared, collator](const LoaderOptions& options) {
      auto source = std::make_unique<Source>(shared, collator, options.pin_memory);
      return Loader<AnyBatch>(std::make_shared<detail::LoaderCore>(std::move(source), options));
    };
    lengths_ = [shared](const std::string& column) { return row_lengths(*shared, column); };
  }

  explicit operator bool() const { return static_cast<bool>(make_); }
  // Returns the number of rows. Throws UsageError "data.unknown-size" for a stream of unknown size.
  std::int64_t size() const {
    return rows_ ? *rows_ : (detail::throw_unknown_size("TrainerDataset::size()"), 0);
  }
  bool has_size() const { return rows_.has_value(); }
  bool is_stream() const { return is_stream_; }
  Loader<AnyBatch> loader(const LoaderOptions& options) const { return make_(options); }
  // Returns the type of the batches, or null if there is no dataset.
  const std::type_info* batch_type() const { return batch_type_; }
  // Returns the number of tokens of each row (hasten/data/row_lengths.h).
  std::vector<std::int64_t> lengths(const std::string& column) const { return lengths_(column); }

 private:
  std::optional<std::int64_t> rows_ = 0;
  bool is_stream_ = false;
  const std::type_info* batch_type_ = nullptr;
  std::function<Loader<AnyBatch>(const LoaderOptions&)> make_;
  std::function<std::vector<std::int64_t>(const std::string& column)> lengths_;
};

}  // namespace hasten
