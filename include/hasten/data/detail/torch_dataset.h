// File: hasten/data/detail/torch_dataset.h
// Adapts torch::data's map datasets (TensorDataset, MNIST, a user's own, with or without .map(...))
// for make_loader, which calls it automatically.
//
//   auto dataset = torch::data::datasets::MNIST(folder).map(torch::data::transforms::Stack<>());
//   auto loader = make_loader(std::move(dataset), {.batch_size = 32, .shuffle = true});
//
// The dataset's get_batch makes the batches, as with torch::data::make_data_loader; hasten provides
// order, length, workers and position. Throws UsageError "data.unknown-size" if a loader is made of
// a dataset without a size. Thread rule: with workers, get_batch of one dataset is called on
// several threads at once, whereas torch::data copies the dataset for each worker. A dataset with
// state between calls needs num_workers = 0.
#pragma once

#include <c10/util/ArrayRef.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "hasten/data/detail/loader_core.h"

namespace hasten {

// A torch::data::datasets::BatchDataset with numbered rows.
template <class D>
concept TorchMapDataset = requires(D& dataset, c10::ArrayRef<std::size_t> rows) {
  dataset.get_batch(rows);
  { dataset.size() } -> std::same_as<std::optional<std::size_t>>;
};

template <TorchMapDataset D>
class TorchDataset {
 public:
  explicit TorchDataset(std::shared_ptr<D> dataset) : dataset_(std::move(dataset)) {
    if (!dataset_->size()) detail::throw_unknown_size("make_loader");
  }

  std::int64_t size() const { return static_cast<std::int64_t>(*dataset_->size()); }
  auto get_batch(std::span<const std::int64_t> indices) {
    const std::vector<std::size_t> rows(indices.begin(), indices.end());
    return dataset_->get_batch(rows);
  }

 private:
  std::shared_ptr<D> dataset_;
};

}  // namespace hasten
